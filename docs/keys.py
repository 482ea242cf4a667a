"""Writes docs/reference/keys.md: all keys of recipes, fine-tuning, infusions and experiments, from models.

    python docs/keys.py

Defaults and meanings stand in the pydantic models and nowhere else; a test holds the page to them. The table
of families in docs/guides/infuse.md is written from that of the plug-in, likewise.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.families import FAMILIES
from syntaxformer.study.experiments.spec import Spec
from syntaxformer.translation.recipe import Recipe

PAGE = Path(__file__).with_name("reference") / "keys.md"
INFUSE = Path(__file__).with_name("guides") / "infuse.md"

Model = type[BaseModel]

HEAD = """\
<!-- Written by docs/keys.py from the models in src. Do not edit it here. -->

# All keys

What can be set, with its default and its meaning. `null` is off, or what the meaning says of it; what has no default is *required*.
In YAML a section is a mapping, on the command line its keys are `section.key=value`. Any other key is an error, which names the nearest one.
"""  # noqa: E501

PARTS: tuple[tuple[str, str, Model], ...] = (
    (
        "Recipe",
        "Of `syntaxformer train RECIPE key.sub=value …`; see [recipes](../guides/recipes.md). "
        "A section that is `null` is off; any key of it switches it on, or `{}` where none is required.",
        Recipe,
    ),
    (
        "Fine-tuning",
        "Of `syntaxformer finetune … --set key.sub=value`; see [fine-tuning](../guides/finetune.md). "
        "The commonest have options of their own: `syntaxformer finetune --help`.",
        FinetuneConfig,
    ),
    (
        "Infusion of an encoder",
        "See [syntax in pretrained encoders](../guides/infuse.md). In Python "
        '`InfusionConfig(masks={"max_distance": 5})`, with `finetune` `--infuse masks --set '
        "infusion.masks.max_distance=5`; in a recipe `infusion.masks.max_distance=5` or, shorter, "
        "`masks.max_distance=5`, and `infusion.kind=add` for `infusion.embedding.kind=add`.",
        InfusionConfig,
    ),
    (
        "Experiment",
        "Of the file that `syntaxformer experiment run` and `report` read; see "
        "[experiments](../guides/experiments.md). `KEY` is each key of a mapping, `[]` each entry of a list.",
        Spec,
    ),
)
"""Heading, introduction and model of each part of the page."""

ELSEWHERE = {
    InfusionConfig: "the keys of [an encoder's infusion](#infusion-of-an-encoder), as `infusion.…`; its seed "
    "is the run's unless a fine-tuning gives one"
}
"""Models with a part of their own, and what stands where they are a section."""


def main() -> None:
    """Write the page, and the table of the other."""
    PAGE.write_text(page(), "utf-8")
    INFUSE.write_text(with_families(INFUSE.read_text("utf-8")), "utf-8")


def with_families(text: str) -> str:
    """A page whose table of families is as the plug-in's."""
    before, mark, rest = text.partition("<!-- families, by docs/keys.py -->\n")
    after = rest[rest.index("<!-- end -->") :]
    rows = ["| family | `model_type` | remarks |", "|---|---|---|"]
    for kind, family in FAMILIES.items():
        remark = f"embeddings of factors only: {family.reason}" if family.reason else family.note
        rows.append(f"| {family.title} | `{kind}` | {_cell(remark)} |")
    return before + mark + "".join(f"{row}\n" for row in rows).replace("|  |", "| |") + after


def page() -> str:
    """The whole page as Markdown."""
    parts = [f"## {title}\n\n{words}\n\n{_tables(model)}" for title, words, model in PARTS]
    return "\n".join([HEAD, *parts])


def _tables(model: Model, prefix: str = "") -> str:
    """One table of the model's own keys, then one for each of its sections, and for theirs."""
    rows, sections = [], []
    for name, field in model.model_fields.items():
        inner, key = _model_in(field.annotation), f"{prefix}{name}"
        if inner is None or field.description:
            rows.append(f"| `{key}` | {_default(field)} | {_meaning(field)} |")
        if inner in ELSEWHERE:
            rows.append(f"| `{key}` | – | {ELSEWHERE[inner]} |")
        elif inner is not None:
            below = f"{key}{_step(field.annotation)}"
            sections.append(f"### {below}\n\n{_summary(inner)}\n\n{_tables(inner, f'{below}.')}")
    table = "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])
    return "\n".join([*([table + "\n"] if rows else []), *sections])


def _model_in(annotation: Any) -> Model | None:
    """The section that a key holds: itself, one that may be off, or one of a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)


def _step(annotation: Any) -> str:
    """What stands between a key and those of its section: nothing, or the place in a list or a mapping."""
    return {list: "[]", dict: ".KEY"}.get(get_origin(annotation), "")


def _summary(model: Model) -> str:
    """The first paragraph of a section's docstring."""
    paragraph = (model.__doc__ or "").strip().partition("\n\n")[0]
    return _cell(" ".join(paragraph.split()))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.get_default(call_default_factory=True)
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """A value as one would write it into a recipe."""
    if isinstance(value, str | Path):
        return str(value) or '""'
    if isinstance(value, float):
        return repr(value).replace("e-0", "e-")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return json.dumps(value)


def _meaning(field: FieldInfo) -> str:
    words, choices = _cell(field.description or ""), _choices(field.annotation)
    return f"{words} ({', '.join(f'`{choice}`' for choice in choices)})" if len(choices) > 1 else words


def _choices(annotation: Any) -> tuple[str, ...]:
    """Names that a key has as its value, or as those of its list."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    inner = [one for one in get_args(annotation) if one not in (NoneType, Ellipsis)]
    return _choices(inner[0]) if len(inner) == 1 else ()


def _cell(words: str) -> str:
    """Text that stands in a table as it is."""
    return html.escape(words, quote=False).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    main()
