"""What the search makes of a toy distribution: loops."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.translation.decoding import is_loop, loops_in_words
from syntaxformer.translation.translator import Translator

END = 2


@pytest.mark.parametrize(
    ("pieces", "limit", "loops"),
    [
        ([5, 7, 8, 7, 8, 7, 8, 7, 8, END], 10, True),  # (7 8) four times, up to the limit
        ([5, 7, 8, 7, 8, 7, 8, 7, 8], 10, True),  # CTranslate2 leaves the end out
        ([5, 8, 7, 8, 7, 8, 7, 8, 7, 8], 10, True),  # cut in the middle of a round
        ([5, 7, 8, 7, 8, 7, 8, 7, 8, END], 11, False),  # it ended by itself
        ([5, 6, 9, 7, 8, 7, 8, 7, 8, END], 10, False),  # three times only
        ([7, 8, 7, 8, 7, 8, 7, 8, 9, END], 10, False),  # it left the loop
        ([9, 9, 9, 9, END], 5, True),
        ([END], 1, False),
        ([], 0, False),
    ],
)
def test_a_loop_is_a_repeated_run_up_to_the_limit(pieces, limit, loops):
    assert is_loop(pieces, limit, END) is loops


@pytest.fixture
def looping(new_translator, save_translator, tmp_path):
    """Always the same piece: the output bias is that of "c" at every step."""
    translator = new_translator()
    model, piece = translator.model, translator.encoder.tokenizer("cat")["input_ids"][0]
    with torch.no_grad():
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.fill_(1.0)
        model.decoder.embedding.weight.zero_()
        model.decoder.embedding.weight[piece] = 1.0
    return save_translator(translator, tmp_path / "looping")


def test_loops_are_said_by_translate_and_evaluate(looping, tmp_path):
    (tmp_path / "en").write_text("the cat\n\ncats sit .\n")
    said = "2 of 3 translations repeat themselves up to the length limit."
    assert loops_in_words(2, 3).startswith(said)
    done = CliRunner().invoke(app, ["translate", str(looping), str(tmp_path / "en")])
    assert done.exit_code == 0
    assert said in done.stderr
    assert len(done.stdout.splitlines()) == 3
    sides = ["--src", str(tmp_path / "en"), "--ref", str(tmp_path / "en")]
    done = CliRunner().invoke(app, ["evaluate", str(looping), *sides])
    assert said in done.stderr
    done = CliRunner().invoke(app, ["evaluate", str(looping), *sides, "--json"])
    assert '"n_loops": 2' in done.stdout


def _set_apart(pieces) -> bool:
    pairs = [*pairwise(pieces)]
    return len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_n_gram_twice(looping, beam_size):
    translator = Translator.load(looping)
    ((free,),) = translator.translate(["the cat"], beam_size)
    ((strict,),) = translator.translate(["the cat"], beam_size, no_repeat_ngram_size=2)
    assert free.loops
    assert not _set_apart(free.pieces)
    assert not strict.loops
    assert _set_apart(strict.pieces)


def test_the_folder_s_own_setting_is_taken(looping):
    translator = Translator.load(looping)
    decoding = translator.info.decoding.model_copy(update={"no_repeat_ngram_size": 2})
    own = Translator(
        translator.model, translator.encoder, translator.info.model_copy(update={"decoding": decoding})
    )
    assert [one[0].text for one in own.translate(["a dog"])] == [
        one[0].text for one in translator.translate(["a dog"], no_repeat_ngram_size=2)
    ]


def test_an_unknown_or_wrong_setting_is_refused(looping):
    translator = Translator.load(looping)
    with pytest.raises(ConfigError, match=r"translate: no_repeat_ngram_size: .*2"):
        list(translator.translate(["a"], no_repeat_ngram_size=1))
    with pytest.raises(ConfigError, match="no_repeat_ngram"):
        list(translator.translate(["a"], no_repeat_ngrams=2))
