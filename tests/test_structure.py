"""The package stays readable: no long files, no classes with many methods, no type name with two meanings."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import openinfer

PACKAGE = Path(openinfer.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
BACK_END = [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] in ("loops", "synth")]
BESIDE = [path for folder in ("tests", "bench", "examples", "docs") for path in sorted(Path(folder).rglob("*.py"))]
MOST_LINES = 500
MOST_METHODS = 25
FACADES = {"Executor"}
"""What users hold in their hands: it has a method for everything one can do with it."""

PLAIN = {
    "contender": "candidate",
    "contest": "race",
    "loops that are none": "zero-trip loops, single-iteration loops",
    "next to each other": "contiguous",
    "nobody": "nothing, unused",
    "so many": "a count",
    "taken back": "rolled back",
}
TEXTS = {".py", ".c", ".h", ".cu", ".glsl", ".comp", ".vhd", ".md"}

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


def test_no_two_private_types_of_the_back_end_have_the_same_name() -> None:
    """A reader who looks for ``_Order`` finds one."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in BACK_END:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path}:{node.lineno}")
    assert found
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_the_back_end_says_things_in_the_words_of_the_field() -> None:
    """``PLAIN`` has what to say instead."""
    files = [path for folder in ("loops", "synth") for path in (PACKAGE / folder).rglob("*") if path.is_file()]
    texts = {path: path.read_text(encoding="utf-8").lower() for path in files if path.suffix in TEXTS}
    assert len(texts) > len(BACK_END) > 0
    assert [(str(path), words) for path, text in texts.items() for words in PLAIN if words in text] == []


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
