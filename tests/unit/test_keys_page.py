"""docs/reference/keys.md says of every key what the pydantic models say."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from typer.main import get_command

from syntaxformer.cli.finetune import finetune
from syntaxformer.cli.main import app
from syntaxformer.infusion.config import SHORTHAND
from syntaxformer.nn import INFUSION_KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def keys():
    spec = spec_from_file_location("keys_page", DOCS / "keys.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rows(page: str) -> dict[tuple[str, str], tuple[str, str]]:
    """(part, key) → default and meaning."""
    found, part = {}, ""
    for line in page.splitlines():
        if line.startswith("## "):
            part = line[3:]
        elif line.startswith("| `"):
            key, default, meaning = line.strip("| ").split(" | ", 2)
            found[part, key.strip("`")] = (default, meaning)
    return found


def test_the_page_is_as_the_models_are(keys):
    assert (DOCS / "reference" / "keys.md").read_text("utf-8") == keys.page(), (
        "Write it anew: python docs/keys.py"
    )


def test_the_table_of_families_is_as_the_plug_ins(keys):
    text = keys.INFUSE.read_text("utf-8")
    assert keys.with_families(text) == text, "Write it anew: python docs/keys.py"
    for name in SHORTHAND:
        assert f"`{name}`" in text


def test_help_names_what_can_be_infused():
    (option,) = get_type_hints(finetune, include_extras=True)["infuse"].__metadata__
    listed, _, rest = option.help.partition(", with commas; or none.")
    assert not rest
    assert {*listed.split(", "), "pos_let"} == set(SHORTHAND), "let is short for pos_let"


@pytest.mark.parametrize("page", ["docs/guides/recipes.md"])
def test_pages_name_every_kind_of_infusion(page):
    text = (DOCS.parent / page).read_text("utf-8")
    assert [kind for kind in INFUSION_KINDS if f"`{kind}`" not in text] == []


def test_recipes_name_every_kind_of_infusion():
    texts = [path.read_text("utf-8") for path in DOCS.parent.glob("recipes/*.yaml")]
    lists = {line.partition("# ")[2] for text in texts for line in text.splitlines() if "# none, add" in line}
    assert lists == {", ".join(INFUSION_KINDS)}


def test_every_key_has_a_default_and_a_meaning(keys):
    rows = _rows(keys.page())
    assert len(rows) > 150
    assert [key for key, cells in rows.items() if not all(cells)] == []


def test_no_key_is_left_out(keys):
    """Every name that a JSON schema of the models has, made by pydantic itself, stands in some key."""
    shown = {step.removesuffix("[]") for _, key in _rows(keys.page()) for step in key.split(".")}
    for _, _, model in keys.PARTS:
        schema = model.model_json_schema()
        for section in (schema, *schema["$defs"].values()):
            assert set(section.get("properties", {})) <= shown


@pytest.mark.parametrize(
    ("part", "key", "default", "meaning"),
    [
        ("Recipe", "output", "*required*", "folder of the finished model, its checkpoints and logs"),
        ("Recipe", "model.norm", "`pre`", "layer normalisation before or after each sublayer (`pre`, `post`)"),
        ("Recipe", "training.adam_epsilon", "`1e-9`", "added to the root of squared gradients"),
        ("Recipe", "pretrained_embeddings.target.freeze", "`false`", "do not train the table"),
        ("Fine-tuning", "training.learning_rates", "`[5e-5, 4e-5, 3e-5, 2e-5]`", "learning rates that auto tries (Sundararaman et al. 2019)"),
        ("Infusion of an encoder", "embedding.min_count", "`2`", "values of open factors that are seen less often count as unknown"),
        ("Infusion of an encoder", "masks.layers", "`null`", "layers, from 0; null: all"),
        ("Experiment", "report.paper[].value", "*required*", "the number as the paper prints it"),
        ("Experiment", "search.space.KEY.log", "`false`", "search on a logarithmic scale"),
        ("Experiment", "report.notes", "`[]`", "paragraphs for the reader"),
    ],
)  # fmt: skip
def test_keys_of_every_kind(keys, part, key, default, meaning):
    assert _rows(keys.page())[part, key] == (default, meaning)


def test_where_to_switch_to_a_paper_is_a_key_an_option_or_a_file(keys):
    """The last cell of every line of the tables in docs/reference/mathematics.md."""
    rows = _rows(keys.page())
    known = {
        key: choices_of(meaning)
        for (part, key), (_, meaning) in rows.items()
        if part != "Infusion of an encoder"
    }
    for (part, key), (_, meaning) in rows.items():
        if (
            part == "Infusion of an encoder"
        ):  # its parts are sections of recipes and, all of it, of fine-tuning
            known |= {f"infusion.{key}": choices_of(meaning), key: choices_of(meaning)}
            known["infusion." + key.removeprefix("embedding.")] = choices_of(meaning)
    verbs: Any = get_command(app).commands
    options = {name for verb in verbs.values() for option in verb.params for name in option.opts}
    text = (DOCS / "reference" / "mathematics.md").read_text("utf-8").partition("## What the papers say")[2]
    lines = [
        re.split(r"(?<!\\) \| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| ")
    ]
    lines = [cells for cells in lines if cells[-1] != "where to switch"]
    assert len(lines) > 80
    assert [
        cells for cells in lines if len(cells) < 3 or not re.fullmatch(r"(`[^`]+`(, )?)+|–", cells[-1])
    ] == []
    for switch in re.findall("`([^`]+)`", " ".join(cells[-1] for cells in lines)):
        first, _, value = switch.partition(" " if switch.startswith(("--", "syntaxformer ")) else "=")
        if "/" in first:
            assert (DOCS.parent / first).is_file(), switch
        elif first == "syntaxformer":
            assert value in verbs, switch
        elif first.startswith("--"):
            assert first in options, switch
        else:
            assert first in known, switch
            assert not value or not known[first] or value in known[first] or first == "preset", switch


def choices_of(meaning: str) -> list[str]:
    """The values that a key may have, with which its line on the page of keys ends."""
    listed = re.search(r"\(((?:`[^`]+`(?:, )?)+)\)$", meaning)
    return re.findall("`([^`]+)`", listed[1]) if listed else []


def test_characters_of_markdown_stand_as_they_are(keys):
    assert keys._cell("a | b & c <d>") == "a \\| b &amp; c &lt;d&gt;"
