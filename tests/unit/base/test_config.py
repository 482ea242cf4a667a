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


def _problems(content) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(Outer, content, "r.yaml")
    return caught.value.problems


def test_all_problems_at_once_with_the_nearest_names():
    assert _problems({"inner": {"widht": 5, "rate": "fast"}, "optional": {"wide": 1}, "nam": "x"}) == [
        "r.yaml: name: expected a value, got nothing.",
        "r.yaml: inner.rate: expected a valid number, unable to parse string as a number, got 'fast'.",
        "r.yaml: inner.widht: unknown key. Nearest: width.",
        "r.yaml: optional.wide: unknown key. Nearest: width.",
        "r.yaml: nam: unknown key. Nearest: name.",
    ]


def test_keys_below_a_list_and_below_names():
    assert _problems({"name": "x", "several": [{"widht": 5}], "named": {"any.name": {"rat": 1}}}) == [
        "r.yaml: several.0.widht: unknown key. Nearest: width.",
        "r.yaml: named.any.name.rat: unknown key. Nearest: rate.",
    ]


def test_a_bound_is_named():
    assert _problems({"name": "x", "inner": {"width": 0}}) == [
        "r.yaml: inner.width: expected greater than or equal to 1, got 0."
    ]


def test_a_section_that_is_no_section():
    (problem,) = _problems({"name": "x", "inner": 5})
    assert problem.startswith("r.yaml: inner: expected ")
    assert problem.endswith(", got 5.")


def test_an_empty_section_has_its_defaults(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("name: x\ninner:\n")
    assert validate(Outer, read_yaml(path), "r.yaml").inner.width == 3


def test_words_that_yaml_reads_as_something_else():
    """`src: no` is Norwegian to a person and False to YAML."""
    (problem,) = _problems({"name": False})
    assert problem == "r.yaml: name: expected a valid string, got False. Put it in quotes."


def test_a_mapping_without_a_space_after_the_colon():
    """`{a:b}`, which YAML reads as a name without a value."""
    (problem,) = _problems({"name": "x", "labels": {"a:b": None}})
    assert problem == "r.yaml: labels.a:b: expected a valid string, got None. Write a space after the colon."


def test_a_key_that_is_no_string():
    assert _problems({"name": "x", 5: 1}) == ["r.yaml: 5: expected keys that are strings, got 5."]


def test_nearest():
    assert nearest("encoder_layer", ["encoder_layers", "decoder_layers"]) == "Nearest: encoder_layers."
    assert nearest("zzz", ["b", "a"]) == "Known: a, b."


def test_overrides_are_yaml_values():
    content = {"name": "x", "inner": {"width": 3}}
    given = ["inner.width=7", "inner.rate=1e-3", "name=a=b", "optional.width=5"]
    assert apply_overrides(content, given) == {
        "name": "a=b",
        "inner": {"width": 7, "rate": "1e-3"},  # YAML 1.1 wants a dot; the field's type makes it a number
        "optional": {"width": 5},
    }
    assert content == {"name": "x", "inner": {"width": 3}}
    assert validate(Outer, apply_overrides(content, given), "r").inner.rate == 0.001


def test_a_key_that_an_override_has_twice():
    with pytest.raises(ConfigError, match=r"^inner: expected each key once, got 'width' twice, at line 1\.$"):
        apply_overrides({}, ["inner={width: 3, width: 5}"])


@pytest.mark.parametrize("given", [["a.b=1", "a.b=1"], ["a.b=1", "a.b=2"], ["a.b=1", "a={}"]])
def test_an_override_that_loses_another(given):
    with pytest.raises(ConfigError, match=r"^a(\.b)?: expected one value, got another of a\.b before it"):
        check_once(given)
    check_once(["a={}", "a.b=1", "a.bc=2"])


def test_null_switches_off():
    assert apply_overrides({"optional": {"width": 3}}, ["optional=null"]) == {"optional": None}


def test_overrides_leave_deeper_sections_of_the_source_alone():
    content = {"a": {"b": {"c": 1}}}
    assert apply_overrides(content, ["a.b.c=2"]) == {"a": {"b": {"c": 2}}}
    assert content == {"a": {"b": {"c": 1}}}


def test_wrong_overrides_are_all_named():
    with pytest.raises(ConfigError) as caught:
        apply_overrides({"name": "x"}, ["name", "=5", "name.sub=1", "inner.width=[1"])
    assert caught.value.problems[:3] == [
        "'name': expected key.sub=value.",
        "'=5': expected key.sub=value.",
        "name.sub: expected name to be a section, got the value 'x'.",
    ]
    assert caught.value.problems[3].startswith("inner.width: expected a YAML value, got ")
    assert "\n" not in caught.value.problems[3]


def test_yaml_files(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("")
    assert read_yaml(path) == {}
    path.write_text("- a\n- b\n")
    with pytest.raises(ConfigError, match=r"r\.yaml: expected keys and values, got list\."):
        read_yaml(path)
    path.write_text("a: [1\nb: 2\n")
    with pytest.raises(ConfigError, match=r"r\.yaml: expected YAML, got while parsing") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)
    path.write_text("[" * 5000)
    with pytest.raises(ConfigError, match=r"r\.yaml: expected YAML, got "):
        read_yaml(path)
    path.write_text("a: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(ConfigError, match=r"r\.yaml: expected YAML, got could not determine a constructor"):
        read_yaml(path)
    with pytest.raises(DataError, match="expected a readable file"):
        read_yaml(tmp_path / "none.yaml")


def test_a_key_that_stands_twice(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("name: x\ninner:\n  width: 3\n  rate: 1.0\n  width: 5\n")
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert str(caught.value) == f"{path}: expected each key once, got 'width' twice, at line 5."


def test_a_list_as_a_key_and_brackets_by_the_thousand(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("? [a, b]\n: 1\n? [a, b]\n: 2\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: expected YAML, got .*unhashable"):
        read_yaml(path)
    path.write_text("a: " + "[" * 1000)
    with pytest.raises(ConfigError, match=r"a\.yaml: expected YAML, got maximum recursion depth exceeded"):
        read_yaml(path)
    with pytest.raises(ConfigError, match="a: expected a YAML value, got maximum recursion depth exceeded"):
        apply_overrides({}, ["a=" + "{" * 1000])


def test_a_number_sign_in_a_value_begins_no_comment():
    """Else a run in another folder would be overwritten."""
    given = ["a=runs/sit #2", "b=#2", "c='x #2'", "d=x#2", "e=[1, 2]", "f=5"]
    assert apply_overrides({}, given) == {
        "a": "runs/sit #2", "b": "#2", "c": "x #2", "d": "x#2", "e": [1, 2], "f": 5,
    }  # fmt: skip
