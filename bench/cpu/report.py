"""The table that a run prints."""

from collections.abc import Iterator

from bench.cpu.machine import installed_bytes
from bench.cpu.measure import Outcome, Row
from rich.console import Console
from rich.table import Table

BUSY = 0.02
"""The share of a processor that sleeping workers may use before it is worth a word."""


def milliseconds(value: float) -> str:
    """About three digits: ``0.0123``, ``1.23``, ``12.3``."""
    digits = next((digits for least, digits in ((100, 0), (10, 1), (1, 2)) if value >= least), 4)
    return f"{value:.{digits}f}"


def megabytes(value: int) -> str:
    """Bytes in millions: ``0.25 MB``, ``123 MB``."""
    return f"{value / 1e6:.2f} MB" if value < 1e7 else f"{value / 1e6:.0f} MB"


def table_of(rows: list[Row]) -> Table:
    """A line for each engine, model by model."""
    table = Table(title="a step on two threads, f32 unless the model says otherwise", title_justify="left")
    table.add_column("model")
    table.add_column("engine", no_wrap=True)
    for name in ("median ms", "quartiles", "least", "speed", "of ceiling", "error", "memory", "start s", "on disk"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        for at, (engine, outcome) in enumerate(row.outcomes.items()):
            is_last = at == len(row.outcomes) - 1
            cells = cells_of(row, engine, outcome)
            style = "bold" if engine == "ours" else None
            table.add_row(row.name if at == 0 else "", engine, *cells, end_section=is_last, style=style)
    return table


def cells_of(row: Row, engine: str, outcome: Outcome) -> list[str]:
    median = outcome.median_ms
    if median is None:
        return [f"[red]{outcome.status}[/]" if outcome.status != "unwritten" else "-"]
    facts = outcome.facts()
    low, high = facts["quartiles_ms"]
    speed = row.speed(engine)
    runtime = installed_bytes(engine)
    accuracy = f"{outcome.error:.0e}" if outcome.cosine is None else f"cosine {outcome.cosine:.4f}"
    return [
        milliseconds(median),
        f"{milliseconds(low)}-{milliseconds(high)}",
        milliseconds(facts["min_ms"]),
        "" if speed is None else f"{speed:.2f}x",
        f"{row.bound_ms / median:.0%}",
        accuracy,
        megabytes(outcome.peak_bytes or 0),
        f"{outcome.start_s:.3f}",
        megabytes(outcome.model_bytes or 0) + (f" + {megabytes(runtime)}" if runtime else ""),
    ]


def next_to_f32(rows: list[Row]) -> Iterator[str]:
    """What smaller weights bring an engine: its speed next to that of the same model in f32, and how fast it reads."""
    by_key = {row.key: row for row in rows}
    for row in rows:
        original = by_key.get(row.original or "")
        for engine, outcome in row.outcomes.items() if original else ():
            own, before = outcome.median_ms, original.outcomes[engine].median_ms if original else None
            if own and before:
                speed = f"{row.read_bytes / own / 1e6:.1f} GB/s"
                yield f"{row.key}: {engine} is {before / own:.2f}x as fast as in f32, and reads {speed}"


def show(rows: list[Row], console: Console) -> None:
    """The table, and under it what is wrong, missing, or doubtful."""
    console.print(table_of(rows))
    console.print("speed: the best peer is 1; on disk: the model, then the engine that must be there too", style="dim")
    for sentence in next_to_f32(rows):
        console.print(sentence)
    for row in rows:
        for engine, outcome in row.outcomes.items():
            if outcome.status not in ("ok", "unwritten"):
                console.print(f"{row.name}: {engine} is {outcome.status}: {outcome.why}", markup=False, style="red")
            if outcome.others_cpu > BUSY:
                share = f"{outcome.others_cpu:.0%} of a core"
                console.print(f"{row.name}: while {engine} was measured, the others used {share}", style="yellow")
