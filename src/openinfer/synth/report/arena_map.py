"""Renders a memory plan: figures and lifetimes for plan.json, and a picture of time against address."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from openinfer.oinf.report import size_text
from openinfer.synth.memory.alignment import aligned
from openinfer.synth.memory.arena import Placement, Request, live_bytes


def describe(requests: Sequence[Request], placement: Placement) -> dict[str, Any]:
    """The plan as plain data.

    >>> requests = [Request(100, ((0, 1),), "a"), Request(64, ((1, 2),), "b")]
    >>> found = describe(requests, Placement((0, 128), 192, 192, 64, True))
    >>> found["peak_bytes"], found["peak_position"], found["peak_owners"], found["requests"][1]["lifetime"]
    (192, 1, ['a', 'b'], [[1, 2]])
    """
    alive = live_bytes(requests, placement.alignment)
    fullest = _fullest(alive)
    owners = [] if fullest is None else [one for one in requests if one.is_alive(fullest) and one.nbytes]
    return {
        "peak_bytes": placement.peak,
        "lower_bound_bytes": placement.lower_bound,
        "gap_bytes": placement.gap,
        "is_optimal": placement.is_optimal,
        "alignment": placement.alignment,
        "peak_position": fullest,
        "peak_owners": [one.label for one in sorted(owners, key=lambda one: -one.nbytes)],
        "live_bytes": alive,
        "requests": [
            {
                "label": request.label,
                "offset": offset,
                "nbytes": request.nbytes,
                "lifetime": [list(interval) for interval in request.lifetime],
            }
            for request, offset in zip(requests, placement.offsets, strict=True)
        ],
    }


def _fullest(alive: Sequence[int]) -> int | None:
    """The first position with the most live bytes."""
    return alive.index(max(alive)) if alive else None


# --- text -------------------------------------------------------------------------------------------------------------

_MARKS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def arena_text(requests: Sequence[Request], placement: Placement, width: int = 72, height: int = 16) -> str:
    """The arena as text: positions from left to right, addresses from the bottom up, a letter for each request.

    >>> two = [Request(64, ((0, 1),), "a"), Request(128, ((1, 2),), "b"), Request(64, ((2, 3),), "c")]
    >>> print(arena_text(two, Placement((0, 64, 0), 192, 192, 64, True), height=3))
    192 B |.bb.
          |.bb.
      0 B |aacc
    """
    positions = len(live_bytes(requests, placement.alignment))
    columns, rows = min(width, positions), min(height, max(placement.peak // placement.alignment, 1))
    if columns == 0:
        return "the arena is empty"
    cells = [["."] * columns for _ in range(rows)]
    for number, (request, offset) in enumerate(zip(requests, placement.offsets, strict=True)):
        bottom = offset * rows // max(placement.peak, 1)
        top = -(-(offset + aligned(request.nbytes, placement.alignment)) * rows // max(placement.peak, 1))
        for first, last in request.lifetime:
            for column in range(first * columns // positions, -(-(last + 1) * columns // positions)):
                for row in range(bottom, top):
                    cells[row][column] = _MARKS[number % len(_MARKS)]
    names = [""] * rows
    names[0], names[-1] = size_text(0), size_text(placement.peak)
    pad = max(map(len, names))
    return "\n".join(f"{names[row]:>{pad}} |{''.join(cells[row])}" for row in range(rows - 1, -1, -1))


# --- picture ----------------------------------------------------------------------------------------------------------

_LEFT, _TOP, _RIGHT, _BOTTOM = 84, 58, 24, 164
_USUAL_WIDTH, _MOST_WIDTH = 1000, 4000
_NAMED_COLUMN = 26
"""The width of a position that has room for a vertical name."""
_LINE = 13
"""The height of a line of text, which is the minimum distance of rotated names on the axis."""
_NAME = 24
"""The most characters of a name on the time axis."""
_COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#86bc86",
    "#d37295",
    "#a0cbe8",
)
_LETTER = 6.2
"""The approximate width of a letter of a label."""


def arena_svg(
    requests: Sequence[Request],
    placement: Placement,
    positions: Sequence[str] = (),
    width: int | None = None,
    height: int = 650,
) -> str:
    """The arena as a picture: time to the right, address upwards, a rectangle for each interval of a lifetime.

    ``positions`` are the names of positions, for the axis. The fullest position is shaded and the requests live there
    are outlined; the line on top shows the live bytes. Hovering over a request shows its name, offset and size. Without
    a width, the picture grows with the number of positions so that each can be named.
    """
    count = len(live_bytes(requests, placement.alignment))
    width = width or min(max(_USUAL_WIDTH, _LEFT + _RIGHT + count * _NAMED_COLUMN), _MOST_WIDTH)
    picture = _Picture(requests, placement, width, height)
    font = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11" fill="#333"'
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" {font}>',
        f'<rect {size} fill="#fff"/>',
        *picture.heading(),
        *picture.addresses(),
        *picture.shade(),
        *picture.rectangles(),
        *picture.alive(),
        *picture.labels(),
        *picture.bound(),
        *picture.times(positions),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _LifePiece:
    """One interval of a request's lifetime, in the coordinates of the picture."""

    number: int
    request: Request
    alive: tuple[int, int]
    x: float
    y: float
    width: float
    height: float

    @property
    def name(self) -> str:
        return self.request.label or f"request {self.number}"

    def name_within(self, room: int) -> str:
        """The name in ``room`` letters; if it is too long, only what the graph calls it.

        >>> one = _LifePiece(0, Request(8, ((0, 0),), "t24 (h10)", "h10"), (0, 0), 0, 0, 0, 0)
        >>> [one.name_within(room) for room in (9, 8, 2)]
        ['t24 (h10)', 'h10', 'h~']
        """
        return _shortened(self.name if len(self.name) <= room else self.request.variables or self.name, room)


