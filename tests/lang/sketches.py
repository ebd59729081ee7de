"""Graphs of texts whose ops need not exist: the language, the printer and the pictures do not know the ops."""

from pathlib import Path

from openinfer.ir import Graph
from openinfer.lang import parse


def sketch(text: str) -> Graph:
    """The graph of a text without errors of syntax and structure."""
    parsed = parse(text)
    assert [problem.render() for problem in parsed.problems if not problem.code.is_warning] == []
    return parsed.graph


def sketch_of(path: Path) -> Graph:
    """The graph of a file."""
    return sketch(path.read_text(encoding="utf-8"))
