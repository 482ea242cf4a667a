"""What the search makes of a toy distribution: loops, repeated n-grams, samples."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import sacrebleu
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import AlignmentError, ConfigError, DataError
from syntaxformer.cli.main import app
from syntaxformer.translation.decoding import is_loop, loops_in_words
from syntaxformer.translation.torch_decoder import Sampling
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
    (tmp_path / "de").write_text("die Katze\n\nKatzen sitzen .\n")
    sides = ["--src", str(tmp_path / "en"), "--ref", str(tmp_path / "de")]
    done = CliRunner().invoke(app, ["evaluate", str(looping), *sides])
    assert said in done.stderr
    done = CliRunner().invoke(app, ["evaluate", str(looping), *sides, "--json"])
    assert '"n_loops": 2' in done.stdout
    done = CliRunner().invoke(app, ["evaluate", str(looping), *sides, "--no-repeat-ngram-size", "2"])
    assert done.exit_code == 0
    assert "repeat themselves" not in done.stderr


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


@pytest.mark.parametrize(
    ("temperature", "top_k", "expected"),
    [
        # p = .1 .2 .7, so .1 .3 1 in sums; at each of two steps every line has a number of its own
        (1.0, None, [[0, 1, 2, 2], [2, 2, 1, 0]]),
        # p ** 0.5 = .316 .447 .837, so .198 .477 1 in sums
        (2.0, None, [[0, 1, 1, 2], [2, 1, 1, 0]]),
        # .2 .7, so 0 .222 1 in sums
        (1.0, 2, [[1, 2, 2, 2], [2, 2, 2, 1]]),
        (1.0, 1, [[2, 2, 2, 2], [2, 2, 2, 2]]),
        (0.01, 99, [[2, 2, 2, 2], [2, 2, 2, 2]]),
    ],
)
def test_sampling_from_a_toy_distribution(temperature, top_k, expected):
    drawn = torch.tensor([[0.05, 1.0], [0.25, 0.45], [0.4, 0.29], [0.9, 1e-9]])
    draw = Sampling(drawn, temperature, top_k)
    scores = torch.tensor([[0.1, 0.2, 0.7, 0.0]] * 4).log()
    for step, wanted in enumerate(expected):
        left = draw(torch.zeros(4, step + 1, dtype=torch.long), scores)
        assert left.argmax(-1).tolist() == wanted
        assert torch.isfinite(left).sum(-1).tolist() == [1, 1, 1, 1]


LINES = ["the cat sat", "cats", "", "a dog and the cat run", "sat ."]


def test_samples_depend_on_the_seed_and_the_line_alone(infused):
    def sample(lines, **settings):
        settings = {"temperature": 1.0, "seed": 3, "n_best": 4, "scored": True, **settings}
        found = infused.translate(lines, **settings)
        return [[(one.text, pytest.approx(one.score, abs=1e-4)) for one in best] for best in found]

    found = sample(LINES)
    assert [len(best) for best in found] == [4] * 5
    assert len({text for text, _ in found[0]}) > 1  # samples of a line differ
    assert sample(LINES, batch_size=1) == found
    assert sample(LINES[::-1]) == found[::-1]
    assert sample(LINES, seed=4) != found


@pytest.mark.parametrize(
    ("error", "settings", "message"),
    [
        (ValueError, {"n_best": 4}, r"^n_best: expected 1 to beam_size = 3, got 4\.$"),
        (ValueError, {"n_best": 0}, r"^n_best: expected 1 to beam_size = 3, got 0\.$"),
        (ConfigError, {"beam_size": 2, "temperature": 1.0}, r"^beam_size: expected none with a temperature, .*, got 2\.$"),
        (ConfigError, {"top_k": 5}, r"^top_k: expected a temperature with it, got top_k = 5 alone\. .*set temperature"),
        (ConfigError, {"seed": 0}, r"^seed: expected a temperature with it, got seed = 0 alone\."),
        (ConfigError, {"temperature": 0.0}, r"translate: temperature: .*greater than 0"),
        (ConfigError, {"beam_size": 0, "batch_size": -1}, r"translate: beam_size: expected greater .* got 0\.[\s\S]*translate: batch_size: .* got -1\."),
        (ConfigError, {"batch_size": 2.5}, r"^translate: batch_size: expected a valid integer"),
        # Whose powers of a length are no numbers.
        (ConfigError, {"length_penalty": 1000.0}, r"^translate: length_penalty: expected .* than or equal to 10"),
        (ConfigError, {"length_penalty": -1000.0}, r"^translate: length_penalty: expected .* than or equal to -10"),
        (ConfigError, {"coverage_penalty": 0.5}, r"coverage_penalty: expected none in PyTorch.*got 0\.5\. Give it to"),
        (ConfigError, {"user_factors": {"tone": [["h"]]}}, r"^user factors: expected none, as in training, got tone\.$"),
        (ConfigError, {"split_sentences": "always", "prefixes": [""]}, "split_sentences: expected never with prefixes, which"),
        (ConfigError, {"split_sentences": "yes"}, "split_sentences: expected never, auto or always, got 'yes'"),
        (AlignmentError, {"prefixes": ["x"]}, r"prefixes: expected 2 or more, one .*, got 1\."),
        (AlignmentError, {"prefixes": ["", "", ""]}, r"prefixes: expected 2, one for each line of the text, got 3\."),
        (DataError, {"prefixes": ["", None]}, "2: prefix: expected a string, got NoneType"),
        (DataError, {"prefixes": ["", "cat"]}, "2: prefix: expected one that fits, got 'cat' with an empty line"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(plain, error, settings, message):
    with pytest.raises(error, match=message):
        list(plain.translate(["a", " "], **settings))


def test_evaluate_takes_several_references(folder, tmp_path):
    """The scores are sacreBLEU's of what was written; empty lines and tabs are counted, once for each file."""
    texts = {
        "s": ["the cat", "cats sit .", ""],
        "a": ["the cat", "", ""],
        "b": ['""" cat', "a\tdog ran .", "."],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = [str(tmp_path / one) for one in texts]
    given = ["evaluate", str(folder), "--src", files[0], "--ref", files[1], "--ref", files[2], "--json"]
    done = CliRunner().invoke(app, [*given, "-o", str(tmp_path / "out"), "--baseline", str(folder)])
    assert done.exit_code == 0, done.exception
    report = json.loads(done.stdout)
    written = (tmp_path / "out").read_text().split("\n")[:3]
    references = [texts["a"], [line.replace("\t", " ") for line in texts["b"]]]
    assert report["chrf"] == sacrebleu.corpus_chrf(written, references).score > 0
    ter = sacrebleu.corpus_ter(written, references, case_sensitive=True).score
    assert report["systems"][str(folder)]["TER"] == ter
    assert all("nrefs:2" in one for one in [*report["signatures"].values(), report["bleu_signature"]])
    told = [line for line in done.stderr.splitlines() if "the first is line" in line]
    assert told == [
        f"warning: {files[0]}: 1 of 3 lines are empty; the first is line 3",
        f"warning: {files[1]}: 2 of 3 lines are empty; the first is line 2",
        f"warning: {files[2]}: 1 of 3 lines have a tab, which is read as a space; the first is line 2",
    ]
    (tmp_path / "b").write_text("x\n")
    assert str(CliRunner().invoke(app, given).exception).startswith(f"{files[2]}: expected as many lines")
