"""The rules of the design that a program can check: import directions, sizes, names, public surfaces."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "syntaxformer"
FILES = sorted(PACKAGE.rglob("*.py"))

ALLOWED = {
    "base": set(),
    "trees": {"base"},
    "annotate": {"base", "trees"},
    "syntax": {"base", "trees"},
    "nn": {"base"},
    "infusion": {"base", "trees", "syntax", "nn"},
    "runs": {"base", "nn", "infusion"},
    "translation": {"base", "trees", "annotate", "syntax", "nn", "infusion", "runs"},
    "encoders": {"base", "trees", "annotate", "syntax", "nn", "infusion", "runs"},
}
ALLOWED["study"] = {*ALLOWED["translation"], "translation", "encoders"}
ALLOWED["demo"] = ALLOWED["serve"] = {*ALLOWED["study"], "study"}
ALLOWED["cli"] = {*ALLOWED["demo"], "demo", "serve"}
"""Room → rooms that it may import (DESIGN §1). The two products never import each other."""

ROOT = {
    "__main__": {"cli"},
    "auto_classes": set(),
    "pipelines": {"base", "annotate", "runs", "translation", "encoders"},
}
"""Single files at the door: `python -m syntaxformer`, what `transformers` is told of us, and both products behind one function."""


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(path)))


def _imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Modules that import statements among some nodes name."""
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            modules.add(node.module or "")
            if node.module == "syntaxformer":
                modules |= {f"syntaxformer.{alias.name}" for alias in node.names}
    return modules


def _rooms_imported(path: Path) -> set[str]:
    parts = (module.split(".") for module in _imports(_nodes(path)))
    return {part[1] for part in parts if part[0] == "syntaxformer" and len(part) > 1} - {"__version__"}


def _rooms() -> list[str]:
    return sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> None:
    for path in FILES:
        _nodes(path)


def test_every_room_has_its_rule():
    assert set(_rooms()) <= set(ALLOWED)


def test_imports_point_one_way():
    for path in FILES:
        room = _room(path)
        if room != "__init__":
            assert _rooms_imported(path) - {room} <= {**ALLOWED, **ROOT}[room], _name(path)


def test_rooms_depend_on_each_other_in_one_direction():
    order: list[str] = []
    waiting = {room: set(rooms) for room, rooms in ALLOWED.items()}
    while waiting:
        free = sorted(room for room, rooms in waiting.items() if not rooms - set(order))
        assert free, f"a cycle among {sorted(waiting)}"
        order += free
        waiting = {room: rooms for room, rooms in waiting.items() if room not in free}
    assert order[-1] == "cli"


def test_rooms_below_the_network_know_no_torch():
    for path in FILES:
        if _room(path) in ("trees", "annotate", "syntax"):
            packages = {module.split(".")[0] for module in _imports(_nodes(path))}
            assert not packages & {"torch", "transformers"}, _name(path)


def test_blocks_of_the_network_know_no_checkpoint():
    for path in FILES:
        if _room(path) == "nn":
            assert "transformers" not in {module.split(".")[0] for module in _imports(_nodes(path))}, _name(
                path
            )


def test_the_command_line_imports_its_work_when_it_runs():
    light = {"typer", "syntaxformer"}
    for path in (PACKAGE / "cli").glob("*.py"):
        modules = _imports(_tree(path).body)
        outside = {module.split(".")[0] for module in modules}
        assert outside - light <= set(sys.stdlib_module_names), _name(path)
        rooms = {module.split(".")[1] for module in modules if module.startswith("syntaxformer.")}
        assert rooms <= {"cli", "base", "__version__"}, _name(path)


TRAINS = ("transformers.trainer", "syntaxformer.translation.recipe", "syntaxformer.translation.training",
          "syntaxformer.encoders.finetune_config", "syntaxformer.encoders.finetuning")  # fmt: skip


