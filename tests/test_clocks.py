"""No test asserts on the time of a clock on the wall: on a busy machine it would fail, and nothing would be wrong."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
WALL = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"}
"""Functions of ``time``; those that count the processor's time are another matter."""


def reads_the_wall(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression calls such a function, or has a name whose value came from one."""
    for one in ast.walk(node):
        match one:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="time"), attr=name)) if name in WALL:
                return True
            case ast.Name(id=name) if name in names:
                return True
    return False


def asserted(source: str) -> Iterator[int]:
    """The lines of assertions on such times."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        names: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and reads_the_wall(node.value, names):
                names |= {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and reads_the_wall(node.test, names):
                yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def test():\n start = perf_counter()\n f()\n seconds = perf_counter() - start\n assert seconds < 3", [5]),
        ("def test():\n start = time.time()\n f()\n assert time.time() - start < 3", [4]),
        ("def test():\n start = process_time()\n f()\n assert process_time() - start < 3", []),
        ("def test():\n end = monotonic() + 9\n while monotonic() < end: f()\n assert g()", []),
    ],
)
def test_such_an_assertion_is_found(source: str, lines: list[int]) -> None:
    assert list(asserted(source)) == lines


def test_nothing_asserts_on_the_time_of_a_clock_on_the_wall() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in asserted(path.read_text(encoding="utf-8"))
    ]
    assert found == []
