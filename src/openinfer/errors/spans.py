"""The locations of diagnostics: a range of source text, a field of a binary file, a file, or a value in a document."""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Source:
    """A source text with a name."""

    name: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        lengths = (len(line) for line in self.text.split("\n"))
        return [0, *(end + 1 for end in accumulate(lengths, lambda end, length: end + 1 + length))]

    def position(self, offset: int) -> tuple[int, int]:
        r"""The line and column of an offset, both counted from 1.

        >>> Source("g.oig", "ab\ncd").position(4)
        (2, 2)
        """
        line = bisect_right(self._line_starts, offset, hi=len(self._line_starts) - 1)
        return line, offset - self._line_starts[line - 1] + 1

    def start_of(self, number: int) -> int:
        r"""The offset at which a line, counted from 1, starts; past the last line, the end of the text.

        >>> Source("g.oig", "ab\ncd").start_of(2), Source("g.oig", "ab\ncd").start_of(9)
        (3, 5)
        """
        return min(self._line_starts[min(number, len(self._line_starts)) - 1], len(self.text))

    def line(self, number: int) -> str:
        """The text of one line, counted from 1, without its line break."""
        return self.text[self._line_starts[number - 1] : self._line_starts[number] - 1].rstrip("\r")


@dataclass(frozen=True)
class Span:
    """A range of characters in a source, from ``start`` up to but excluding ``end``."""

    source: Source
    start: int
    end: int

    def facts(self) -> dict[str, object]:
        """The location as plain values, for ``--json``."""
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
    """A field of a binary file: its name, its bytes, and the entry that it belongs to.

    ``context`` contains the bytes of the file from ``context_offset`` on, for display.
    """

    path: str
    field_name: str
    offset: int
    length: int = 0
    entry: str | None = None
    context: bytes = field(default=b"", repr=False)
    context_offset: int = 0

    def facts(self) -> dict[str, object]:
        """The location as plain values, for ``--json``."""
        return {
            "file": self.path,
            "field": self.field_name,
            "offset": self.offset,
            "length": self.length,
            "entry": self.entry,
        }


@dataclass(frozen=True)
class FileSpan:
    """A whole file, if no more precise location is known."""

    path: str

    def facts(self) -> dict[str, object]:
        """The location as plain values, for ``--json``."""
        return {"file": self.path}


@dataclass(frozen=True)
class DocumentSpan:
    """A value in a JSON document, by its path of keys and positions."""

    path: str
    file: str = "<json>"

    def facts(self) -> dict[str, object]:
        """The location as plain values, for ``--json``."""
        return {"file": self.file, "path": self.path}


GraphPlace = Span | DocumentSpan
"""The location of a graph element: in source text or in a JSON document."""

Place = Span | ByteSpan | FileSpan | DocumentSpan
