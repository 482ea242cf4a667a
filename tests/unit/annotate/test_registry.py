import subprocess
import sys
from pathlib import Path

import pytest

from syntaxformer.annotate import annotator_identity, load_annotator, registry
from syntaxformer.annotate.backends import BACKENDS
from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import BackendMissingError, ConfigError
from syntaxformer.base.languages import BUNDLED, CONTROLS, SPACES

ALL = [*BUNDLED, SPACES, "FOLDER", *(f"{scheme}:{backend.argument}" for scheme, backend in BACKENDS.items())]
ALL += [f"{kind}(ANNOTATOR)" for kind in CONTROLS]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("fr", "got 'fr'. Did you mean 'stanza:fr'?"),
        ("german", "got 'german'. Did you mean 'de'?"),
        ("French", "got 'French'. Did you mean 'stanza:fr'?"),
        ("deu_DE", "got 'deu_DE'. Did you mean 'de'?"),
        ("klingon", "got 'klingon'."),
        ("spaci:x", "got 'spaci:x'. Did you mean 'spacy'?"),
        ("conllu", "got 'conllu'. Give PATH after the colon."),
        ("stanza:", "got 'stanza:'. Give LANG after the colon."),
        ("korenlp:http://a:b@c", "got 'korenlp:…'. Did you mean 'corenlp'?"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(name, end):
    with pytest.raises(ConfigError) as caught:
        load_annotator(name)
    message = str(caught.value).partition(" If it is the name of an object")[0]
    assert message == f"annotator: expected {', '.join(ALL[:-1])} or {ALL[-1]}, {end}"


@pytest.mark.parametrize("page", ["docs/guides/annotators.md"])
def test_the_pages_name_every_annotator(page):
    text = (Path(__file__).parents[3] / page).read_text("utf-8")
    assert [
        name for name in ALL if f"`{name.replace('_OR_PATH', '').removesuffix('ANNOTATOR)')}" not in text
    ] == []


@pytest.mark.parametrize("scheme", MODEL_SIZES)
def test_the_page_says_how_large_models_are(scheme):
    text = (Path(__file__).parents[3] / "docs/guides/annotators.md").read_text("utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{scheme}:")]
    assert f": {MODEL_SIZES[scheme]} |" in row


def test_a_bundled_pipeline_that_is_not_there(monkeypatch):
    monkeypatch.setattr(registry, "BUNDLED", ("xx",))
    with pytest.raises(BackendMissingError, match=r"the bundled pipeline 'xx' .* Run: make annotators"):
        load_annotator("xx")


@pytest.mark.parametrize("name", ["en", "en+phrases"])
def test_identity_is_that_of_the_loaded_annotator(name):
    loaded = load_annotator(name)
    assert annotator_identity(name) == (loaded.name, loaded.version)


def test_identity_of_a_bundled_pipeline_needs_no_spacy():
    code = "import sys; from syntaxformer.annotate import annotator_identity as identity; "
    code += "print(identity('de')[0], 'spacy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["de", "False", "False"]
