"""YAML, overrides and the words in which problems are told."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.config import apply_overrides, check_once, nearest, read_yaml, validate
from syntaxformer.base.errors import ConfigError, DataError


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int = Field(default=3, ge=1)
    rate: float = 0.5


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    inner: Inner = Inner()
    optional: Inner | None = None
    several: list[Inner] = []
    named: dict[str, Inner] = {}
    labels: dict[str, str] = {}


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ({"inner": {"widht": 5, "rate": "fast"}, "optional": {"wide": 1}, "nam": "x"},
         ["name: expected a value, got nothing.",
          "inner.rate: expected a valid number, unable to parse string as a number, got 'fast'.",
          "inner.widht: unknown key. Nearest: width.",
          "optional.wide: unknown key. Nearest: width.",
          "nam: unknown key. Nearest: name."]),
        ({"name": "x", "several": [{"widht": 5}], "named": {"any.name": {"rat": 1}}},
         ["several.0.widht: unknown key. Nearest: width.", "named.any.name.rat: unknown key. Nearest: rate."]),
        ({"name": "x", "rate": 1}, ["rate: unknown key. Nearest: inner.rate."]),
        ({"name": "x", "inner": {"width": 0}}, ["inner.width: expected greater than or equal to 1, got 0."]),
        ({"name": False}, ["name: expected a valid string, got False. Put it in quotes."]),  # `no`, which is Norwegian
        ({"name": "x", "labels": {"a:b": None}}, ["labels.a:b: expected a valid string, got None. Write a space after the colon."]),
        ({"name": "x", 5: 1}, ["5: expected keys that are strings, got 5."]),
    ],
)  # fmt: skip
def test_all_problems_at_once_with_the_nearest_names(content, problems):
    with pytest.raises(ConfigError) as caught:
        validate(Outer, content, "r.yaml")
    assert caught.value.problems == [f"r.yaml: {problem}" for problem in problems]


def test_an_empty_section_has_its_defaults():
    assert validate(Outer, {"name": "x", "inner": None, "several": None}, "r.yaml") == Outer(name="x")


def test_nearest():
    assert nearest("encoder_layer", ["encoder_layers", "decoder_layers"]) == "Nearest: encoder_layers."
    assert nearest("zzz", ["b", "a"]) == "Known: a, b."


@pytest.mark.parametrize(
    ("content", "overrides", "result"),
    [
        ({"name": "x", "inner": {"width": 3}}, ["inner.width=7", "inner.rate=1e-3", "name=a=b", "optional.width=5"],
         {"name": "a=b", "inner": {"width": 7, "rate": "1e-3"}, "optional": {"width": 5}}),  # YAML 1.1 wants a dot
        ({"optional": {"width": 3}}, ["optional=null"], {"optional": None}),
        ({"a": {"b": {"c": 1}}}, ["a.b.c=2"], {"a": {"b": {"c": 2}}}),
        # A number sign begins no comment: else a run in another folder would be overwritten.
        ({}, ["a=runs/sit #2", "b=#2", "c='x #2'", "d=x#2", "e=[1, 2]", "f=5"],
         {"a": "runs/sit #2", "b": "#2", "c": "x #2", "d": "x#2", "e": [1, 2], "f": 5}),
    ],
)  # fmt: skip
def test_overrides_are_yaml_values_and_leave_their_source_alone(content, overrides, result):
    before = repr(content)
    assert apply_overrides(content, overrides) == result
    assert repr(content) == before


def test_wrong_overrides_are_all_named():
    overrides = ["name", "=5", "name.sub=1", "a={width: 3, width: 5}", "inner.width=[1", "b=" + "{" * 1000]
    with pytest.raises(ConfigError) as caught:
        apply_overrides({"name": "x"}, overrides)
    starts = [
        "'name': ",
        "'=5': ",
        "name.sub: ",
        "a: expected each key once",
        "inner.width: ",
        "b: expected a YAML",
    ]
    problems = caught.value.problems
    assert [problem.startswith(start) for problem, start in zip(problems, starts, strict=True)] == [True] * 6
    assert "\n" not in "".join(problems)


@pytest.mark.parametrize("overrides", [["a.b=1", "a.b=1"], ["a.b=1", "a.b=2"], ["a.b=1", "a={}"]])
def test_an_override_that_loses_another(overrides):
    with pytest.raises(ConfigError, match=r"^a(\.b)?: .* a\.b before it"):
        check_once(overrides)
    check_once(["a={}", "a.b=1", "a.bc=2"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "keys and values, got list"),
        ("a: [1\nb: 2\n", "YAML, got while parsing"),
        ("a: " + "[" * 1000, "YAML, got maximum recursion depth"),
        ("? [a, b]\n: 1\n? [a, b]\n: 2\n", "YAML, got .*unhashable"),
        ("a: !!python/object/apply:os.system ['true']\n", "YAML, got could not determine a constructor"),
        ("name: x\ninner:\n  width: 3\n  rate: 1.0\n  width: 5\n", "'width' twice, at line 5"),
    ],
)
def test_what_is_no_yaml_of_keys_and_values(tmp_path, text, message):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"r\.yaml: expected .*{message}") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)


def test_a_yaml_file_may_be_empty_but_not_absent(tmp_path):
    (tmp_path / "r.yaml").touch()
    assert read_yaml(tmp_path / "r.yaml") == {}
    with pytest.raises(DataError, match="readable"):
        read_yaml(tmp_path / "none.yaml")
