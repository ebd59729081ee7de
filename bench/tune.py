"""Choices for the products of the benchmark's models, measured on this machine: the records that are shipped.

A choice is kept only if whole steps of the model are faster with all that were found for it; what other models have
found is kept as it is. ``make tune`` does it for all of them, on one thread and on two.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from bench.cpu.cases import CASES
from bench.models import Model

from openinfer import DeviceArch, Divide, ModelLoader, Passes, Plan, Synthesizer, graph
from openinfer.synth.run.timed import TimedModule
from openinfer.synth.targets.c.project import Project
from openinfer.synth.tuning.records import FOLDER, Record, Tuned
from openinfer.synth.tuning.tune import Tune

_WORTH = 0.99
"""Steps must take no more than this, compared with those by rule."""


def planned(model: Model, loader: ModelLoader, passes: Passes) -> Plan:
    return Synthesizer(name="net", passes=passes).synthesize(loader, graph(model.text), sizes=model.settled)


def described(record: Record) -> str:
    product, choice = record.product, record.choice
    shape = f"{product.rows} x {product.inner} times {product.inner} x {product.columns} ({product.stored})"
    return f"{shape}: {'by rule' if choice is None else choice}"


def found(model: Model, loader: ModelLoader, passes: Passes, seconds: float) -> tuple[Record, ...]:
    """The records of tiles that are better than the rule's."""
    records: list[Record] = []

    def note(done: int, total: int, record: Record) -> None:
        records.append(record)
        print(f"  {done} of {total}: {described(record)}", flush=True)

    planned(model, loader, replace(passes, tune=Tune(seconds, after_product=note)))
    return tuple(record for record in records if record.choice is not None)


def compared(model: Model, loader: ModelLoader, passes: Passes, tuned: Tuned, seconds: float) -> tuple[float, float]:
    """Milliseconds for a step by rule, and how long one with choices takes compared with it, in turns: medians."""
    both = [planned(model, loader, replace(passes, tuned=one)) for one in (Tuned(), tuned)]
    projects = [plan.project for plan in both]
    modules = [TimedModule(project, "gcc") for project in projects if isinstance(project, Project)]
    rounds: list[list[float]] = []
    end = perf_counter() + seconds
    while len(rounds) < 15 or perf_counter() < end:
        rounds.append([])
        for module in modules:
            model.begin(module)
            module.run_step()
            rounds[-1].append(module.seconds * 1e3)
    times = np.array(rounds[2:])
    return float(np.median(times[:, 0])), float(np.median(times[:, 1] / times[:, 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*CASES], help=f"any of {', '.join(CASES)}")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each product, and for the comparison of steps")
    parser.add_argument("--output", type=Path, help="the file of records; else the shipped one of this machine")
    options = parser.parse_args()
    arch = DeviceArch.detect()
    path = options.output or FOLDER / f"{arch.cpu.isa}.json"
    for name in options.models:
        model = CASES[name].build()
        with TemporaryDirectory() as folder, model.saved(Path(folder)) as loader:
            for threads in options.threads:
                print(f"{name} on {threads} thread{'s' * (threads > 1)}", flush=True)
                passes = replace(Passes.preferred(arch), divide=Divide(threads))
                records = found(model, loader, passes, options.seconds)
                if not records:
                    continue
                before, share = compared(model, loader, passes, Tuned(records=records), options.seconds)
                is_kept = share <= _WORTH
                print(f"  a step: {before:.4g} ms by rule, {share:.3f} of it so: {'kept' if is_kept else 'not kept'}")
                if is_kept:
                    known = Tuned.load(path) if path.exists() else Tuned()
                    known.including(*records).save(path)


if __name__ == "__main__":
    main()
