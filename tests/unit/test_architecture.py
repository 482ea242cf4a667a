"""The rules of the design that a program can check: import directions, sizes, names, public surfaces."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "syntaxformer"
FILES = sorted(PACKAGE.rglob("*.py"))

BASE = {
    "auto_classes",
    "errors",
    "textfile",
    "atomic",
    "ahead",
    "folders",
    "folder_checks",
    "progress",
    "config",
    "infusion_config",
    "languages",
    "ray_cluster",
}
"""Single files below every room; they import no room."""

ALLOWED = {
    "trees": set(),
    "annotate": {"trees"},
    "align": {"trees"},
    "relations": {"trees"},
    "layers": set(),
    "infusion": {"layers", "relations"},
    "models": {"layers", "relations"},
    "data": {"trees", "annotate", "align", "relations", "layers"},
    "evaluation": set(),
    "training": {"trees", "align", "relations", "layers", "models", "data", "evaluation"},
    "tasks": {"trees", "annotate", "align", "relations", "layers", "infusion", "models", "data", "evaluation", "training"},
    "analysis": {"trees", "annotate", "align", "relations", "layers", "models", "data", "evaluation", "tasks"},
    "experiments": {"trees", "annotate", "align", "relations", "data", "evaluation", "training", "tasks", "analysis"},
    "demo": {"evaluation", "training", "tasks", "analysis"},
    "export": {"trees", "align", "layers", "models", "data", "training", "tasks"},
    "serve": {"trees", "annotate", "align", "relations", "models", "data", "evaluation", "tasks", "analysis"},
    "cli": {"trees", "annotate", "align", "relations", "data", "evaluation", "training", "tasks", "analysis", "experiments", "demo", "export", "serve"},
}  # fmt: skip
"""Room → rooms it may import (DESIGN §1)."""

LONGEST_FILE, LONGEST_LAYER, LONGEST_BODY = 500, 300, 60


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _imports(node: ast.AST) -> set[str]:
    """Modules that a tree imports, at the top or inside functions."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            found |= {alias.name for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            assert one.level == 0, "imports are absolute"
            found.add(one.module or "")
            if one.module == "syntaxformer":
                found |= {f"syntaxformer.{alias.name}" for alias in one.names}
    return found


def _rooms_imported(path: Path) -> set[str]:
    parts = (module.split(".") for module in _imports(_tree(path)))
    return {part[1] for part in parts if part[0] == "syntaxformer" and len(part) > 1} - {"__version__"}


def _rooms() -> list[str]:
    return sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


def test_every_room_has_its_rule():
    assert set(_rooms()) <= set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_imports_point_one_way(path):
    room = _room(path)
    imported = _rooms_imported(path) - BASE - {room}
    if room in ALLOWED:
        assert imported <= ALLOWED[room]
    elif room in BASE:
        assert imported == set()


def test_rooms_depend_on_each_other_in_one_direction():
    order: list[str] = []
    waiting = {room: set(rooms) for room, rooms in ALLOWED.items()}
    while waiting:
        free = sorted(room for room, rooms in waiting.items() if not rooms - set(order))
        assert free, f"a cycle among {sorted(waiting)}"
        order += free
        waiting = {room: rooms for room, rooms in waiting.items() if room not in free}
    assert order[-1] == "cli"


def test_cli_and_serve_are_imported_by_nobody():
    for path in FILES:
        if _room(path) not in ("cli", "serve"):
            assert not _rooms_imported(path) & {"cli", "serve"}, _name(path)


@pytest.mark.parametrize("room", ["trees", "annotate", "align", "relations"])
def test_rooms_below_the_network_know_no_torch(room):
    for path in (PACKAGE / room).rglob("*.py"):
        assert not {module.split(".")[0] for module in _imports(_tree(path))} & {"torch", "transformers"}, (
            _name(path)
        )


