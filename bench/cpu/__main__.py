"""Every model on every engine, side by side, on one thread and on two: ``make bench``. ``bench/README.md`` says how."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.ceilings import Ceilings
from bench.cpu.cases import CASES, keys_like
from bench.cpu.machine import ceiling_facts, machine_facts
from bench.cpu.measure import Row, Run, measured
from bench.cpu.peers import ALL
from bench.cpu.plot import speed_svg
from bench.cpu.process import PEER_ENVIRONMENT, TORCH_ENVIRONMENT
from bench.cpu.report import show
from bench.cpu.table import write_table
from bench.cpu.turns import ROUND
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from openinfer.synth.targets.cpu.machine import host

BUILD = Path("build/bench")
ROUNDS, QUICK = 9, 3


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cpu", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"any of {', '.join(CASES)}; else all")
    parser.add_argument("--only", nargs="+", metavar="PATTERN", default=[], help="models by pattern: 'minilm-*'")
    parser.add_argument("--peers", nargs="+", choices=ALL[1:], help="engines to measure against; else all")
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1], help="numbers of threads; else 2 and 1")
    parser.add_argument("--rounds", type=int, help=f"how often each engine is measured on each model; else {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds, two threads, no torch.compile")
    parser.add_argument("--details", action="store_true", help="print a line for each engine, with all figures")
    parser.add_argument("--json", type=Path, default=BUILD / "cpu.json", help="where all figures go")
    parser.add_argument("--svg", type=Path, default=BUILD / "cpu.svg", help="where the picture goes")
    parser.add_argument("--files", type=Path, default=BUILD / "files", help="where models are kept for the next run")
    parser.add_argument("--write", action="store_true", help="write table and picture of docs/performance.md anew")
    options = parser.parse_args(arguments)
    unknown = [model for model in options.models if model not in CASES]
    if unknown:
        parser.error(f"there is no model {unknown[0]!r}: choose from {', '.join(CASES)}")
    options.models = keys_like([*options.models, *options.only], parser)
    options.rounds = options.rounds or (QUICK if options.quick else ROUNDS)
    if options.rounds < 1 or min(options.threads) < 1:
        parser.error("there must be a round, and a thread")
    chosen = options.peers or [one for one in ALL if not (options.quick and one == "torch")]
    options.engines = tuple(engine for engine in ALL if engine in ("ours", *chosen))
    options.threads = [2] if options.quick and options.threads == [2, 1] else options.threads
    return options


def run(options: argparse.Namespace, console: Console) -> tuple[dict[str, Any], list[Row]]:
    """The facts of a run, and its rows."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description:36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    each = 1 + len(options.threads) * (options.rounds + len(options.engines))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("ceilings", total=len(options.models) * each, completed=-1)
        ceilings = Ceilings(host())
        most = ceiling_facts(ceilings, sorted(options.threads))
        plan = Run(options.engines, tuple(options.threads), options.rounds, ceilings)
        for model in options.models:

            def tell(what: str, model: str = model) -> None:
                progress.update(bar, advance=1, description=f"{model}: {what}")

            rows += measured(plan, CASES[model], options.files / model, tell)
    settings = {
        "threads": options.threads,
        "rounds": options.rounds,
        "round_s": ROUND,
        "environment": {"peers": PEER_ENVIRONMENT, "torch": TORCH_ENVIRONMENT},
    }
    facts = {"machine": machine_facts(), "settings": settings, "ceilings": most}
    return facts | {"models": [row.facts() for row in rows]}, rows


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 if ours was wrong or failed. Peers that were are listed."""
    options = options_of(arguments)
    console = Console()
    console.width = max(console.width, 150)  # the table needs it, in a file and in a narrow terminal too
    facts, rows = run(options, console)
    processor = facts["machine"]["processor"]
    console.print(f"{processor}: " + ", ".join(f"{name} {value:.0f}" for name, value in facts["ceilings"].items()))
    show(rows, console, is_long=options.details)
    picture = speed_svg(rows, processor)
    for path, text in ((options.json, json.dumps(facts, indent=2) + "\n"), (options.svg, picture)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if options.write:
        write_table(facts, picture)
    console.print(f"{options.json}, {options.svg}", style="dim")
    return int(any(row.outcomes["ours"].status != "ok" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
