"""``graph(text)`` and ``load_graph(path)``: source text into checked graphs."""

import os

from openinfer.collection import collection_paused
from openinfer.errors import Code, Diagnostic, FileSpan, GraphError, Source
from openinfer.ir.graph import Graph
from openinfer.ir.validate import validate
from openinfer.lang.lower import Parsed, lower
from openinfer.lang.parser import parse_tree

MAX_SOURCE_BYTES = 1 << 28


def parse(text: str, name: str = "<graph>", *, strict: bool = False) -> Parsed:
    """The graph of a text with all that is wrong with it or old-fashioned about it; never raises for bad text."""
    if not isinstance(text, str):
        raise _unreadable(name, f"a graph is text, not {type(text).__name__}")
    source = Source(name, text)
    with collection_paused():
        tree, problems = parse_tree(source)
        if tree is None:
            return Parsed(Graph.of((), (), ()), problems)
        parsed = lower(source, tree)
    if any(not problem.code.is_warning for problem in parsed.problems):
        return parsed
    return Parsed(parsed.graph, [*parsed.problems, *validate(parsed.graph, strict=strict)])


def graph(text: str, name: str = "<graph>", *, strict: bool = False) -> Graph:
    """The graph of a text; all its syntax or structure errors are raised together.

    >>> g = graph("dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op add(x, x) >> y; return; }")
    >>> g.node_count
    2
    """
    parsed = parse(text, name, strict=strict)
    errors = [problem for problem in parsed.problems if not problem.code.is_warning]
    if errors:
        raise GraphError(*errors)
    return parsed.graph


def load_graph(path: str | os.PathLike[str], *, strict: bool = False) -> Graph:
    """The graph of a file: source text, or JSON where the name ends in ``.json``."""
    name = os.fspath(path)
    text = read_source(name)
    return Graph.from_json(text, name=name, strict=strict) if is_json(name) else graph(text, name, strict=strict)


def is_json(path: str) -> bool:
    """Whether a graph file holds JSON, by its name."""
    return path.lower().endswith(".json")


def read_source(path: str) -> str:
    """The text of a source file."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, (error.strerror if isinstance(error, OSError) else None) or str(error)) from error
    return decode_source(data, path)


def decode_source(data: bytes, name: str) -> str:
    """The text of a source's bytes."""
    if len(data) > MAX_SOURCE_BYTES:
        raise _unreadable(name, f"it has more than {MAX_SOURCE_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(name, f"byte {error.start} is not UTF-8 text") from error


def _unreadable(path: str, reason: str) -> GraphError:
    return GraphError(Diagnostic(Code.BAD_SOURCE_FILE, f"cannot read {path!r}: {reason}", FileSpan(path)))
