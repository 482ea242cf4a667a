"""Whole runs: of text as Kapadia et al. (2020) prepare it, and of trainings that diverge."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from digit_pairs import digit_pairs
from syntaxformer.annotate import WordsAsGiven
from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import main
from syntaxformer.runs.run_folder import open_run, running
from syntaxformer.translation import training
from syntaxformer.translation.decoding import Search
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.model_folder import load_source_encoder, read_info
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.scoring import scoring
from syntaxformer.translation.torch_decoder import TorchDecoder
from syntaxformer.translation.training import finish, train_translator
from syntaxformer.translation.translator import Translator

DE = ["Das ist &quot; gut &quot; .", "Er sagt &apos;s nicht .", "Ein Hund lief", "Das Tier"] * 3
EN = ["that &apos;s &quot; good &quot; .", "he does n&apos;t say .", "a dog ran", "the animal"] * 3


def _settings(data):
    for split in ("train", "dev"):
        for language, lines in (("de", DE), ("en", EN)):
            (data / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return [
        f"output={data / 'run'}", f"data.dir={data}", "data.src=de", "data.tgt=en", "data.dev=dev",
        "data.max_pieces=40", "data.tokenized=true", "data.unescape=true", "data.lowercase=true",
        "annotation.annotator=de_lower", "infusion.kind=add", "subwords.vocab_size=330",
        "subwords.joint=false", "model.d_model=14", "model.d_ff=17", "model.n_heads=2", "model.encoder_layers=1",
        "model.decoder_layers=1", "model.share_source_embedding=true", "training.max_steps=2",
        "training.eval_every=1", "training.max_batch_tokens=64", "training.tensorboard=false",
        "training.precision=fp32", "training.best_by=bleu", "predict_target_pos.annotator=en",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return train_translator(load_recipe("tiny", _settings(tmp_path_factory.mktemp("iwslt"))))


@pytest.mark.slow
def test_dev_bleu_is_that_of_the_lines_whose_loss_is_taken(tmp_path, monkeypatch):
    """Entities are undone once: "&amp;quot;" is the text "&quot;"."""
    seen, encode = set(), Translator._encode

    def seeing(self, lines, *arguments):
        seen.update(lines)
        return encode(self, lines, *arguments)

    monkeypatch.setattr(Translator, "_encode", seeing)
    settings = _settings(tmp_path)
    (tmp_path / "dev.de").write_text("Er &amp;quot; lief &quot;\n" * len(EN), "utf-8")
    train_translator(load_recipe("tiny", [*settings, "training.max_steps=1"]))
    assert seen == {'Er &quot; lief "'}


@pytest.mark.slow
def test_dev_bleu_takes_the_annotation_that_was_made_before(tmp_path, monkeypatch):
    """A slow parser would parse the development set again at each evaluation."""
    seen, stream = [], WordsAsGiven.stream

    def seeing(self, lines, **options):
        lines = list(lines)
        seen.extend([self.name] * len(lines))
        return stream(self, lines, **options)

    monkeypatch.setattr(WordsAsGiven, "stream", seeing)
    numbers = []
    for n_steps in (1, 3):
        seen.clear()
        own = [f"training.max_steps={n_steps}", f"data.cache={tmp_path / str(n_steps)}"]
        train_translator(load_recipe("tiny", [*_settings(tmp_path), *own]), overwrite=True)
        numbers.append(Counter(seen))
    assert numbers[0] == numbers[1] == dict.fromkeys(("de_lower", "en"), len(DE)), (
        "text of dev and train is one"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "beam"), [((), 4), (("training.dev_beam_size=1",), 1)])
def test_dev_bleu_may_have_a_beam_of_its_own(tmp_path, monkeypatch, settings, beam):
    beams, decode = [], TorchDecoder.decode

    def seeing(self, source, rows, search):
        beams.append(search.beam_size)
        return decode(self, source, rows, search)

    monkeypatch.setattr(TorchDecoder, "decode", seeing)
    folder = train_translator(load_recipe("tiny", [*_settings(tmp_path), *settings]))
    assert set(beams) == {beam}
    assert Translator.load(folder).info.decoding.beam_size == 4, "users get the beam of the recipe"


@pytest.mark.slow
def test_each_side_has_its_vocabulary_and_table(folder):
    encoder = load_source_encoder(folder, read_info(folder))
    model = SyntaxTransformer.from_pretrained(folder)
    assert model.config.source_vocab_size == len(encoder.tokenizer)
    assert model.config.vocab_size == len(encoder.target_tokenizer)
    assert model.encoder.embedding.word.weight is not model.decoder.embedding.weight
    assert model.output.weight is model.decoder.embedding.weight
    assert "hund" in encoder.tokenizer.decode(encoder.tokenizer("hund")["input_ids"])
    assert encoder.target_tokenizer.eos_token == "</s>"


def test_lines_are_prepared_as_in_training(folder):
    translator = Translator.load(folder)
    raw, prepared = translator.encode(["Das  ist &quot; gut"]), translator.encode(['das ist " gut'])
    assert raw.pieces.tolist() == prepared.pieces.tolist()
    texts = [best[0].text for best in translator.translate(["Das ist gut .", "Ein Hund", ""], beam_size=2)]
    assert len(texts) == 3
    assert texts[2] == ""


def test_a_source_piece_with_the_number_of_target_padding_is_seen(folder):
    """`generate` would mask it: it looks for the target's padding in the source."""
    translator = Translator.load(folder)
    source, decoder = translator.encode(["Das ist gut ."]), translator.decoder
    padding = int(source.pieces[1])
    decoder.tokenizer = SimpleNamespace(pad_token_id=padding, eos_token_id=2, bos_token_id=1, unk_token_id=3)
    decoder.model.generation_config.pad_token_id = padding
    seen = []
    decoder.model.encoder.register_forward_hook(
        lambda _, args, kwargs, __: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    decoder.decode(source, [0], Search(**translator.info.decoding.model_dump()))
    assert [mask.tolist() for mask in seen] == [[[1] * len(source.pieces)]]


def test_scores_are_those_of_the_prepared_text(folder, tmp_path, capsys, monkeypatch):
    assert scoring(read_info(folder)) == {"lowercase": True, "tokenize": "none"}
    (tmp_path / "src").write_text("Das ist gut .\n", "utf-8")
    (tmp_path / "ref").write_text("that &apos;s Good .\n", "utf-8")
    arguments = ["evaluate", str(folder), "--src", str(tmp_path / "src"), "--ref", str(tmp_path / "ref")]
    monkeypatch.setattr("sys.argv", ["syntaxformer", *arguments, "--json"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    report = json.loads(capsys.readouterr().out)
    assert "case:lc" in report["bleu_signature"]
    assert "tok:none" in report["bleu_signature"]


@pytest.mark.parametrize("average", [1, 2])
def test_weights_that_are_no_numbers_become_no_model(tmp_path, average):
    recipe = load_recipe("tiny", [f"output={tmp_path / 'run'}", f"training.average={average}"])
    chosen = [tmp_path / f"checkpoint-{number}" for number in range(1, average + 1)]
    for folder in chosen:
        folder.mkdir()
        save_file({"a": torch.tensor([1.0, float("nan")])}, folder / "model.safetensors")
    diverged = pytest.raises(
        ConfigError, match=r"^training\.learning_rate: expected one that keeps weights finite"
    )
    with running(recipe) as run, diverged:
        finish(run, None, chosen, {}, None)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def diverging(tmp_path):
    """The recipe of a training on digits that diverges."""
    for split, seed in (("train", 1), ("dev", 2)):
        pairs = digit_pairs(41, seed, max_digits=5)
        (tmp_path / f"{split}.en").write_text("".join(f"{pair.source}\n" for pair in pairs))
        (tmp_path / f"{split}.de").write_text("".join(f"{pair.target}\n" for pair in pairs))
    settings = [
        f"output={tmp_path / 'run'}", f"data.dir={tmp_path}", f"data.cache={tmp_path / 'cache'}", "data.dev=dev",
        "infusion.kind=none", "subwords.vocab_size=301", "model.d_model=12", "model.d_ff=17", "model.n_heads=2",
        "model.encoder_layers=1", "model.decoder_layers=1", "training.max_steps=5", "training.eval_every=3",
        "training.max_batch_tokens=67", "training.learning_rate=1.0e+30", "training.tensorboard=false",
        "training.precision=fp32",
    ]  # fmt: skip
    return load_recipe("tiny", settings)


def test_an_older_run_is_kept_if_the_network_is_refused(diverging, tmp_path, monkeypatch):
    open_run(diverging)
    (tmp_path / "run" / "model.safetensors").write_text("old")
    monkeypatch.setattr(training, "build", Mock(side_effect=ConfigError("data.max_pieces: too many")))
    with pytest.raises(ConfigError, match=r"^data\.max_pieces: too many$"):
        train_translator(diverging, overwrite=True)
    assert (tmp_path / "run" / "model.safetensors").read_text() == "old"


def test_a_training_that_diverged_writes_no_model(diverging, tmp_path):
    with pytest.raises(ConfigError, match=r"training\.learning_rate:"):
        train_translator(diverging)
    assert not {"model.safetensors", "manifest.json"} & {path.name for path in (tmp_path / "run").iterdir()}