class _Picture:
    """The elements of the picture, in its coordinates."""

    def __init__(self, requests: Sequence[Request], placement: Placement, width: int, height: int) -> None:
        self._requests = requests
        self._placement = placement
        self._live = live_bytes(requests, placement.alignment)
        self._fullest = _fullest(self._live)
        self._height = height
        self._column = (width - _LEFT - _RIGHT) / max(len(self._live), 1)
        self._row = (height - _TOP - _BOTTOM) / max(placement.peak, 1)

    @property
    def _end(self) -> float:
        return self._x(max(len(self._live), 1))

    def _x(self, position: float) -> float:
        return _LEFT + position * self._column

    def _y(self, address: float) -> float:
        return self._height - _BOTTOM - address * self._row

    def heading(self) -> list[str]:
        """The heading, with the key figures."""
        own = self._placement
        gap = f"{size_text(own.gap)} above the bound" if own.gap else "the bound is met"
        if own.gap and own.is_optimal:
            gap += ", and nothing smaller exists"
        facts = f"{size_text(own.peak)} for {len(self._requests)} requests; at most {size_text(own.lower_bound)} "
        facts += f"alive at once: {gap}"
        together = sum(aligned(request.nbytes, self._placement.alignment) for request in self._requests)
        saved = f"without sharing it would take {size_text(together)}"
        return [
            f'<text x="{_LEFT}" y="22" font-size="15" font-weight="bold">Arena: {escape(facts)}</text>',
            f'<text x="{_LEFT}" y="40" fill="#666">{escape(saved)}</text>',
        ]

    def addresses(self) -> list[str]:
        """The address axis, with grid lines."""
        parts = []
        for address in _ticks(self._placement.peak, 6):
            y = self._y(address)
            parts.append(_line(self._x(0), y, self._end, y, 'stroke="#e3e3e3"'))
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{size_text(address)}</text>')
        middle = self._y(self._placement.peak / 2)
        rotation = f'transform="rotate(-90 14 {middle:.1f})"'
        parts.append(f'<text x="14" y="{middle:.1f}" text-anchor="middle" fill="#666" {rotation}>address</text>')
        return parts

    def shade(self) -> list[str]:
        """The shading of the fullest position."""
        if self._fullest is None:
            return []
        x, y, height = self._x(self._fullest), self._y(self._placement.peak), self._row * self._placement.peak
        return [f'<rect x="{x:.1f}" y="{y:.1f}" width="{self._column:.1f}" height="{height:.1f}" fill="#fbe3e4"/>']

    def _pieces(self) -> Iterator[_LifePiece]:
        """One rectangle per interval of a lifetime; those at the peak come last, to keep their outlines visible."""
        pairs = [(number, request) for number, request in enumerate(self._requests) if request.nbytes]
        for number, request in sorted(pairs, key=lambda pair: self._owns(pair[1])):
            offset = self._placement.offsets[number]
            size = aligned(request.nbytes, self._placement.alignment)
            for first, last in request.lifetime:
                x, y = self._x(first), self._y(offset + size)
                yield _LifePiece(
                    number, request, (first, last), x, y, (last + 1 - first) * self._column, size * self._row
                )

    def rectangles(self) -> list[str]:
        """The requests' rectangles."""
        parts = []
        for one in self._pieces():
            stroke = 'stroke="#b3262d" stroke-width="1.6"' if self._owns(one.request) else 'stroke="#fff"'
            first, last = one.alive
            about = f"{one.name}: {size_text(one.request.nbytes)} at {self._placement.offsets[one.number]}"
            about += f", alive from {first} to {last}"
            parts.append(
                f'<rect x="{one.x:.1f}" y="{one.y:.1f}" width="{one.width:.1f}" height="{one.height:.1f}"'
                f' fill="{_COLOURS[one.number % len(_COLOURS)]}" fill-opacity="0.8" {stroke}>'
                f"<title>{_plain(about)}</title></rect>"
            )
        return parts

    def labels(self) -> list[str]:
        """The names of the requests, where there is room."""
        halo = 'stroke="#fff" stroke-opacity="0.6" stroke-width="3" paint-order="stroke" fill="#1a1a1a"'
        parts = []
        for one in self._pieces():
            is_rotated = one.width < min(one.height, len(one.name) * _LETTER + 8)
            along, across = (one.height, one.width) if is_rotated else (one.width, one.height)
            room = int((along - 8) / _LETTER)
            if across >= _LINE and room >= min(3, len(one.name)):
                x, y = one.x + one.width / 2, one.y + one.height / 2
                rotation = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if is_rotated else ""
                shown = f'x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle"{rotation} {halo} pointer-events="none"'
                parts.append(f"<text {shown}>{_plain(one.name_within(room))}</text>")
        return parts

    def _owns(self, request: Request) -> bool:
        return self._fullest is not None and request.is_alive(self._fullest)

    def alive(self) -> list[str]:
        """The curve of live bytes."""
        corners = [
            corner
            for position, nbytes in enumerate(self._live)
            for corner in ((position, nbytes), (position + 1, nbytes))
        ]
        points = " ".join(f"{self._x(position):.1f},{self._y(nbytes):.1f}" for position, nbytes in corners)
        return [f'<polyline points="{points}" fill="none" stroke="#222" stroke-width="1.2" stroke-dasharray="4 3"/>']

    def bound(self) -> list[str]:
        """The line of the lower bound."""
        y = self._y(self._placement.lower_bound)
        end = self._end
        return [
            _line(self._x(0), y, end, y, 'stroke="#b3262d" stroke-dasharray="8 4"'),
            f'<text x="{end:.1f}" y="{y - 4:.1f}" text-anchor="end" fill="#b3262d">lower bound</text>',
        ]

    def times(self, names: Sequence[str]) -> list[str]:
        """The time axis."""
        base = self._y(0)
        parts = [_line(self._x(0), base, self._end, base, 'stroke="#333"')]
        most = max(int((self._end - self._x(0)) / _LINE), 1)
        for position in _ticks(max(len(self._live) - 1, 0), most):
            x, y = self._x(position + 0.5), base + 8
            name = names[position] if position < len(names) else str(position)
            rotation = f'transform="rotate(-60 {x + 3:.1f} {y + 4:.1f})"'
            place = f'x="{x + 3:.1f}" y="{y + 4:.1f}" text-anchor="end" {rotation}'
            parts.append(f"<text {place}>{_plain(_shortened(name, _NAME))}</text>")
        legend = "step; dashed: bytes alive; shaded: the fullest step, outlined: what is alive there"
        middle = (self._x(0) + self._end) / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{self._height - 10:.1f}" text-anchor="middle" fill="#666">{legend}</text>'
        )
        return parts


def _shortened(text: str, room: int) -> str:
    """A text in ``room`` letters.

    >>> _shortened("matmul", 8), _shortened("matmul", 4)
    ('matmul', 'mat~')
    """
    return text if len(text) <= room else text[: room - 1] + "~"


def _plain(text: str) -> str:
    """The text escaped for the picture, in ASCII."""
    return (
        escape("".join(one if one.isprintable() else "?" for one in text)).encode("ascii", "xmlcharrefreplace").decode()
    )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _ticks(most: int, about: int) -> list[int]:
    """About ``about`` round numbers, from 0 up to ``most``.

    >>> _ticks(100, 6)
    [0, 16, 32, 48, 64, 80, 96]
    """
    step = 1
    while most // step > about:
        step *= 2
    return list(range(0, most + 1, step))
