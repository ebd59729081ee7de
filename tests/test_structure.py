"""The package stays readable: no long files, no classes with many methods, no type name with two meanings."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import openinfer

SOURCES = sorted(Path(openinfer.__file__).parent.rglob("*.py"))
BESIDE = [path for folder in ("tests", "bench", "examples", "docs") for path in sorted(Path(folder).rglob("*.py"))]
MOST_LINES = 500
MOST_METHODS = 25
FACADES = {"Executor", "CompiledModule"}
"""What users hold in their hands: they have a method for everything one can do with them."""

TYPE_NAME = re.compile("[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
"""Constants are in capitals, and a name with an underscore before it stays in its module."""


def test_no_file_is_longer_than_a_reader_can_take_in() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES + BESIDE}
    assert len(lines) > len(SOURCES) > 0
    assert {str(path): count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_class_but_the_facades_has_more_methods_than_a_reader_can_take_in() -> None:
    counts = {
        f"{path}:{node.lineno} {node.name}": _methods(node)
        for path in SOURCES + BESIDE
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and node.name not in FACADES
    }
    assert counts
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}


def test_no_two_types_have_the_same_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for name, line in _types(_tree(path)):
            found[name].append(f"{path}:{line}")
    assert {"Graph", "Array", "StepOperand"} <= found.keys(), "classes and both forms of aliases"
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _types(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The classes of a module, nested ones too, and its aliases of types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and TYPE_NAME.fullmatch(node.name):
            yield node.name, node.lineno
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation) == "TypeAlias":
            targets = [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and TYPE_NAME.fullmatch(target.id):
                yield target.id, statement.lineno


def _methods(node: ast.ClassDef) -> int:
    """How many methods a class has; the overloads of one are one."""
    return len({member.name for member in node.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)})
