"""The formatter: canonical text with the comments and blank lines of the source.

A comment belongs to the statement below it, or to the one before it on the same line. A comment inside a statement
moves above it; one at the end of a body stays there.
"""

from collections.abc import Iterator

from openinfer.collection import collection_paused
from openinfer.errors import GraphError, Source, Span
from openinfer.ir.graph import Graph, Loop, Scope
from openinfer.ir.text import CommentKey, Comments, end_of, graph_text, is_end
from openinfer.lang.lower import lower
from openinfer.lang.parser import parse_tree
from openinfer.lang.tokens import MEMORY_WORDS, trivia

_SECTION_OF = {"inputs": "dynamic", "outputs": "volatile", "state": "persistent", "constants": "constant"}
_FILE: CommentKey = ("file", "")


def format_source(text: str, name: str = "<graph>") -> str:
    r"""Format a text canonically; syntax errors are raised, other problems are ignored.

    >>> print(format_source("block entry{return;// done\n}"), end="")
    block entry {
        return;  // done
    }
    """
    source = Source(name, text)
    with collection_paused():
        tree, problems = parse_tree(source)
        if tree is None:
            raise GraphError(*problems)
        parsed = lower(source, tree)
        errors = [problem for problem in parsed.problems if not problem.code.is_warning]
        if errors:
            raise GraphError(*errors)
        return graph_text(parsed.graph, comments_of(text, parsed.graph))


def _element_starts(graph: Graph) -> dict[int, CommentKey]:
    """The start offsets of all elements that can have comments."""
    starts: dict[int, CommentKey] = {}
    for size in graph.sizes.values():
        if isinstance(size.span, Span):
            starts[size.span.start] = ("size", size.name)
    for variable in graph.vars.values():
        if isinstance(variable.span, Span):
            starts[variable.span.start] = ("var", variable.name)
    for block in graph.blocks.values():
        if isinstance(block.span, Span):
            starts[block.span.start] = ("block", block.name)
    for node in graph.walk():
        if isinstance(node.span, Span):
            starts.setdefault(node.span.start, ("node", node.index))
    return starts


class _Attachment:
    """Walks over a text once and attaches every comment to an element."""

    def __init__(self, graph: Graph) -> None:
        self.starts = _element_starts(graph)
        self.found = Comments()
        self.pending: list[str] = []
        self.current: CommentKey | None = None
        self.owners: list[CommentKey | None] = []
        self.fresh_line = True
        self.first_in_body = True
        self.previous = ""

    def space(self, text: str) -> None:
        self.fresh_line |= "\n" in text
        if text.count("\n") > 1 and not self.first_in_body and self.pending[-1:] != [""]:
            self.pending.append("")

    def comment(self, text: str) -> None:
        line_ends = self.previous in (";", "{", "}") and not self.fresh_line
        behind = self.found.trailing.setdefault(self.current, []) if line_ends and self.current is not None else None
        if behind is None or any(other.startswith("//") for other in behind):
            self.pending.append(text)
            self.first_in_body = False
        else:
            behind.append(text)

    def token(self, text: str, start: int) -> None:
        self.fresh_line = False
        key = self.starts.get(start)
        if key is None and not any(self.owners) and (text in MEMORY_WORDS or text in ("sizes", "state")):
            key = ("section", _SECTION_OF.get(text, text))
        if text == "}" and self.owners:
            self._close(self.owners.pop())
        elif key is not None:
            self._begin(key)
        elif self.pending and self.current is not None and not is_end(self.current):
            self._inside()
        if text == "{":
            self._open()
        self.previous = text

    def _begin(self, key: CommentKey) -> None:
        self.found.leading.setdefault(key, []).extend(self.pending)
        self.pending = []
        self.current = key
        self.first_in_body = False

    def _inside(self) -> None:
        """Move comments in the middle of a statement above it."""
        assert self.current is not None
        self.found.leading.setdefault(self.current, []).extend(line for line in self.pending if line)
        self.pending = []

    def _open(self) -> None:
        self.owners.append(None if self.previous == "with" else self.current)
        self.first_in_body = True

    def _close(self, owner: CommentKey | None) -> None:
        lines = self.pending
        self.pending = []
        while lines and not lines[-1]:
            lines.pop()
        if owner is not None:
            self.found.dangling.setdefault(owner, []).extend(lines)
            self.current = end_of(owner)
        elif lines:
            self.pending = lines
        self.first_in_body = False


def comments_of(text: str, graph: Graph) -> Comments:
    """The comments and blank lines of a text, by the graph element that they belong to."""
    attachment = _Attachment(graph)
    for kind, piece, start in trivia(text):
        if kind == "space":
            attachment.space(piece)
        elif kind == "comment":
            attachment.comment(piece.replace("\r\n", "\n").rstrip())
        else:
            attachment.token(piece, start)
    rest = attachment.pending
    while rest and not rest[-1]:
        rest.pop()
    attachment.found.dangling.setdefault(_FILE, []).extend(rest)
    return _rescued(attachment.found, graph)


def _rescued(comments: Comments, graph: Graph) -> Comments:
    """Move comments of elements that are not printed, such as an empty section, to the end of the file."""
    printed = set(_printed(graph))
    bodies = {key for key in printed if key[0] in ("section", "block", "file")}
    bodies |= {("node", node.index) for node in graph.walk() if isinstance(node.kind, Loop | Scope)}
    printed |= {end_of(key) for key in bodies}
    for table, allowed in ((comments.leading, printed), (comments.trailing, printed), (comments.dangling, bodies)):
        for key in [key for key in table if key not in allowed]:
            comments.dangling.setdefault(_FILE, []).extend(line for line in table.pop(key) if line)
    return comments


def _printed(graph: Graph) -> Iterator[CommentKey]:
    yield _FILE
    if graph.sizes:
        yield ("section", "sizes")
    for size in graph.sizes:
        yield ("size", size)
    for variable in graph.vars.values():
        yield ("section", variable.kind.value)
        yield ("var", variable.name)
    for block in graph.blocks:
        yield ("block", block)
    for node in graph.walk():
        yield ("node", node.index)
