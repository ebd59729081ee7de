"""Renders a plan for notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from openinfer.ir.html import captioned, html_table
from openinfer.oinf.report import size_text


def plan_html(title: str, sizes: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]], picture: str) -> str:
    """A plan: its memory use, its kernels with their costs, and a picture of the arena."""
    memory = [(name, size_text(sizes[name])) for name in ("arena", "state", "weights")]
    rows = [
        (
            one["name"],
            ", ".join(str(node["index"]) for node in one["nodes"]),
            f"{one['operations']:,}",
            size_text(one["bytes_read"] + one["bytes_written"]),
            one["calls"] if one["calls"] is not None else "?",
        )
        for one in kernels
    ]
    calls = html_table(("kernel", "nodes", "operations", "bytes moved", "calls"), rows)
    return captioned(title, html_table(("memory", "bytes"), memory), calls, picture)