def test_layers_know_only_layers_and_no_sentence():
    for path in (PACKAGE / "layers").glob("*.py"):
        assert _rooms_imported(path) <= {"layers"}, _name(path)
        assert "transformers" not in {module.split(".")[0] for module in _imports(_tree(path))}


def test_the_command_line_imports_its_work_when_it_runs():
    light = {"typer", "syntaxformer"}
    for path in (PACKAGE / "cli").glob("*.py"):
        top = ast.Module(
            [node for node in _tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)], []
        )
        outside = {module.split(".")[0] for module in _imports(top)}
        assert outside - light <= set(__import__("sys").stdlib_module_names), _name(path)
        rooms = {module.split(".")[1] for module in _imports(top) if module.startswith("syntaxformer.")}
        assert rooms <= {"cli", "errors", "__version__"}, _name(path)


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_sizes(path):
    limit = LONGEST_LAYER if _room(path) == "layers" else LONGEST_FILE
    assert len(path.read_text("utf-8").splitlines()) <= limit
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert _body_lines(node) <= LONGEST_BODY, f"{node.name} at line {node.lineno}"


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_half_of_all_files_and_functions_are_short():
    lines = sorted(len(path.read_text("utf-8").splitlines()) for path in FILES)
    bodies = sorted(
        _body_lines(node)
        for path in FILES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lines[len(lines) // 2] <= 150
    assert bodies[len(bodies) // 2] <= 10


def test_files_are_named_for_what_is_in_them():
    assert not [
        _name(path)
        for path in FILES
        if path.stem.strip("_") in ("util", "utils", "helper", "helpers", "misc", "common")
    ]


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_nothing_is_unpickled_and_nothing_evaluated(path):
    forbidden = {
        ("pickle", "load"), ("pickle", "loads"), ("torch", "load"), ("torch", "save"), ("joblib", "load"),
        ("dill", "load"), ("yaml", "unsafe_load"), ("os", "system"),
    }  # fmt: skip
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            assert (node.func.value.id, node.func.attr) not in forbidden, f"line {node.lineno}"
        if isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), f"line {node.lineno}"
    assert not _imports(_tree(path)) & {"pickle", "dill", "joblib", "shelve", "marshal"}


@pytest.mark.parametrize("path", [path for path in FILES if _room(path) != "cli"], ids=_name)
def test_the_library_neither_prints_nor_exits(path):
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "exit", "quit", "input"), f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            assert not (isinstance(owner, ast.Name) and owner.id == "sys" and node.func.attr == "exit")


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_modules_say_what_they_are(path):
    assert len(ast.get_docstring(_tree(path)) or "") > 25
    assert "Filled in" not in (ast.get_docstring(_tree(path)) or "")


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


@pytest.mark.parametrize("name", _exporting())
def test_public_names_exist_once_sorted_and_explained(name):
    module = import_module(name)
    exported = list(module.__all__)
    assert len(exported) == len(set(exported))
    for public in exported:
        value = getattr(module, public)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert value.__doc__, f"{public}: expected a docstring"


def _public(tree: ast.Module) -> set[str]:
    """Functions and classes that a module defines without a leading underscore."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    }


@pytest.mark.parametrize("room", [room for room in _rooms() if room not in ("cli",)])
def test_a_room_exports_exactly_what_it_imports(room):
    """`__init__` is the list of what others may use: no name forgotten in `__all__`, none that is not there."""
    tree = _tree(PACKAGE / room / "__init__.py")
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("syntaxformer")
        for alias in node.names
    }
    module = import_module(f"syntaxformer.{room}")
    assert set(getattr(module, "__all__", ())) == imported | _public(tree)


def test_all_of_the_package_is_its_surface():
    import syntaxformer

    for name in syntaxformer.__all__:
        assert getattr(syntaxformer, name) is not None
    assert set(syntaxformer._ROOMS) <= set(dir(syntaxformer))
    with pytest.raises(AttributeError, match=r"^module 'syntaxformer' has no attribute 'nothing'$"):
        _ = syntaxformer.nothing
