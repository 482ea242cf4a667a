"""Twenty-four spellings of a source's language, and who annotates it in each verb: never a silent choice."""

from __future__ import annotations

import json
from functools import lru_cache

import pytest
from typer.testing import CliRunner

from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.translation.model_folder import read_info
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.translator import Translator

SPELLINGS = {
    "de": "de", "de-DE": "de", "de_DE": "de", "deu": "de", "deu_DE": "de", "ger": "de", "DE": "de",
    "de-Latn-AT": "de", "deu_Latn": "de", "tok.de": "de", "de.txt": "de", "en": "en", "eng": "en", "eng-GB": "en",
    "en_US": "en", "fr": "fr", "fra": "fr", "fre": "fr", "src": None, "tgt": None, "txt": None, "tok": None,
    "bpe": None, "clean": None,
}  # fmt: skip
"""Ending of the source's files → its language; None where it names none."""

GERMAN = "Der Hund bellt im Garten nicht."
loaded_once = lru_cache(load_annotator)
each_spelling = pytest.mark.parametrize("ending", SPELLINGS)
some_spellings = pytest.mark.parametrize("ending", ["de-Latn-AT", "en_US", "fre", "tok"])
IN_FRENCH = (
    "{key}: expected an annotator for fr, the language of {told_by}, got {got}. Set {key}=FOLDER, which `syntaxformer annotator train` "
    "makes of a treebank, or {key}=conllu:FILE of parses, or {key}=spaces for factors of text (case, subword), or "
    "{key}=stanza:fr (python -m pip install "
    '"syntaxformer[stanza]"; python -c "import stanza; stanza.download(\'fr\')": some 400 to 650 MB), or {key}=spacy:NAME '
    "(python -m spacy download NAME: 12 MB for sm to 600 MB for lg){more}."
)


def _refused(ending, key, got="none", more="", told_by=None):
    """What is said where the annotator of a source cannot be chosen."""
    told_by = told_by or f"data.src={ending}"
    if SPELLINGS[ending] == "fr":
        return IN_FRENCH.format(key=key, told_by=told_by, got=got, more=more)
    if SPELLINGS[ending] is None:
        return (
            f"{key}: expected an annotator's name, as {told_by} names no language to choose one by, got none. "
            f"Set {key}=NAME{more}."
        )
    return f"{key}: expected an annotator for de, the language of {told_by}, got {got}. Set {key}=de{more}."


def _tree(sentence):
    """Tags and relations, which the annotators of two languages do not give alike."""
    get = sentence.get if isinstance(sentence, dict) else lambda name: getattr(sentence, name)
    return list(get("upos")), list(get("deprels"))


def _recipe(*settings):
    return load_recipe("tiny", ["infusion.kind=add", "annotation.annotator=null", *settings])


@pytest.fixture
def translator_folder(new_translator, save_translator, tmp_path):
    """Save a random translator of a language; `kind` "add" reads tags, "none" reads none."""

    def make(ending, name="model", kind="none", **info):
        made = new_translator(kind, **{"src": ending, "tgt": "pl", **info})
        return save_translator(made, tmp_path / name)

    return make


def _note_loads(monkeypatch, load):
    names = []
    load_annotator = "syntaxformer.annotate.registry.load_annotator"
    monkeypatch.setattr(load_annotator, lambda name: names.append(name) or load(name))
    return names


@pytest.fixture
def loaded(monkeypatch):
    """The annotators that a command loads, by their names."""
    return _note_loads(monkeypatch, loaded_once)


@pytest.fixture
def table(monkeypatch, infused):
    """The annotators that are loaded, where a table stands for all of them."""
    return _note_loads(monkeypatch, lambda name: infused.annotator)


@pytest.fixture
def texts(tmp_path):
    for name, line in (("source", "the cat sat ."), ("reference", "cats sit ."), ("outputs", "a dog .")):
        (tmp_path / name).write_text(f"{line}\n")
    return ["--src", str(tmp_path / "source"), "--ref", str(tmp_path / "reference")]


