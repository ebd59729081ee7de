"""The tables that a run prints: all engines side by side, and everything about each."""

from collections.abc import Iterator

from bench.cpu.install import installed_bytes
from bench.cpu.measure import Row
from bench.cpu.peers import PEERS
from bench.cpu.turns import Outcome
from rich.console import Console
from rich.table import Table

BUSY = 0.02
"""The share of a processor that sleeping workers may use before it is worth a word."""
QUIET = ("ok", "unwritten", "missing")


def milliseconds(value: float) -> str:
    """About three digits: ``0.0123``, ``1.23``, ``12.3``."""
    digits = next((digits for least, digits in ((100, 0), (10, 1), (1, 2)) if value >= least), 4)
    return f"{value:.{digits}f}"


def megabytes(value: int) -> str:
    """Bytes in millions: ``0.25 MB``, ``123 MB``."""
    return f"{value / 1e6:.2f} MB" if value < 1e7 else f"{value / 1e6:.0f} MB"


def engines_of(rows: list[Row]) -> list[str]:
    """The engines that have a time on any model, in the order of the list of all."""
    timed = {engine for row in rows for engine, one in row.outcomes.items() if one.median_ms}
    return [engine for engine in PEERS if engine in timed]


def overview(rows: list[Row]) -> Table:
    """A line for each model and number of threads: milliseconds of each engine, and how fast ours is."""
    table = Table(title="median milliseconds of a step", title_justify="left")
    table.add_column("model")
    table.add_column("threads", justify="right")
    engines = engines_of(rows)
    for engine in engines:
        table.add_column(PEERS[engine].title, justify="right", no_wrap=True)
    table.add_column("speed", justify="right", no_wrap=True)
    table.add_column("of ceiling", justify="right", no_wrap=True)
    table.add_column("handover ns", justify="right", no_wrap=True)
    for row in rows:
        times = {engine: row.outcomes[engine].median_ms for engine in engines if engine in row.outcomes}
        best = min((time for time in times.values() if time), default=None)
        cells = [cell(times.get(engine), best, row.outcomes.get(engine)) for engine in engines]
        speed, own = row.speed("ours"), times.get("ours")
        share = f"{row.bound_ms / own:.0%}" if own else ""
        colour = "green" if speed is None or speed >= 1 else "red"
        shown = "" if speed is None else f"[{colour}]{speed:.2f}x[/]"
        handover = "" if row.handover_ns is None else f"{row.handover_ns:.0f}"
        table.add_row(row.key, str(row.threads), *cells, shown, share, handover)
    return table


def cell(time: float | None, best: float | None, outcome: Outcome | None) -> str:
    if time is None:
        return "" if outcome is None or outcome.status == "unwritten" else f"[dim]{outcome.status}[/]"
    return f"[bold]{milliseconds(time)}[/]" if time == best else milliseconds(time)


def details(rows: list[Row]) -> Table:
    """A line for each engine, model by model."""
    table = Table(title="a step, f32 unless the model says otherwise", title_justify="left")
    table.add_column("model")
    table.add_column("engine", no_wrap=True)
    for name in ("median ms", "quartiles", "least", "speed", "of ceiling", "error", "memory", "start s", "on disk"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        told = [(engine, outcome) for engine, outcome in row.outcomes.items() if outcome.status != "unwritten"]
        for at, (engine, outcome) in enumerate(told):
            cells = cells_of(row, engine, outcome)
            style = "bold" if engine == "ours" else None
            name = f"{row.name}, {row.threads} thread{'s' if row.threads > 1 else ''}" if at == 0 else ""
            table.add_row(name, engine, *cells, end_section=at == len(told) - 1, style=style)
    return table


def cells_of(row: Row, engine: str, outcome: Outcome) -> list[str]:
    median = outcome.median_ms
    if median is None:
        return [f"[red]{outcome.status}[/]"]
    facts = outcome.facts()
    low, high = facts["quartiles_ms"]
    speed = row.speed(engine)
    runtime = installed_bytes(PEERS[engine])
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
    by_key = {(row.key, row.threads): row for row in rows}
    for row in rows:
        original = by_key.get((row.original or "", row.threads))
        for engine, outcome in row.outcomes.items() if original else ():
            before = original.outcomes.get(engine) if original else None
            own, other = outcome.median_ms, before.median_ms if before else None
            if own and other:
                speed = f"{row.read_bytes / own / 1e6:.1f} GB/s"
                line = f"{row.key}, {row.threads} threads: {engine} is {other / own:.2f}x as fast as in f32"
                yield f"{line}, and reads {speed}"


def show(rows: list[Row], console: Console, *, is_long: bool) -> None:
    """The tables, and under them what is wrong, missing, or doubtful."""
    console.print(details(rows) if is_long else overview(rows))
    console.print("speed: the best peer is 1; on disk: the model, then the engine that must be there too", style="dim")
    for sentence in next_to_f32(rows) if is_long else ():
        console.print(sentence)
    missing = {engine: one.why for row in rows for engine, one in row.outcomes.items() if one.status == "missing"}
    for engine, why in missing.items():
        console.print(f"{engine} is missing: {why}", markup=False, style="red")
    said = set()
    for row in rows:
        for engine, outcome in row.outcomes.items():
            line = f"{row.name}: {engine} is {outcome.status}: {outcome.why}"
            if outcome.status not in QUIET and line not in said:
                said.add(line)
                console.print(line, markup=False, style="red" if outcome.status != "unable" else "yellow")
            if outcome.others_cpu > BUSY:
                share = f"{outcome.others_cpu:.0%} of a core"
                console.print(f"{row.name}: while {engine} was measured, the others used {share}", style="yellow")
