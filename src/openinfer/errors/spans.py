"""Where a diagnostic points: a range of source text, or a field of a binary file."""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Source:
    """A named piece of source text."""

    name: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        lengths = (len(line) for line in self.text.split("\n"))
        return [0, *(end + 1 for end in accumulate(lengths, lambda end, length: end + 1 + length))]

    def position(self, offset: int) -> tuple[int, int]:
        r"""Line and column of a character, both counted from 1.

        >>> Source("g.oig", "ab\ncd").position(4)
        (2, 2)
        """
        line = bisect_right(self._line_starts, offset, hi=len(self._line_starts) - 1)
        return line, offset - self._line_starts[line - 1] + 1

    def start_of(self, number: int) -> int:
        r"""Where a line, counted from 1, begins; one behind the last begins where the text ends.

        >>> Source("g.oig", "ab\ncd").start_of(2), Source("g.oig", "ab\ncd").start_of(9)
        (3, 5)
        """
        return min(self._line_starts[min(number, len(self._line_starts)) - 1], len(self.text))

    def line(self, number: int) -> str:
        """The text of one line, counted from 1, without its line break."""
        return self.text[self._line_starts[number - 1] : self._line_starts[number] - 1].rstrip("\r")


@dataclass(frozen=True)
class Span:
    """The characters ``start`` up to, not including, ``end`` of a source."""

    source: Source
    start: int
    end: int

    def facts(self) -> dict[str, object]:
        """The place as plain values, for ``--json``."""
        line, column = self.source.position(self.start)
        end_line, end_column = self.source.position(self.end)
        return {
            "file": self.source.name,
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
        }


@dataclass(frozen=True)
class ByteSpan:
    """A field of a binary file: its name, the bytes it occupies, and the entry it belongs to.

    ``context`` holds the file's bytes from ``context_offset`` on, so that a report can show them.
    """

    path: str
    field_name: str
    offset: int
    length: int = 0
    entry: str | None = None
    context: bytes = field(default=b"", repr=False)
    context_offset: int = 0

    def facts(self) -> dict[str, object]:
        """The place as plain values, for ``--json``."""
        return {
            "file": self.path,
            "field": self.field_name,
            "offset": self.offset,
            "length": self.length,
            "entry": self.entry,
        }


@dataclass(frozen=True)
class FileSpan:
    """A whole file, where no smaller place can be named."""

    path: str

    def facts(self) -> dict[str, object]:
        """The place as plain values, for ``--json``."""
        return {"file": self.path}


@dataclass(frozen=True)
class DocumentSpan:
    """A value inside a JSON document, by the path of keys and positions that leads to it."""

    path: str
    file: str = "<json>"

    def facts(self) -> dict[str, object]:
        """The place as plain values, for ``--json``."""
        return {"file": self.file, "path": self.path}


GraphPlace = Span | DocumentSpan
"""Where an element of a graph stands: in source text or in a JSON document."""

Place = Span | ByteSpan | FileSpan | DocumentSpan
