"""The package stays in pieces that a reader can take in: no long files, no classes with many methods."""

import ast
from pathlib import Path

import openinfer

SOURCES = sorted(Path(openinfer.__file__).parent.rglob("*.py"))
MOST_LINES = 500
MOST_METHODS = 25
FACADES = {"Executor", "CompiledModule"}
"""What users hold in their hands: they have a method for everything one can do with them."""


def test_no_file_is_longer_than_a_reader_can_take_in() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert lines
    assert {str(path): count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_class_but_the_facades_has_more_methods_than_a_reader_can_take_in() -> None:
    counts = {
        f"{path}:{node.lineno} {node.name}": _methods(node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name not in FACADES
    }
    assert counts
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}


def _methods(node: ast.ClassDef) -> int:
    return sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body)
