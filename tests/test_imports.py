"""The import rule: each folder imports from those below it only, and no two folders import each other."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BELOW = {
    "logs": set(),
    "cost_model": set(),
    "schedules": set(),
    "tuning": {"schedules", "cost_model", "logs"},
    "hbtvm": {"tuning", "schedules", "cost_model", "logs"},
}
"""What each of the five folders may import, beside itself."""

OUTSIDE = {
    "logs": {"filelock"},
    "cost_model": {"numpy", "scipy", "xgboost", "torch"},
    "schedules": {"numpy", "tvm"},
    "hbtvm/runtime": {"numpy", "tvm_ffi"},
    "hbtvm/graph": {"numpy"},
    "hbtvm/operators": {"numpy"},
}
"""Folders of which all modules import only these libraries, beside the standard one."""


def modules() -> dict[str, Path]:
    """Return every module of the project, by the name that it is imported as."""
    found = {}
    for folder in BELOW:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if folder == "hbtvm" else ("hbtvm", *parts))
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


@cache
def imports(name: str) -> set[str]:
    """Return the names that a module imports: modules of the project in full, of others the package only.

    Imports within functions count, imports for type checkers do not.
    """
    tree = ast.parse(MODULES[name].read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: relative imports hide what is imported"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in MODULES else base)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {one if one in MODULES else one.partition(".")[0] for one in found} - {name}


def folder_of(name: str) -> str:
    """Return the top-level folder of a module."""
    return MODULES[name].relative_to(ROOT).parts[0]


def test_imports_run_downwards() -> None:
    upwards = [
        f"{name} imports {other}"
        for name in MODULES
        for other in sorted(imports(name))
        # Every module may import the package itself, for its version; `hbtvm` imports no module by itself.
        if other in MODULES
        and other != "hbtvm"
        and folder_of(other) not in {folder_of(name), *BELOW[folder_of(name)]}
    ]
    assert not upwards, "\n".join(upwards)


@pytest.mark.parametrize("room", OUTSIDE)
def test_rooms_with_few_needs(room: str) -> None:
    for name, path in MODULES.items():
        if path.is_relative_to(ROOT / room):
            others = {one for one in imports(name) if one not in MODULES} - set(sys.stdlib_module_names)
            assert others <= OUTSIDE[room], f"{name} imports {sorted(others - OUTSIDE[room])}"


def test_no_modules_import_each_other() -> None:
    """Not even by way of others, nor within functions."""
    graph = {name: {one for one in imports(name) if one in MODULES and one != "hbtvm"} for name in MODULES}
    del graph["hbtvm"]  # it imports its public names when they are first used
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, "a circle: " + " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for one in sorted(graph[name]):
                visit(one, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_packages_do_not_import_each_other() -> None:
    """The folders within `hbtvm` and those beside it do not import each other as wholes, either."""

    def room(name: str) -> str:
        path = MODULES[name].relative_to(ROOT)
        return path.parts[0] if path.parts[0] != "hbtvm" else "/".join(path.parts[:2])

    graph: dict[str, set[str]] = {}
    for name in MODULES:
        if name != "hbtvm":
            near = {room(one) for one in imports(name) if one in MODULES and one != "hbtvm"}
            graph.setdefault(room(name), set()).update(near - {room(name)})
    for one, near in graph.items():
        for other in near:
            assert one not in graph.get(other, ()), f"{one} and {other} import each other"


@pytest.mark.parametrize("stolen", ["tuning", "schedules", "cost_model", "logs"])
def test_users_own_modules_are_left_alone(stolen: str, tmp_path: Path) -> None:
    """A user's `tuning.py`, as the script that uses hbtvm or beside it, shadows no module of hbtvm."""
    script = tmp_path / f"{stolen}.py"
    script.write_text(
        "import hbtvm.tuning.session, hbtvm.schedules.space, hbtvm.cost_model.base, hbtvm.logs\n"
        f"import {stolen}\n"
        f"print({stolen}.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)} if "PYTHONPATH" in os.environ else None,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {str(script)}
