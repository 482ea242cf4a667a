"""Reading configuration: YAML, overrides from the command line, and errors that name every problem at once.

The sections themselves are pydantic models beside the code they configure; this file knows none of them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from syntaxformer.base.errors import ConfigError, one_line
from syntaxformer.base.files import read_lines

ConfigT = TypeVar("ConfigT", bound=BaseModel)

MAX_SEED = 2**32 - 1  # the largest that NumPy takes


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a mapping from a YAML file.

    Raises:
        DataError: The file cannot be read.
        ConfigError: It is not YAML, it is not a mapping, or a key occurs twice.
    """
    text = "\n".join(read_lines(path))
    try:
        content = _read_yaml(text, str(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: no such date
        raise ConfigError(f"{path}: expected YAML, got {one_line(error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected keys and values, got {type(content).__name__}.")
    return content


_MOST_NODES = 100_000
"""Values in a file, those that aliases (`*name`) repeat among them: nine lines of them can stand for 10^9."""


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, which also checks that keys are distinct: YAML would silently take the last one."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        node: Any = super().compose_node(parent, index)
        if not is_alias:
            values = () if isinstance(node, yaml.ScalarNode) else node.value
            values = chain.from_iterable(values) if isinstance(node, yaml.MappingNode) else values
            node.size = 1 + sum(value.size for value in values)
        if not 1 <= getattr(node, "size", 0) <= _MOST_NODES:  # 0: an alias within what it names
            raise ConfigError(f"{self.name}: expected at most {_MOST_NODES:,} values, got more.")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # a list as a key: the base class refuses it
            if key.value in seen:
                repetition = f"{key.value[:40]!r} twice, at line {key.start_mark.line + 1}"
                raise ConfigError(f"{self.name}: expected each key once, got {repetition}.")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_yaml(text: str, name: str) -> Any:
    loader = _UniqueKeys(text)
    loader.name = name  # for messages
    return loader.get_single_data()


_COMMENT = re.compile(r"(^|\s)#")


def apply_overrides(content: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return `content` with `key.sub=value` settings applied; values are read as YAML, without comments.

    Raises:
        ConfigError: A setting has no "=", or treats a key that holds a value as a section.
    """
    result = deepcopy(dict(content))
    problems = []
    for setting in overrides:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            problems.append(f"{setting!r}: expected key.sub=value.")
            continue
        *sections, last = key.split(".")
        mapping = result
        for section in sections:
            inner = mapping.setdefault(section, {})
            mapping[section] = inner = {} if inner is None else inner
            if not isinstance(inner, dict):
                problems.append(f"{key}: expected {section} to be a section, got the value {inner!r}.")
                break
            mapping = inner
        else:
            try:
                is_text = _COMMENT.search(value) and value[0] not in "\"'[{"
                mapping[last] = value if is_text else _read_yaml(value, key)
            except (yaml.YAMLError, RecursionError, ValueError) as error:
                problems.append(f"{key}: expected a YAML value, got {one_line(error)}")
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)
    return result


def check_once(overrides: Sequence[str]) -> None:
    """Check that no setting key=value replaces one before it, of the same key or of one in its section.

    Raises:
        ConfigError: Lists all that do.
    """
    keys = [setting.partition("=")[0] for setting in overrides]
    problems = []
    for number, key in enumerate(keys):
        lost = [earlier for earlier in keys[:number] if f"{earlier}.".startswith(f"{key}.")]
        if key and lost:
            problems.append(f"{key}: expected one value, got another of {lost[0]} before it. Leave one out.")
    if problems:
        raise ConfigError(problems)


def flat_settings(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten all sections into `section.key` → value."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def sections_in_words(sections: Mapping[str, BaseModel]) -> str:
    """Names of sections with the settings that are not defaults: "masks (mode additive, gate head), lisa"."""
    parts = []
    for name, section in sections.items():
        settings = section.model_dump(mode="json", exclude_defaults=True).items()
        words = (
            f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in settings
        )
        parts.append(f"{name} ({', '.join(words)})" if settings else name)
    return ", ".join(parts)


def corpus_path(path: Any) -> Any:
    """The path with `../shared/data`, where recipes and experiments look, replaced by `SYNTAXFORMER_DATA`.

    Other paths, and all paths where the variable is not set, stay as they are.
    """
    data = os.environ.get("SYNTAXFORMER_DATA")
    usual = Path("../shared/data")
    if data and isinstance(path, str | Path) and Path(path).is_relative_to(usual):
        return type(path)(Path(data) / Path(path).relative_to(usual))
    return path


def validate(model: type[ConfigT], content: Mapping[str, Any], source: str) -> ConfigT:
    """Check a mapping against a pydantic model. A section without content gets its defaults.

    A validator of the model may report several problems in one `ValueError`, one per line.

    Raises:
        ConfigError: One line for each problem: key path, what was expected, what was found, nearest key.
    """
    in_full = getattr(model, "in_full", dict)  # shorthands replaced by what they stand for
    content = _with_empty_sections(model, in_full(content))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = config_error(model, error, source).problems
        later = _later_problems(model, content, source, error)
        raise ConfigError(list(dict.fromkeys([*problems, *later]))) from error


def _later_problems(
    model: type[BaseModel], content: Mapping[str, Any], source: str, error: ValidationError
) -> list[str]:
    """Problems that unknown keys hid: a section is checked as a whole only if all its keys are known."""
    unknown = [detail["loc"] for detail in error.errors() if detail["type"] == "extra_forbidden"]
    if not unknown:
        return []
    known = deepcopy(dict(content))
    for *sections, key in unknown:
        mapping: Any = known
        for section in sections:
            mapping = mapping[section]
        del mapping[key]
    try:
        validate(model, known, source)
    except ConfigError as later:
        return later.problems
    return []


def config_error(model: type[BaseModel], error: ValidationError, source: str) -> ConfigError:
    """Put what pydantic found into this project's words, one line for each problem."""
    problems = [line for detail in error.errors() for line in _problem(model, detail).splitlines()]
    return ConfigError([f"{source}: {problem}" for problem in problems])


def nearest(name: str, choices: Sequence[str]) -> str:
    """A hint: the choice most like a name, or all choices if none is close."""
    close = difflib.get_close_matches(name, choices, 1, cutoff=0.5)
    return f"Nearest: {close[0]}." if close else f"Known: {', '.join(sorted(choices))}."


def _problem(model: type[BaseModel], detail: Any) -> str:
    path = [str(name) for name in detail["loc"]]
    key = ".".join(path)
    if detail["type"] == "extra_forbidden":
        other = [name for name in model.model_fields if path[-1] in _keys_at(model, [name])]
        hint = f"Nearest: {other[0]}.{path[-1]}." if other else nearest(path[-1], _keys_at(model, path[:-1]))
        return f"{key}: unknown key. {hint}"
    if detail["type"] == "missing":
        return f"{key}: expected a value, got nothing."
    if detail["type"] == "invalid_key":
        return f"{key}: expected keys that are strings, got {detail['input']!r}."
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "value_error":
        return f"{key}: {message}" if key else message
    remedy = " Put it in quotes." if detail["type"] == "string_type" else ""
    if detail["input"] is None and ":" in path[-1]:
        remedy = " Write a space after the colon."
    return f"{key}: expected {message.removeprefix('Input should be ')}, got {detail['input']!r}.{remedy}"


def _with_empty_sections(model: type[BaseModel], content: Mapping[str, Any]) -> dict[str, Any]:
    """Make empty sections and lists of None: YAML reads `section:` with nothing below it as None."""
    filled = dict(content)
    for name, field in model.model_fields.items():
        kind, value = field.annotation, filled.get(name, ...)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if value is None or isinstance(value, dict):
                filled[name] = _with_empty_sections(kind, value or {})
        elif value is None and get_origin(kind) is list:
            filled[name] = []
    return filled


def _keys_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for key in path:
        if key not in model.model_fields:  # a place in a list, a key of a mapping
            continue
        annotation = model.model_fields[key].annotation
        kinds = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        sections = [kind for kind in kinds if issubclass(kind, BaseModel)]
        if not sections:
            return []
        model = sections[0]
    return [*model.model_fields, *getattr(model, "shorthands", ())]
