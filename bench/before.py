"""Generated C of an earlier checkout and of this one, in turns: ``make bench-before``. ``bench/README.md`` says how."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.cpu.cases import CASES, Case, keys_like
from bench.cpu.machine import machine_facts, revision
from bench.cpu.measure import judged, output_of
from bench.cpu.peers import ROOT
from bench.cpu.prepare import CONTEXT, Prepared, begun, described, share_equal, tidied
from bench.cpu.process import UnableEngineError, Worker
from bench.cpu.report import milliseconds
from bench.cpu.turns import Outcome, Turns, noted
from bench.models import Model
from rich.console import Console
from rich.table import Table

from openinfer import DeviceArch

ROUNDS, TOGETHER = 15, 3
"""Rounds, and after how many both processes are restarted: times also depend on where their memory happens to lie."""
BEFORE, AFTER = "before", "after"
EMIT = """
import json
from dataclasses import replace
from pathlib import Path
import openinfer
from openinfer import DeviceArch, Divide, ModelLoader, Passes, Synthesizer, graph
asked = json.loads(Path("request.json").read_text(encoding="utf-8"))
if not Path(openinfer.__file__).is_relative_to(asked["sources"]):
    raise ImportError("these are not the sources of the checkout")
own, device = Path(asked["folder"]), DeviceArch.from_json(asked["device"])
allowed = {"allow": frozenset(asked["allow"])} if asked["allow"] else {}
passes = replace(Passes.preferred(device), divide=Divide(threads=asked["threads"]), **allowed)
maker = Synthesizer(device, name="net", passes=passes)
plan = maker.synthesize(ModelLoader.open("model.oinf"), graph(asked["graph"]), sizes=asked["sizes"])
plan.emit(own / "project")
if Path("state.oinf").exists():
    module = plan.build()
    module.load_state("state.oinf")
    module._state.tofile(own / "state.bin")