@pytest.mark.slow
def test_what_translates_or_predicts_imports_nothing_that_trains():
    script = f"""
import sys
for module in ("translation.translator", "encoders.classifier"):
    __import__(f"syntaxformer.{{module}}")
    print([(module, name) for name in {TRAINS} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"


PROJECT = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
NEEDED = {re.split(r"[^\w-]", name)[0].replace("-", "_") for name in PROJECT["dependencies"]}
BROUGHT = {"filelock", "packaging", "rich", "srsly", "thinc", "tokenizers", "yaml"}
"""Modules of packages that needed ones always bring, or named otherwise than their package."""
OF_EXTRAS = ("serve/", "nn/kernels/on_cuda.py")


def test_what_is_not_always_installed_is_imported_where_it_is_used():
    assert len(NEEDED) <= 20
    for path in FILES:
        if not _name(path).startswith(OF_EXTRAS):
            modules = {module.split(".")[0] for module in _imports(_tree(path).body)}
            assert modules - {*sys.stdlib_module_names} <= NEEDED | BROUGHT | {"syntaxformer"}, _name(path)


@pytest.mark.parametrize("module", ["encoders/finetuning.py", "translation/training.py"])
def test_a_run_names_versions_of_what_is_always_installed(module: str):
    text = (PACKAGE / module).read_text("utf-8")
    packages = ast.literal_eval(text.split("PACKAGES = ", 1)[1].split("\n", 1)[0])
    assert {*packages} <= NEEDED | BROUGHT | {"syntaxformer"}


def test_files_are_named_for_what_is_in_them():
    assert not [
        _name(path)
        for path in FILES
        if path.stem.strip("_") in ("util", "utils", "helper", "helpers", "misc", "common")
    ]


def test_nothing_is_unpickled_and_nothing_evaluated():
    forbidden = {
        ("pickle", "load"), ("pickle", "loads"), ("torch", "load"), ("torch", "save"), ("joblib", "load"),
        ("dill", "load"), ("yaml", "unsafe_load"), ("os", "system"),
    }  # fmt: skip
    for path in FILES:
        assert not _imports(_nodes(path)) & {"pickle", "dill", "joblib", "shelve", "marshal"}, _name(path)
        for owner, name, line in _calls(path):
            assert (owner, name) not in {*forbidden, ("", "eval"), ("", "exec")}, f"{_name(path)}:{line}"


def test_the_library_neither_prints_nor_exits():
    forbidden = {("", "print"), ("", "exit"), ("", "quit"), ("", "input"), ("sys", "exit")}
    for path in FILES:
        for owner, name, line in _calls(path) if _room(path) != "cli" else ():
            assert (owner, name) not in forbidden, f"{_name(path)}:{line}"


def _calls(path: Path) -> Iterator[tuple[str, str, int]]:
    """The owner, empty for a plain function, the name and the line of each call of a name."""
    for node in _nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield "", node.func.id, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            yield owner.id if isinstance(owner, ast.Name) else "?", node.func.attr, node.lineno


def test_modules_say_what_they_are():
    for path in FILES:
        assert len(ast.get_docstring(_tree(path)) or "") > 25, _name(path)
        assert "Filled in" not in (ast.get_docstring(_tree(path)) or ""), _name(path)


def _exporting() -> list[str]:
    """Modules with `__all__`, by dotted name."""
    names = []
    for path in FILES:
        assigned = {
            target.id
            for node in _tree(path).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if "__all__" in assigned:
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            names.append(".".join(part for part in parts if part != "__init__"))
    return names


@pytest.mark.slow
def test_public_names_exist_once_and_are_explained():
    for name in _exporting():
        module = import_module(name)
        exported = list(module.__all__)
        assert len(exported) == len(set(exported)), name
        for public in exported:
            value = getattr(module, public)
            if inspect.isfunction(value) or inspect.isclass(value):
                assert value.__doc__, f"{name}.{public}: expected a docstring"


def _public(tree: ast.Module) -> set[str]:
    """Functions and classes that a module defines without a leading underscore."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    }


def test_a_room_exports_exactly_what_it_imports():
    """`__init__` is the list of what others may use: no name forgotten in `__all__`, none that is not there."""
    for room in {*_rooms()} - {"cli"}:
        tree = _tree(PACKAGE / room / "__init__.py")
        imported = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("syntaxformer")
            for alias in node.names
        }
        module = import_module(f"syntaxformer.{room}")
        assert set(getattr(module, "__all__", ())) == imported | _public(tree), room


def test_all_of_the_package_is_its_surface():
    import syntaxformer

    for name in syntaxformer.__all__:
        assert getattr(syntaxformer, name) is not None
    assert set(syntaxformer._ROOMS) <= set(dir(syntaxformer))
    with pytest.raises(AttributeError, match=r"^module 'syntaxformer' has no attribute 'nothing'$"):
        _ = syntaxformer.nothing


def test_blocks_of_the_network_ask_in_one_place_where_a_kernel_is_faster():
    for path in (PACKAGE / "nn").glob("*.py"):
        assert "device.type" not in path.read_text("utf-8"), f"{_name(path)}: ask nn/kernels/on_cpu.py"