@each_spelling
def test_train(ending):
    if SPELLINGS[ending] in ("de", "en"):
        assert _recipe(f"data.src={ending}", "data.tgt=pl").annotation.annotator == SPELLINGS[ending]
        return
    with pytest.raises(ConfigError) as caught:
        _recipe(f"data.src={ending}", "data.tgt=pl")
    refused = _refused(ending, "annotation.annotator", more=", or data.src_language=CODE")
    assert str(caught.value).endswith(f"tiny.yaml: {refused}")
    unread = load_recipe("tiny", [f"data.src={ending}", "data.tgt=pl"])
    assert unread.annotation.annotator is None, "nobody is needed"


@some_spellings
def test_evaluate(ending, translator_folder, table, texts):
    """The annotator is the model's own; another one that is given must be of the source's language."""
    folder = translator_folder(ending, kind="add", annotator="spacy:xx", annotator_version="3")
    done = CliRunner().invoke(app, ["evaluate", str(folder), *texts])
    assert (done.exit_code, table) == (0, ["spacy:xx"])
    done = CliRunner().invoke(app, ["evaluate", str(folder), *texts, "--annotator", "en"])
    if SPELLINGS[ending] in ("de", "fr"):
        assert str(done.exception) == _refused(ending, "--annotator", "en")
        assert table == ["spacy:xx"]
    else:
        assert (done.exit_code, table) == (0, ["spacy:xx", "en"])


@some_spellings
def test_serve(ending, translator_folder):
    """The explorer's trees, of a model that reads none itself."""
    from fastapi.testclient import TestClient

    from syntaxformer.serve import ServiceConfig, create_app
    from syntaxformer.serve.engines import load_engine

    code, engine = SPELLINGS[ending], load_engine("model", translator_folder(ending))
    config = ServiceConfig(models={"model": "."}, allowed_hosts=["testserver"])
    with TestClient(create_app(config, {"model": engine})) as client:
        found = client.post("/v1/explain", json={"text": GERMAN}).json()
        (about,) = client.get("/v1/models").json()["models"]
    assert (about["source_language"], about["target_language"]) == (code or ending, "pl")
    if code in ("de", "en"):
        assert "trees" not in found["missing"]
        assert _tree(found["sentences"][0]) == _tree(loaded_once(code).annotate([GERMAN])[0])
    else:
        told_by = f"source_language={code or ending}"
        assert found["missing"]["trees"] == _refused(ending, "--annotator", told_by=told_by)
        assert found["relations"]["trees"] == {}


@pytest.mark.parametrize("ending", ["de_DE", "eng", "fr", "src"])
def test_the_target_is_tagged_in_its_own_language(ending, translator_folder, loaded, texts, tmp_path):
    folder = translator_folder("en", tgt=ending)
    done = CliRunner().invoke(app, ["compare", str(folder), str(tmp_path / "outputs"), *texts])
    if SPELLINGS[ending] in ("de", "en"):
        assert loaded == ["en", SPELLINGS[ending]]
    else:
        assert str(done.exception) == _refused(ending, "--target-annotator", told_by=f"data.tgt={ending}")


def test_a_language_that_is_given_goes_before_the_ending():
    recipe = _recipe("data.src=src", "data.tgt=tgt", "data.src_language=deu_AT", "data.tgt_language=eng")
    assert recipe.annotation.annotator == "de"
    assert (recipe.data.src_language, recipe.data.tgt_language) == ("de", "en")
    with pytest.raises(ConfigError) as caught:
        _recipe("data.src=de", "data.tgt=en", "data.src_language=fr", "annotation.annotator=de")
    more = ", or data.src_language=CODE, or annotation.force=true"
    told_by = "data.src_language=fr"
    assert str(caught.value).endswith(_refused("fr", "annotation.annotator", "de", more, told_by))


