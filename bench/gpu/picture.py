"""A picture of what ``bench.gpu.versus`` has measured: how much of what the device allows each way comes to."""

from html import escape
from typing import Any

COLOURS = {
    "h200": "#1a6b3c",
    "h200-vulkan": "#5fb37f",
    "torch, eager": "#c9c9c9",
    "torch, CUDA graph": "#a0a0a0",
    "torch.compile, CUDA graph": "#d9a066",
    "torch.compile, max-autotune": "#c26a2c",
}
OTHER = "#777"
LEFT, WIDTH, BAR, GAP, TOP = 170, 560, 11, 12, 70
FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11" fill="#333"'


def picture(found: dict[str, Any]) -> str:
    """Horizontal bars, grouped by model: percent of the ceiling, with the time behind each."""
    at, parts = TOP, []
    for name, case in found["cases"].items():
        runs = [(way, one) for way, one in case.get("runs", {}).items() if "us" in one]
        for place, (way, one) in enumerate(runs):
            percent = min(float(one["percent_of_ceiling"]), 100.0)
            width = round(percent / 100 * WIDTH, 1)
            if place == 0:
                parts.append(f'<text x="{LEFT - 8}" y="{at + 9}" text-anchor="end">{escape(name)}</text>')
            parts.append(
                f'<rect x="{LEFT}" y="{at}" width="{width}" height="{BAR - 2}" fill="{COLOURS.get(way, OTHER)}"/>'
            )
            label = f"{one['us']:,.0f} µs" + ("" if one.get("agrees", True) else ", wrong")
            parts.append(f'<text x="{LEFT + width + 4}" y="{at + 8}" font-size="9">{label}</text>')
            at += BAR
        at += GAP * bool(runs)
    legend = [
        f'<rect x="{LEFT + 190 * (place % 3)}" y="{30 + 16 * (place // 3)}" width="10" height="10" fill="{colour}"/>'
        f'<text x="{LEFT + 14 + 190 * (place % 3)}" y="{39 + 16 * (place // 3)}">{escape(way)}</text>'
        for place, (way, colour) in enumerate(COLOURS.items())
    ]
    size = f'width="{LEFT + WIDTH + 110}" height="{at + 10}"'
    title = '<text x="16" y="18" font-size="14" font-weight="bold">Percent of what the device allows, and time</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>\n<rect {size} fill="#fff"/>'
    return "\n".join([head, title, *legend, *parts, "</svg>"]) + "\n"
