"""``graph(text)`` and ``load_graph(path)``: from source text to checked graphs."""

import os
import sys
from collections.abc import Iterator

from openinfer.collection import collection_paused
from openinfer.errors import Code, Diagnostic, FileSpan, GraphError, Source, Span
from openinfer.ir.advice import what_is_meant
from openinfer.ir.graph import Graph, Op
from openinfer.ir.op_names import OP_NAMES
from openinfer.ir.validate import validate
from openinfer.lang.lower import Parsed, lower
from openinfer.lang.parser import parse_tree
from openinfer.oinf.file import read_plain, reason_of
from openinfer.oinf.foreign import LOOKED_AT, recognised

MAX_SOURCE_BYTES = 1 << 28
_MOST_ADVISED = 20


def parse(text: str, name: str = "<graph>", *, strict: bool = False) -> Parsed:
    """Parse a text to a graph, with all errors and warnings; never raises for bad text."""
    if not isinstance(text, str):
        raise _unreadable(name, f"a graph is text, not {type(text).__name__}")
    source = Source(name, text)
    with collection_paused():
        tree, problems = parse_tree(source)
        if tree is None:
            return Parsed(Graph.of((), (), ()), problems)
        parsed = lower(source, tree)
    return validated(source, parsed, strict=strict)


def validated(source: Source, parsed: Parsed, *, strict: bool = False) -> Parsed:
    """Validate the structure of a graph, unless its text already has errors."""
    if any(not problem.code.is_warning for problem in parsed.problems):
        return parsed
    end = len(source.text.rstrip())
    structure = validate(parsed.graph, strict=strict, end=Span(source, end, end))
    return Parsed(parsed.graph, [*parsed.problems, *structure])


def unknown_ops(graph: Graph) -> Iterator[Diagnostic]:
    """Diagnostics for unknown ops.

    They are not errors of the language: documents of other tools may use their own ops, and can be printed and drawn.
    """
    unknown = (node for node in graph.walk() if isinstance(node.kind, Op) and node.kind.op not in OP_NAMES)
    for position, node in enumerate(unknown):
        assert isinstance(node.kind, Op)
        advice = what_is_meant(node.kind, graph, may_search=position < _MOST_ADVISED)
        yield Diagnostic(Code.UNKNOWN_OP, f"there is no op {node.kind.op!r}", node.span, advice)


def graph(text: str, name: str = "<graph>", *, strict: bool = False) -> Graph:
    """Parse a graph from text. All syntax and structure errors are raised together; so are unknown ops.

    >>> g = graph("dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op add(x, x) >> y; return; }")
    >>> g.node_count
    2
    """
    parsed = parse(text, name, strict=strict)
    errors = [problem for problem in parsed.problems if not problem.code.is_warning]
    errors = errors or list(unknown_ops(parsed.graph))
    if errors:
        raise GraphError(*errors)
    return parsed.graph


def load_graph(path: str | os.PathLike[str], *, strict: bool = False) -> Graph:
    """Load a graph from a file: source text, or JSON if the name ends in ``.json``."""
    name = os.fspath(path)
    if "{" in name and not os.path.exists(name):
        raise _unreadable("<graph>", "it is the text of a graph, not a path", "graph(text) reads text")
    text = read_source(name)
    return Graph.from_json(text, name=name, strict=strict) if is_json(name) else graph(text, name, strict=strict)


def is_json(path: str) -> bool:
    """Whether a graph file contains JSON, judging by its name."""
    return path.lower().endswith(".json")


def read_source(path: str) -> str:
    """Read the text of a source file."""
    try:
        data = read_plain(path, MAX_SOURCE_BYTES)
    except (OSError, ValueError) as error:
        raise _unreadable(path, reason_of(error)) from error
    return decode_source(data, path)


def read_standard_input() -> str:
    """Read the text of a source from standard input."""
    try:
        data = sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:  # it is a folder, or gone
        raise _unreadable("<stdin>", reason_of(error)) from error
    return decode_source(data, "<stdin>")


def decode_source(data: bytes, name: str) -> str:
    """Decode the bytes of a source."""
    if data.startswith(b"OINF\0"):
        reason = "it is a model, not a graph"
        raise _unreadable(name, reason, "the graph comes first, and the model is --model FILE")
    if len(data) > MAX_SOURCE_BYTES:
        raise _unreadable(name, f"it has more than {MAX_SOURCE_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        foreign = recognised(name, data[:LOOKED_AT])
        reason = f"byte {error.start} is not UTF-8 text"
        if foreign is not None and not foreign.is_graph:
            reason = f"it is {foreign.name}, not a graph"
        raise _unreadable(name, reason) from error


def _unreadable(path: str, reason: str, advice: str | None = None) -> GraphError:
    return GraphError(Diagnostic(Code.BAD_SOURCE_FILE, f"cannot read {path!r}: {reason}", FileSpan(path), advice))
