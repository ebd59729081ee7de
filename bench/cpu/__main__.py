"""Every model on every engine, side by side, on two threads: ``make bench``. ``bench/README.md`` says how."""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.ceilings import Ceilings
from bench.cpu.cases import ALL, CASES
from bench.cpu.engines import THREADS
from bench.cpu.machine import ceiling_facts, machine_facts
from bench.cpu.measure import ROUND, Row, measured
from bench.cpu.plot import speed_svg
from bench.cpu.process import PEER_ENVIRONMENT, TORCH_ENVIRONMENT
from bench.cpu.report import show
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from openinfer.synth.targets.cpu.machine import host

BUILD = Path("build/bench")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cpu", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"any of {', '.join(CASES)}; else all")
    parser.add_argument("--engines", nargs="+", choices=ALL, default=ALL, help="else all")
    parser.add_argument("--rounds", type=int, help="how often each engine is measured on each model; else 21")
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    parser.add_argument("--json", type=Path, default=BUILD / "cpu.json", help="where all figures go")
    parser.add_argument("--svg", type=Path, default=BUILD / "cpu.svg", help="where the picture goes")
    options = parser.parse_args(arguments)
    unknown = [model for model in options.models if model not in CASES]
    if unknown:
        parser.error(f"there is no model {unknown[0]!r}: choose from {', '.join(CASES)}")
    options.rounds = options.rounds or (5 if options.quick else 21)
    if options.rounds < 1:
        parser.error("there must be a round")
    options.models = list(dict.fromkeys(options.models)) or list(CASES)
    options.engines = [engine for engine in ALL if engine in options.engines]
    return options


def run(options: argparse.Namespace, console: Console) -> tuple[dict[str, Any], list[Row]]:
    """The facts of a run, and its rows."""
    rows = []
    columns = (TextColumn("{task.description:36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with TemporaryDirectory(prefix="bench-") as name, Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(
            "ceilings", total=len(options.models) * (options.rounds + len(options.engines) + 1), completed=-1
        )
        ceilings = Ceilings(host())
        most = ceiling_facts(ceilings)
        for model in options.models:

            def tell(what: str, model: str = model) -> None:
                progress.update(bar, advance=1, description=f"{model}: {what}")

            with TemporaryDirectory(dir=name) as folder:
                case = CASES[model]
                rows.append(measured(case, options.engines, Path(folder), ceilings, options.rounds, tell))
    settings = {
        "threads": THREADS,
        "rounds": options.rounds,
        "round_s": ROUND,
        "environment": {"peers": PEER_ENVIRONMENT, "torch": TORCH_ENVIRONMENT},
    }
    facts = {"machine": machine_facts(), "settings": settings, "ceilings": most}
    return facts | {"models": [row.facts() for row in rows]}, rows


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 if an engine was wrong or failed."""
    options = options_of(arguments)
    console = Console()
    console.width = max(console.width, 140)  # the table needs it, in a file and in a narrow terminal too
    facts, rows = run(options, console)
    processor = facts["machine"]["processor"]
    console.print(f"{processor}: " + ", ".join(f"{name} {value:.0f}" for name, value in facts["ceilings"].items()))
    show(rows, console)
    for path, text in ((options.json, json.dumps(facts, indent=2) + "\n"), (options.svg, speed_svg(rows, processor))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    console.print(f"{options.json}, {options.svg}", style="dim")
    return int(any(one.status in ("wrong", "failed") for row in rows for one in row.outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