"""
"""How any checkout writes a project and the state before a step, in a folder with the model and with what is asked."""


@dataclass(frozen=True)
class Pair:
    """A model with the code of both checkouts; without code from the earlier one, the later one has no outcome."""

    key: str
    threads: int
    outcomes: dict[str, Outcome]

    @property
    def is_ok(self) -> bool:
        return all(one.status == "ok" for one in self.outcomes.values())

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"key": self.key, "threads": self.threads}
        if self.is_ok:
            ratios = np.divide(self.outcomes[AFTER].times_ms, self.outcomes[BEFORE].times_ms)
            low, middle, high = np.percentile(ratios, (25, 50, 75)).tolist()
            found |= {"ratio": middle, "ratio_quartiles": [low, high], "ratios": ratios.tolist()}
        return found | {side: one.facts() for side, one in self.outcomes.items()}


def ran(command: list[str], folder: Path, **more: str) -> None:
    """Run a program with more variables in its environment; if it fails, the last error that it prints is why."""
    ended = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, env={**os.environ, **more})
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
        named = [line for line in lines if line.partition(":")[0].endswith("Error") or ": error:" in line]
        raise UnableEngineError((named or lines)[-1][:300])


def built(model: Model, own: Path, sources: str, request: dict[str, Any]) -> None:
    """The project of a checkout, compiled by its own Makefile, as a worker loads it."""
    project, folder = own / "project", own.parent.parent
    project.mkdir(parents=True, exist_ok=True)
    asked = {**request, "sources": sources, "folder": str(own), "graph": model.text, "sizes": model.settled}
    (folder / "request.json").write_text(json.dumps(asked), encoding="utf-8")
    ran([sys.executable, "-c", EMIT], folder, PYTHONPATH=sources)
    (project / "src" / "context.c").write_text(CONTEXT, encoding="ascii")
    ran(["make", "CFLAGS=-O3 -fPIC"], project, MAKEFLAGS="")
    library = ["-Wl,--whole-archive", "build/libnet.a", "-Wl,--no-whole-archive", "-pthread"]
    ran(["gcc", "-shared", "-fPIC", "-s", "-Iinclude", "src/context.c", *library, "-o", "../program.so"], project)
    (project / "src" / "weights.bin").replace(own / "weights.bin")
    described(model, json.loads((project / "plan.json").read_text(encoding="ascii")), own)
    np.savez(own.parent / "inputs.npz", **model.inputs)


def started(pair: Pair, folder: Path, stack: ExitStack) -> Turns:
    """Both programs in processes of their own, after their first steps, whose results are compared."""
    turns = Turns(pair.outcomes)
    for side, outcome in pair.outcomes.items():
        with noted(outcome):
            worker = turns.workers[side] = Worker("ours", pair.key, folder / side, pair.threads)
            stack.callback(worker.end)
            worker.wait_until_ready()
            turns.first_step(side)
    if pair.is_ok:
        before, after = (output_of(folder / side, "ours.npy") for side in (BEFORE, AFTER))
        judged(pair.outcomes[AFTER], after, "ours", Prepared(folder, before, None, None, {}))
    return turns


def timed(pair: Pair, folder: Path, rounds: int) -> None:
    """Rounds in turns, as long as both programs run and agree."""
    for first in range(0, rounds, TOGETHER):
        with ExitStack() as stack:
            turns = started(pair, folder, stack)
            for number in range(first, min(first + TOGETHER, rounds)):
                if pair.is_ok:
                    turns.round(number)


def measured(case: Case, options: argparse.Namespace, console: Console) -> Iterator[Pair]:
    """Both programs of a model, for each number of threads."""
    model, folder = case.build(), (options.folder / "before" / case.key).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with model.saved(folder) as loader:
        if model.plain or model.tables:
            begun(model, loader).save_state(folder / "state.oinf")
    for threads in options.threads:
        pair, own = Pair(case.key, threads, {}), f"ours-{threads}"
        request = {"device": DeviceArch.detect().to_json(), "allow": sorted(case.allow), "threads": threads}
        for side, checkout in options.checkouts.items():
            if pair.is_ok:
                console.print(f"{case.key} (threads: {threads}): {side}", style="dim")
                with noted(pair.outcomes.setdefault(side, Outcome())):
                    built(model, folder / side / own, str(checkout / "src"), request)
        if pair.is_ok:
            share_equal([folder / side / own / "weights.bin" for side in (BEFORE, AFTER)])
            timed(pair, folder, options.rounds)
        yield pair
    for place in (folder, *(folder / side for side in options.checkouts)):
        tidied(place)


def show(pairs: Sequence[Pair], console: Console) -> None:
    """The table, and under it what is refused, wrong or failed."""
    table = Table(title="milliseconds of a step: median, quartiles", title_justify="left")
    for name in ("model", "threads", BEFORE, "", AFTER, "", "after / before", "", "difference"):
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for pair in pairs:
        if pair.is_ok:
            facts, cells = pair.facts(), [pair.key, str(pair.threads)]
            for side in (BEFORE, AFTER):
                low, high = map(milliseconds, facts[side]["quartiles_ms"])
                cells += [milliseconds(facts[side]["median_ms"]), f"{low}-{high}"]
            low, high = facts["ratio_quartiles"]
            table.add_row(*cells, f"{facts['ratio']:.3f}", f"{low:.3f}-{high:.3f}", f"{facts[AFTER]['error']:.0e}")
    console.print(table)
    for pair in pairs:
        for side, one in pair.outcomes.items():
            if one.status != "ok":
                console.print(f"{pair.key} (threads: {pair.threads}): {side} is {one.status}: {one.why}", markup=False)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 if code of this checkout was wrong or failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"any of {', '.join(CASES)}, or patterns; else all")
    parser.add_argument("--before", type=Path, required=True, metavar="FOLDER", help="of the earlier checkout")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads; else 1 and 2")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often each is measured; else {ROUNDS}")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for projects and before.json")
    options = parser.parse_args(arguments)
    if not (options.before / "src" / "openinfer").is_dir():
        parser.error(f"{options.before} is no checkout: it has no src/openinfer")
    if min(options.rounds, *options.threads) < 1:
        parser.error("there must be a round, and a thread")
    options.checkouts = {BEFORE: options.before.resolve(), AFTER: ROOT}
    console = Console(width=max(Console().width, 150))
    pairs = [pair for key in keys_like(options.models, parser) for pair in measured(CASES[key], options, console)]
    show(pairs, console)
    facts = {
        "machine": machine_facts(),
        "settings": {"rounds": options.rounds, "fresh_after": TOGETHER},
        "revisions": {side: revision(checkout) for side, checkout in options.checkouts.items()},
        "models": [pair.facts() for pair in pairs],
    }
    path = options.folder / "before.json"
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    console.print(str(path), style="dim")
    return int(any(pair.outcomes.get(AFTER, Outcome()).status != "ok" for pair in pairs))


if __name__ == "__main__":
    sys.exit(main())
