"""Ops and random programs as circuits in GHDL: ``python -m tests.synth.vhdl.suite --cases 1 --programs 100``.

An op on a dtype is right, or it is refused because it computes with floats; nothing is left out. Random programs have
integers alone: the simulator, C and the circuit must say the same of each.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential.programs.judging import DifferenceError, Subject, judge, model_of, outcomes, simulator
from tests.differential.programs.structures import program_of
from tests.synth.suite import RECORD, Device, Verdict, recorded
from tests.synth.vhdl.kernels import OPS, CircuitCase, cases_for, circuit_case, mapped_failure, run_cases

from openinfer import Simulator, Synthesizer, graph
from openinfer.dtypes import DType
from openinfer.ops import Array
from openinfer.sim.compare import compare, read_trace
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.plan import Plan
from openinfer.synth.report.fabric import CircuitFootprint
from openinfer.synth.run.circuit import CircuitModule

BATCH = 8
"""Kernels of one simulation: those that wait take time in every clock."""
_TRIED = 12
"""Cases of an op and a dtype that are looked at for one without floats."""
_SHORT = 10_000
"""Clocks of a case that is simulated in a moment."""

ROUTED = """
dynamic { x: i8[4, 8]; w: i8[8, 3]; }
volatile { y: i8[4, 3]; }
persistent { k: i32 @init(3); }
block entry { op matmul(x, w) >> y; op relu(y) >> y; cache.increment k; return y; }
"""

WITHOUT_ROOM = DeviceArch.from_json("""{
    "device": {"type": "fpga", "api": "vhdl", "name": "without room for weights"},
    "fpga": {"multipliers": 2, "multiplier_bits": 16, "blocks": [
        {"kind": "large", "count": 64, "bits": 65536, "width": 8, "is_initialised": false}
    ]}
}""")
FPGAS = ("ice40-up5k", "generic-fpga", "ice40-up5k", WITHOUT_ROOM)
"""What random programs are made for."""


@dataclass
class OpVerdict(Verdict):
    """And which ops are refused on which dtypes."""

    refused: set[tuple[str, str]] = field(default_factory=set)


def integer_dtypes(name: str) -> list[DType]:
    """The dtypes of an op that are no floats."""
    return [one for one in OPS[name].dtypes if one.kind != "float"]


def circuits(name: str, dtype: DType, most: int) -> Iterator[CircuitCase]:
    """Cases of an op that are computed without floats: short ones, if there are any, before those that take long."""
    tried = islice(cases_for(name, dtype, _TRIED), _TRIED)
    made = [one for one in (circuit_case(OPS[name], case, 0) for case in tried) if one is not None]
    yield from islice(sorted(made, key=lambda one: one.unit.clocks.least > _SHORT), most)


def judged(names: list[str], most: int, *, maps: bool) -> OpVerdict:
    """Some ops on all their integer dtypes, many in one simulation; and what GHDL and yosys say of their circuits."""
    verdict, waiting = OpVerdict(), list[tuple[str, CircuitCase]]()
    for name in names:
        for dtype in integer_dtypes(name):
            found = list(circuits(name, dtype, most))
            if not found:
                verdict.refused.add((name, dtype.name))
            waiting += [(dtype.name, one) for one in found]
    for first in range(0, len(waiting), BATCH):
        batch = waiting[first : first + BATCH]
        cases = [circuit_case(one.record, one.case, at) for at, (_, one) in enumerate(batch)]
        with TemporaryDirectory() as folder:
            made = [one for one in cases if one is not None]
            results = list(run_cases(made, Path(folder)))
            refused = mapped_failure(made, Path(folder)) if maps else None
        if refused is not None:
            verdict.failures.append(f"{', '.join(one.record.name for one in made)}: {refused}")
        for (dtype_name, _), (one, error) in zip(batch, results, strict=True):
            if error is None:
                verdict.passed[one.record.name, dtype_name] += 1
            else:
                verdict.failures.append(f"{one.record.name} {dtype_name}: {error}")
    return verdict


def op_failures(names: list[str], most: int) -> list[str]:
    """What is wrong with integer cases of ops in GHDL."""
    return judged(names, most, maps=False).failures


class CircuitSubject(Subject):
    """A circuit that runs programs: a step that does not fail takes the clocks that the plan says.

    A circuit that waits for weights outside takes more.
    """

    def __init__(self, plan: Plan) -> None:
        self._module = plan.build()
        facts = plan.facts()["circuit"]
        clocks: int | list[int | None] = facts["clocks"]
        least, most = (clocks, clocks) if isinstance(clocks, int) else clocks
        self._least = least or 0
        self._most = None if facts["outside"] is not None else most
        super().__init__("VHDL", self._module)

    def run(self, inputs: Mapping[str, Array]) -> str | None:
        """One step, whose clocks are looked at."""
        code = super().run(inputs)
        if code is None:
            assert isinstance(self._module, CircuitModule)
            cycles = self._module.cycles
            if cycles < self._least or (self._most is not None and cycles > self._most):
                raise DifferenceError("VHDL clocks", f"{cycles}, not from {self._least} to {self._most}")
        return code


def program_failure(seed: int) -> str | None:
    """What is wrong with a random program of integers: in the simulator, in C, as a circuit."""
    program = program_of(seed, has_heap=False, has_floats=False)
    wanted, parsed = outcomes(program), graph(str(program))
    with TemporaryDirectory() as folder:
        model = model_of(program, Path(folder))
        try:
            judge(program, wanted, simulator(parsed, model))
            in_c = Synthesizer("generic", name=f"p{seed}").synthesize(model, parsed)
            judge(program, wanted, Subject("C", in_c.build()))
            circuit = Synthesizer(FPGAS[seed % len(FPGAS)], name=f"p{seed}").synthesize(model, parsed)
            judge(program, wanted, CircuitSubject(circuit))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is a failure of this program)
            return f"{seed}: {type(error).__name__}: {error}"
    return None


def traced_failure(seed: int) -> str | None:
    """What is wrong with the traces of a random program's circuit, in steps that do not fail."""
    program = program_of(seed, has_heap=False, has_floats=False)
    parsed = graph(str(program))
    with TemporaryDirectory() as folder:
        model = model_of(program, Path(folder))
        executor = Simulator(model).with_trace("full").make_executor(parsed)
        module = Synthesizer("generic-fpga", name=f"p{seed}").synthesize(model, parsed).build(trace="full")
        subjects = [Subject("simulator", executor), Subject("VHDL", module)]
        for place, step in enumerate(program.steps):
            codes = []
            for subject in subjects:
                subject.prepare(step.before)
                codes.append(subject.run(step.inputs))
            one, other = (read_trace(json.dumps(each.trace()), "trace") for each in (executor, module))
            difference = None if any(codes) else compare(one, other, 0.0).difference
            if difference is not None:
                return f"{seed}, traced, step {place}: {difference}"
    return None


