"""Ops and random programs as circuits in GHDL: ``python -m tests.synth.vhdl.suite --cases 1 --programs 100``."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential.programs.judging import Subject, judge, model_of, outcomes
from tests.differential.programs.structures import program_of
from tests.synth.vhdl.kernels import OPS, CircuitCase, cases_for, circuit_case, run_cases

from openinfer import GraphError, Synthesizer, graph

BATCH = 8
"""Kernels of one simulation: those that wait take time in every clock."""

ROUTED = """
dynamic { x: i8[4, 8]; w: i8[8, 3]; }
volatile { y: i8[4, 3]; }
persistent { k: i32 @init(3); }
block entry { op matmul(x, w) >> y; op relu(y) >> y; cache.increment k; return y; }
"""


def op_failures(names: list[str], most: int) -> Iterator[str]:
    """What is wrong with integer cases of ops; cases that compute with floats are left out."""
    waiting: list[CircuitCase] = []
    for name in names:
        for dtype in OPS[name].dtypes:
            for case in cases_for(name, dtype, most) if dtype.kind != "float" else ():
                made = circuit_case(OPS[name], case, len(waiting))
                waiting += [] if made is None else [made]
                if len(waiting) == BATCH:
                    yield from _wrong(waiting)
                    waiting = []
    yield from _wrong(waiting)


def _wrong(cases: list[CircuitCase]) -> Iterator[str]:
    if cases:
        with TemporaryDirectory() as folder:
            found = list(run_cases(cases, Path(folder)))
        yield from (f"{one.record.name}: {error}" for one, error in found if error is not None)


def program_failure(seed: int) -> str | None:
    """What is wrong with a random program as a circuit; nothing where it computes with floats."""
    program = program_of(seed, has_heap=False)
    with TemporaryDirectory() as folder:
        model = model_of(program, Path(folder))
        try:
            plan = Synthesizer("generic-fpga", name=f"p{seed}").synthesize(model, graph(str(program)))
        except GraphError as error:
            return None if str(error.code) == "E805" else f"{seed}: {error}"
        try:
            judge(program, outcomes(program), Subject("VHDL", plan.build()))
        except AssertionError as error:
            return f"{seed}: {error}"
    return None


def routing_failure() -> str | None:
    """What yosys and nextpnr say against a small circuit, mapped to an iCE40, placed and routed."""
    with TemporaryDirectory() as folder:
        Synthesizer("ice40-up5k", name="net").synthesize(None, graph(ROUTED)).emit(folder)
        ended = subprocess.run(["make", "-s", "pnr"], cwd=folder, capture_output=True, text=True, check=False)
    return f"make pnr: {ended.stderr[-2000:]}" if ended.returncode else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--ops", nargs="*", default=sorted(OPS), help="these alone")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--route", action="store_true", help="map, place and route a circuit as well")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first program")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.programs)
    routed = [routing_failure()] if options.route else []
    found = chain(routed, op_failures(options.ops, options.cases), map(program_failure, seeds))
    count = 0
    for failure in filter(None, found):
        print(failure, flush=True)
        count += 1
    print(f"{count} failures")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
