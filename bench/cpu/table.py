"""The table of ``docs/performance.md``, written from the figures of a run: ``python -m bench.cpu.table cpu.json``.

It stands between two comments, which stay. Nothing in between is typed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from bench.cpu.peers import PEERS, ROOT

PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- figures: written by make bench BENCH=--write -->", "<!-- end of figures -->"


def write_table(facts: dict[str, Any], picture: str | None = None) -> None:
    """Put the figures of a run into the page, and its picture beside it."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables(facts)}{END}{after}", encoding="utf-8")
    if picture is not None:
        PICTURE.write_text(picture, encoding="utf-8")


def tables(facts: dict[str, Any]) -> str:
    """What it was measured on, a table for each number of threads, and why there are gaps."""
    parts = [machine(facts)]
    for threads in facts["settings"]["threads"]:
        rows = [row for row in facts["models"] if row["threads"] == threads]
        heading = f"**{threads} thread{'s' if threads > 1 else ''}** (milliseconds for a step)"
        parts.append(f"{heading}\n\n{table(rows)}")
    gaps = reasons(facts["models"])
    if gaps:
        parts.append("Models without a figure:\n\n" + "\n".join(f"* {line}" for line in gaps))
    return "\n" + "\n\n".join(parts) + "\n\n"


def machine(facts: dict[str, Any]) -> str:
    own, ceilings = facts["machine"], facts["ceilings"]
    versions = ", ".join(
        f"{PEERS[name].title} {version}" for name, version in own["versions"].items() if name in PEERS and version
    )
    speeds = ", ".join(f"{name.replace('_', ' ')} {value:.0f}" for name, value in ceilings.items())
    rounds = facts["settings"]["rounds"]
    return f"{own['processor']}, {own['cores']} cores ({speeds}); {versions}. Medians of {rounds} interleaved rounds."


def table(rows: list[dict[str, Any]]) -> str:
    timed = {engine for row in rows for engine, one in row["engines"].items() if one.get("median_ms")}
    engines = [engine for engine in PEERS if engine in timed]
    has_handover = any(row.get("handover_ns") for row in rows)
    titles = ["model", *(PEERS[engine].title for engine in engines), "speed", "of ceiling"]
    titles += ["handover ns"] * has_handover
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        times = {engine: row["engines"].get(engine, {}).get("median_ms") for engine in engines}
        best = min((time for time in times.values() if time), default=None)
        cells = [number(times[engine], is_best=times[engine] == best) for engine in engines]
        speed = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        share = row["engines"].get("ours", {}).get("share_of_ceiling")
        handover = row.get("handover_ns")
        shown = [*cells, speed, f"{share:.0%}" if share else ""]
        shown += [f"{handover:.0f}" if handover else ""] * has_handover
        lines.append(f"| {row['name']} | {' | '.join(shown)} |")
    return "\n".join(lines)


def number(value: float | None, *, is_best: bool) -> str:
    if value is None:
        return ""
    shown = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return f"**{shown}**" if is_best else shown


def reasons(rows: list[dict[str, Any]]) -> list[str]:
    """Why an engine has no time on a model, each reason once."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for engine, one in row["engines"].items():
            if one["status"] not in ("ok", "unwritten", "missing"):
                models = found.setdefault((engine, f"{one['status']}: {one['why']}"), [])
                models += [row["key"]] if row["key"] not in models else []
    return [f"{PEERS[engine].title}, {', '.join(models)}: {why}" for (engine, why), models in found.items()]


if __name__ == "__main__":
    write_table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