def emitted_failure(folder: Path) -> str | None:
    """What yosys says against a project: what ``check`` finds, or a latch."""
    ended = subprocess.run(["make", "-s", "check"], cwd=folder, capture_output=True, text=True, check=False)
    return f"make check: {ended.stderr[-2000:]}" if ended.returncode else None


def checked_failure(seed: int) -> str | None:
    """The project of a random program, analysed with all warnings as errors, and checked by yosys."""
    program = program_of(seed, has_heap=False, has_floats=False)
    with TemporaryDirectory() as folder:
        plan = Synthesizer("generic-fpga", name=f"p{seed}").synthesize(
            model_of(program, Path(folder)), graph(str(program))
        )
        plan.emit(Path(folder) / "out")
        found = emitted_failure(Path(folder) / "out")
    return None if found is None else f"{seed}: {found}"


def routing_failure() -> str | None:
    """What yosys and nextpnr say against a small circuit, mapped to an iCE40, placed and routed."""
    measured = Synthesizer("ice40-up5k", name="net").synthesize(None, graph(ROUTED)).footprint()
    assert isinstance(measured, CircuitFootprint)
    print(measured.text(), flush=True)
    if measured.unmeasured or not measured.hertz or "ICESTORM_LC" not in measured.used:
        return f"routed: {measured}"
    return None


def device() -> Device:
    """What circuits run on, for the page of ops."""
    version = subprocess.run(["ghdl", "--version"], capture_output=True, text=True, check=True).stdout
    return Device("vhdl", version.splitlines()[0], "--std=08", "simulation")


def run_ops(names: list[str], cases: int, *, notes: bool) -> int:
    """All ops, several at a time; how many cases are wrong."""
    whole = OpVerdict()
    with ProcessPoolExecutor() as pool:
        for found in pool.map(partial(judged, most=cases, maps=True), [[name] for name in names]):
            whole.add(found)
            whole.refused |= found.refused
            for failure in found.failures:
                print(failure, flush=True)
    right, refused = len(whole.passed), len(whole.refused)
    print(f"ops: {right} pairs of op and dtype right, {refused} refused (floats), {len(whole.failures)} cases wrong")
    for name, dtype in sorted(whole.refused):
        print(f"  refused: {name} {dtype}")
    if notes:
        recorded(RECORD, device(), whole, whole.refused)
    return len(whole.failures)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--ops", nargs="*", default=sorted(OPS), help="these alone")
    parser.add_argument("--record", action="store_true", help="note what passed for docs/ops.md")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--checked", type=int, default=0, help="projects of programs that yosys checks")
    parser.add_argument("--traced", type=int, default=0, help="programs whose traces are compared as well")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first program")
    parser.add_argument("--route", action="store_true", help="map, place and route a circuit as well")
    options = parser.parse_args()
    count = run_ops(options.ops, options.cases, notes=options.record) if options.ops else 0
    first = options.first
    with ProcessPoolExecutor() as pool:
        found = chain(
            [routing_failure()] if options.route else [],
            pool.map(program_failure, range(first, first + options.programs)),
            pool.map(traced_failure, range(first, first + options.traced)),
            pool.map(checked_failure, range(first, first + options.checked)),
        )
        for failure in filter(None, found):
            print(failure, flush=True)
            count += 1
    print(f"{options.programs} programs in the simulator, in C and as circuits")
    print(f"{options.traced} traced, {options.checked} checked by yosys")
    print(f"{count} failures")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
