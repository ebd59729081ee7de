"""The picture of a run: how fast each engine is on each model, next to the best peer."""

from collections.abc import Iterator
from html import escape

from bench.cpu.measure import Row

COLOURS = {"ours": "#4e79a7", "onnxruntime": "#f28e2b", "openvino": "#59a14f", "torch": "#b07aa1"}
TITLES = {"ours": "OpenInfer", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "torch": "torch.compile"}
LEFT, TOP, RIGHT, BOTTOM = 300, 76, 60, 40
BAR, GAP = 13, 14
WIDTH = 960


def speed_svg(rows: list[Row], machine: str) -> str:
    """Horizontal bars, grouped by model: the speed of each engine as a multiple of that of the best peer."""
    shown = [(row, [engine for engine in row.outcomes if row.speed(engine) is not None]) for row in rows]
    shown = [(row, engines) for row, engines in shown if engines]
    height = TOP + BOTTOM + sum(BAR * len(engines) + GAP for _, engines in shown)
    most = max([row.speed(engine) or 0.0 for row, engines in shown for engine in engines], default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / max(most, 1.0)
    font = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11" fill="#333"'
    size = f'width="{WIDTH}" height="{height}"'
    engines = [engine for engine in COLOURS if any(engine in found for _, found in shown)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}" {font}>',
        f'<rect {size} fill="#fff"/>',
        '<text x="16" y="24" font-size="15" font-weight="bold">Speed, as a multiple of the best peer&#8217;s</text>',
        f'<text x="16" y="42">two threads, medians; {escape(machine)}</text>',
        *_legend(engines),
        *_axis(max(most, 1.0), scale, height),
        *_bars(shown, scale),
        f'<line x1="{LEFT + scale:.1f}" y1="{TOP - 6}" x2="{LEFT + scale:.1f}" y2="{height - BOTTOM}" stroke="#333"/>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(engines: list[str]) -> Iterator[str]:
    for at, engine in enumerate(engines):
        x = 16 + 130 * at
        yield f'<rect x="{x}" y="52" width="10" height="10" fill="{COLOURS[engine]}"/>'
        yield f'<text x="{x + 15}" y="61">{TITLES[engine]}</text>'


def _axis(most: float, scale: float, height: int) -> Iterator[str]:
    """Lines at round multiples, of which there are at most nine."""
    step = next(one for one in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100) if most / one < 9)
    for count in range(int(most / step) + 1):
        x = LEFT + scale * count * step
        yield f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - BOTTOM}" stroke="#e4e4e4"/>'
        yield f'<text x="{x:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{count * step:g}</text>'


def _bars(shown: list[tuple[Row, list[str]]], scale: float) -> Iterator[str]:
    y = float(TOP)
    for row, engines in shown:
        middle = y + BAR * len(engines) / 2 + 4
        yield f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{escape(row.name)}</text>'
        for engine in engines:
            speed = row.speed(engine)
            assert speed is not None
            title = f"{TITLES[engine]}: {row.outcomes[engine].median_ms:.4g} ms"
            bar = f'x="{LEFT}" y="{y:.1f}" width="{scale * speed:.1f}" height="{BAR - 2}" fill="{COLOURS[engine]}"'
            yield f"<rect {bar}><title>{escape(title)}</title></rect>"
            weight = ' font-weight="bold"' if engine == "ours" else ""
            where = f'x="{LEFT + scale * speed + 4:.1f}" y="{y + BAR - 4:.1f}"'
            yield f'<text {where} font-size="10"{weight}>{speed:.2f}</text>'
            y += BAR
        y += GAP