@pytest.mark.parametrize(
    ("value", "hint"), [("german", " Did you mean 'de'?"), ("klingon", ""), ("src", ""), ("tok.de", "")]
)
def test_a_given_language_is_a_code(value, hint):
    with pytest.raises(ConfigError) as caught:
        load_recipe("tiny", [f"data.tgt_language={value}"])
    assert str(caught.value).endswith(
        f"data.tgt_language: expected the code of a language, such as de, deu or de-DE, got {value!r}.{hint}"
    )


@pytest.mark.parametrize("named", ["en", "en+phrases"])
def test_a_bundled_annotator_of_another_language_is_refused_unless_forced(named):
    settings = ("data.src=deu_DE", "data.tgt=en", f"annotation.annotator={named}")
    with pytest.raises(ConfigError) as caught:
        _recipe(*settings)
    assert str(caught.value).endswith(
        "annotation.annotator: expected an annotator for de, the language of data.src=deu_DE, "
        f"got {named}. Set annotation.annotator={named.replace('en', 'de')}, or data.src_language=CODE, or annotation.force=true."
    )
    assert _recipe(*settings, "annotation.force=true").annotation.annotator == named
    by_spacy = _recipe(*settings[:2], "annotation.annotator=spacy:en_core_web_sm")
    assert by_spacy.annotation.annotator.startswith("spacy")


def test_the_target_of_predicted_tags_is_judged_too():
    settings = ("infusion.kind=none", "data.tgt=deu", "predict_target_pos.annotator=en")
    with pytest.raises(ConfigError) as caught:
        _recipe(*settings)
    assert str(caught.value).endswith(
        "predict_target_pos.annotator: expected an annotator for de, the language of data.tgt=deu, got en. "
        "Set predict_target_pos.annotator=de, or data.tgt_language=CODE, or annotation.force=true."
    )
    assert _recipe(*settings, "annotation.force=true").predict_target_pos.annotator == "en"


@pytest.mark.parametrize("syntax", ["masks={}", "relation_bias={}", "lisa={}"])
def test_trees_need_one(syntax):
    with pytest.raises(ConfigError, match=r"annotation\.annotator: expected an annotator's name, as"):
        _recipe("data.src=src", "infusion.kind=none", syntax)


def test_a_model_trained_with_another_languages_annotator_says_so(translator_folder, table):
    """Folders of earlier versions: they need what they were trained with."""
    stored = {"kind": "add", "annotator": "en", "annotator_version": "3"}
    message = r"expected an annotator for de, the language of data\.src=de-DE, got en\. .* with en: train it again\.$"
    with pytest.warns(UserWarning, match=message):
        Translator.load(translator_folder("de-DE", **stored))
    # A warning would be an error.
    Translator.load(translator_folder("de-DE", "forced", forced=True, **stored))
    assert table == ["en", "en"]


def test_an_earlier_folder_has_no_keys_of_languages(translator_folder):
    folder = translator_folder("deu_DE", tgt="eng-GB")
    content = json.loads((folder / "syntaxformer.json").read_text())
    for key in ("src_language", "tgt_language", "forced"):
        del content[key]
    (folder / "syntaxformer.json").write_text(json.dumps(content))
    assert read_info(folder).languages == ("de", "en")


@pytest.mark.parametrize(
    ("sides", "shown"),
    [("eng deu_DE", None), ("corpus de", None), ("de en", "de → en"), ("de corpus", "de → corpus")],
)
@pytest.mark.parametrize(("verb", "option"), [("evaluate", "--baseline"), ("compare", "SYSTEMS")])
def test_models_of_other_directions_are_not_compared(
    verb, option, sides, shown, translator_folder, loaded, texts
):
    src, tgt = sides.split()
    first, second = translator_folder("en", tgt="de"), translator_folder(src, "second", tgt=tgt)
    folders = [first, "--baseline", second] if verb == "evaluate" else [first, second]
    done = CliRunner().invoke(app, [verb, *map(str, folders), *texts])
    message = f"{option}: expected models of the same direction, got en → de and {shown}."
    assert done.exit_code == 0 if shown is None else str(done.exception) == message
