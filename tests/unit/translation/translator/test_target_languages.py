"""One model for several target languages: the piece before the source, refusals, folder, export, service."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from folder_deeds import keys
from syntaxformer.annotate.annotator import SpacedWords
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import write_manifest
from syntaxformer.cli.main import app
from syntaxformer.serve.engines import TranslatorEngine
from syntaxformer.serve.schemas import ScoreSettings, TranslateSettings
from syntaxformer.study.text_view import Parser, translator_text
from syntaxformer.study.word_states import translator_words
from syntaxformer.syntax import NO_WORD
from syntaxformer.translation.export_ctranslate2 import export_translator
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.translator import Translator
from syntaxformer.trees import Sentence

LINES = ["the cat sat on the mat .", "cats sit .", "", "a dog and the cat run"]


def _texts(translator, **settings) -> list[str]:
    return [best[0].text for best in translator.translate(LINES, **settings)]


@pytest.fixture(scope="module")
def several(new_translator) -> Translator:
    return new_translator(symbols=["<2de>", "<2fr>"], directions={"de": "en", "fr": "en"})


def test_the_piece_stands_before_each_source(several):
    french, german = several.to("fr"), several.to("de")
    pieces = french.encode(LINES)
    firsts = several.encoder.piece_names(pieces.pieces[pieces.splits[:-1]])
    assert firsts == ["<2fr>"] * 4
    assert french.info.languages == ("en", "fr")
    assert pieces.pieces[0] not in german.encode(["<2fr> a"]).pieces, "text that spells it is text"
    texts = _texts(french), _texts(german)
    assert texts[0] != texts[1]
    assert (texts[0][2], len(texts[0])) == ("", 4)
    assert several.info.languages == ("en", "de"), "the model itself stays"
    with torch.no_grad():
        assert _texts(french, beam_size=1) == _texts(several.to("fr"), beam_size=1)


def test_the_source_language_comes_back(new_translator):
    """A language of an own source, and then one of the first source, whose language was given."""
    several = new_translator(
        symbols=["<2de>", "<2fr>"], directions={"de": "en", "fr": "it"}, src="en", src_language="nl"
    )
    assert several.to("fr").info.src_language is None
    assert several.to("fr").to("de").info.src_language == "nl"


def test_what_is_refused(several, plain):
    for language, name in ((None, "none"), ("it", "it"), ("<2de>", "<2de>")):
        with pytest.raises(ConfigError, match=rf"^to: expected a language that the model translates into, de, fr, got {name}\. Choose it with --to, in Python with Translator\.to\.$"):  # fmt: skip
            several.to(language)
    with pytest.raises(ConfigError, match=r"^to: expected .* de, fr, got none\."):
        _texts(several)
    with pytest.raises(ConfigError, match=r"^to: expected .* translates into, de, got fr\."):
        plain.to("fr")
    assert plain.to("de") is plain.to(None) is plain


def test_a_given_language_of_the_source_stays_that_of_its_files(several):
    ends = {"src": "txt", "src_language": "en", "directions": {"de": "txt", "fr": "pl"}}
    info = several.info.model_copy(update=ends)
    translator = Translator(several.model, several.encoder, info)
    assert translator.to("de").info.languages == ("en", "de")
    assert translator.to("fr").info.languages == ("pl", "fr")


def test_folders_exports_and_ensembles(several, save_translator, tmp_path):
    folder = save_translator(several, tmp_path / "model")
    expected = {language: _texts(several.to(language)) for language in ("de", "fr")}
    loaded = Translator.load(folder)
    export = Translator.load(export_translator(folder, tmp_path / "export"))
    both = Translator.load_ensemble([folder, folder])
    for language, texts in expected.items():
        assert _texts(loaded.to(language)) == texts
        assert _texts(both.to(language)) == texts
        assert _texts(export.to(language))[3] == texts[3]
    with pytest.raises(ConfigError, match=r"de, fr, got none"):
        _texts(export)
    keys("syntaxformer.json", directions={"it": "en"})(folder)
    write_manifest(folder)
    with pytest.raises(CheckpointError, match=r"directions: expected languages with pieces, got it\. It was"):
        Translator.load(folder)


def test_the_service_takes_the_language_of_a_request(several):
    engine = TranslatorEngine("several", several)
    for language in ("de", "fr"):
        shown = TranslateSettings(to=language, show=["tags", "alignment"])
        translations = engine.translate(shown, LINES[:2])
        assert [one.text for one in translations] == _texts(several.to(language))[:2]
        assert translations[0].source.pieces[0] == f"<2{language}>"
    with pytest.raises(ConfigError, match=r"^to: expected .* de, fr, got none\."):
        engine.translate(TranslateSettings(), LINES[:1])
    assert engine.try_out(1) > 0, "the warm-up chooses one"
    (french,), (german,) = (
        engine.score(ScoreSettings(to=language), LINES[:1], ["a cat"]) for language in ("fr", "de")
    )
    (expected,) = several.to("fr").score(LINES[:1], [["a cat"]])
    assert french.log_prob == pytest.approx(expected[0].log_prob)
    assert french.log_prob != pytest.approx(german.log_prob)


def test_what_looks_into_a_model_reads_its_target_language(several):
    sentence = Sentence.from_words(["the", "cat", "sat"])
    states, owners = translator_words(several.to("fr")).encode([sentence])
    source = several.to("fr").encode([sentence.text])
    assert owners[0][0] == NO_WORD, "the piece of the language"
    assert {*owners[0].tolist()} == {NO_WORD, 0, 1, 2}
    assert states[0].shape[1] == len(source.pieces)
    with torch.no_grad():
        encoder, batch = several.model.get_encoder(), torch.from_numpy(source.pieces.astype(int))[None]
        torch.testing.assert_close(states[-1], encoder(batch, output_hidden_states=True).hidden_states[-1])
    parser = Parser(SpacedWords())
    view = translator_text(several.to("fr"), sentence.text, parser)
    assert view.pieces == several.encoder.piece_names(source.pieces)
    with pytest.raises(ConfigError, match=r"^to: expected .* de, fr, got none\."):
        translator_text(several, sentence.text, parser)
    with pytest.raises(ConfigError, match=r"^to: expected .* de, fr, got none\."):
        translator_words(several).encode([sentence])


@pytest.mark.parametrize("command", [
    ("attend", "{model}", "the cat sat", "-o", "{folder}/a.png"),
    ("score", "{model}", "--src", "{folder}/a.en", "--tgt", "{folder}/a.fr"),
    ("compare", "{model}", "{model}", "--src", "{folder}/a.en", "--tgt", "{folder}/a.fr", "--tgt", "{folder}/b.fr"),
])  # fmt: skip
def test_commands_take_the_target_language(command, several, save_translator, tmp_path):
    model = save_translator(several, tmp_path / "model")
    for name, text in {"a.en": "the cat sat", "a.fr": "a cat", "b.fr": "a dog"}.items():
        (tmp_path / name).write_text(text + "\n")
    words = [word.format(model=model, folder=tmp_path) for word in command]
    assert CliRunner().invoke(app, [*words, "--to", "fr"]).exit_code == 0
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, ConfigError)
    assert "to: expected a language that the model translates into, de, fr, got none." in str(refused)


def test_a_run_that_starts_from_it_has_its_tags_alone(several, save_translator, tmp_path):
    folder = save_translator(several, tmp_path / "model")
    shape = ("d_model=12", "d_ff=17", "n_heads=2", "encoder_layers=1", "decoder_layers=2")
    own = load_recipe("tiny", ["data.dir=a", "data.normalize=none", *(f"model.{size}" for size in shape)])
    (folder / "recipe.yaml").write_text(own.to_yaml())
    write_manifest(folder)
    for ending in ("en", "de", "fr"):
        (tmp_path / f"train.{ending}").write_text("".join(f"{line} {ending}\n" for line in LINES if line))

    def prepared(train):
        return prepare(load_recipe("tiny", [
            f"data.dir={tmp_path}", "data.dev=train", f"data.cache={tmp_path}", f"output={tmp_path / 'run'}",
            "subwords={}", f"model={{init_from: {folder}}}", "data.normalize=none", f"data.train={train}",
        ]))  # fmt: skip

    data = prepared("[{name: train, tgt: fr, tag: <2fr>}, {name: train, tag: <2de>}]")
    assert data.info.directions == {"fr": "en", "de": "en"}
    assert data.train.src.pieces[0] == several.encoder.tokenizer.convert_tokens_to_ids("<2fr>")
    with pytest.raises(ConfigError, match=r"^data\.train: expected tags that model\.init_from was trained with, got <bt>\. Leave"):  # fmt: skip
        prepared("[{name: train, tag: <bt><2de>}]")
