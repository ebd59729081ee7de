"""The picture of a run: how fast each engine is on each model, next to the best peer."""

from collections.abc import Iterator
from html import escape

from bench.cpu.measure import Row
from bench.cpu.peers import PEERS

COLOURS = {name: peer.colour for name, peer in PEERS.items()}
TITLES = {name: peer.title for name, peer in PEERS.items()}
TOP, RIGHT, BOTTOM = 76, 60, 40
BAR, GAP = 12, 14
PLOT = 620
"""How wide the bars may be."""
LETTER = 6.4
"""How wide a letter of a label is, about."""
FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11" fill="#333"'


def speed_svg(rows: list[Row], machine: str) -> str:
    """Horizontal bars, grouped by model: the speed of each engine as a multiple of that of the best peer."""
    most = max((row.threads for row in rows), default=1)
    threads = f"{most} thread{'s' if most > 1 else ''}"
    picture = _Picture([row for row in rows if row.threads == most])
    width, height = picture.left + PLOT + RIGHT, picture.bottom + BOTTOM
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" {FONT}>',
        f'<rect {size} fill="#fff"/>',
        '<text x="16" y="24" font-size="15" font-weight="bold">Speed, as a multiple of the best peer&#8217;s</text>',
        f'<text x="16" y="42">{threads}, medians; {escape(machine)}</text>',
        *picture.legend(),
        *picture.axis(),
        *picture.bars(),
        picture.upright(1, "#333"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Picture:
    """The parts of the picture. Engines without a time have no bar, models without one no group."""

    def __init__(self, rows: list[Row]) -> None:
        speeds = [(row, {engine: row.speed(engine) for engine in row.outcomes}) for row in rows]
        groups = [(row, {engine: speed for engine, speed in found.items() if speed}) for row, found in speeds]
        self.groups = [(row, found) for row, found in groups if found]
        self.most = max([1.0, *(speed for _, found in self.groups for speed in found.values())])
        self.scale = PLOT / self.most
        self.left = int(max([20, *(len(row.name) for row, _ in self.groups)]) * LETTER) + 26
        self.bottom = TOP + sum(BAR * len(found) + GAP for _, found in self.groups)

    def x(self, speed: float) -> float:
        return round(self.left + self.scale * speed, 1)

    def upright(self, speed: float, colour: str) -> str:
        """A line from the top to the bottom."""
        at = self.x(speed)
        return f'<line x1="{at}" y1="{TOP - 6}" x2="{at}" y2="{self.bottom}" stroke="{colour}"/>'

    def legend(self) -> Iterator[str]:
        engines = [engine for engine in COLOURS if any(engine in found for _, found in self.groups)]
        for at, engine in enumerate(engines):
            x = 16 + 98 * at
            yield f'<rect x="{x}" y="52" width="10" height="10" fill="{COLOURS[engine]}"/>'
            yield f'<text x="{x + 15}" y="61">{TITLES[engine]}</text>'

    def axis(self) -> Iterator[str]:
        """Lines at round multiples, fewer than ten."""
        step = next(one for one in (0.25, 0.5, 1, 2, 5, 10, 20, 50, self.most) if self.most / one < 9)
        for speed in (count * step for count in range(int(self.most / step) + 1)):
            yield self.upright(speed, "#e4e4e4")
            yield f'<text x="{self.x(speed)}" y="{self.bottom + 16}" text-anchor="middle">{speed:g}</text>'

    def bars(self) -> Iterator[str]:
        y = TOP
        for row, found in self.groups:
            middle = y + BAR * len(found) / 2 + 4
            yield f'<text x="{self.left - 10}" y="{middle:.1f}" text-anchor="end">{escape(row.name)}</text>'
            for engine, speed in found.items():
                yield from self._bar(y, engine, speed, f"{row.outcomes[engine].median_ms:.4g} ms")
                y += BAR
            y += GAP

    def _bar(self, y: int, engine: str, speed: float, time: str) -> Iterator[str]:
        """A bar with its figure; its time appears when it is pointed at."""
        place = f'x="{self.left}" y="{y}" width="{self.scale * speed:.1f}" height="{BAR - 2}"'
        yield f'<rect {place} fill="{COLOURS[engine]}"><title>{TITLES[engine]}: {time}</title></rect>'
        weight = ' font-weight="bold"' if engine == "ours" else ""
        yield f'<text x="{self.x(speed) + 4:.1f}" y="{y + BAR - 4}" font-size="10"{weight}>{speed:.2f}</text>'
