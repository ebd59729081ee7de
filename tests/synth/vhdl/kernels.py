"""Kernels of single ops as circuits, many in one simulation, compared with the simulator's reference."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path

import numpy as np
from tests.synth.in_c import call_of, cases_of, judge, loaded, stored_bytes

from openinfer.dtypes import DType
from openinfer.loops.expand import plain
from openinfer.loops.ir import Kernel
from openinfer.ops import OPS, Call, Case, OpRecord
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.vhdl.code import MemoryPlace
from openinfer.synth.targets.vhdl.expressions import UncomputableError
from openinfer.synth.targets.vhdl.memories import ram_text
from openinfer.synth.targets.vhdl.ports import MemoryName, MemoryShape
from openinfer.synth.targets.vhdl.unit import KernelUnit, UnitCall

LIMIT = 20_000_000
"""Clocks of a kernel, after which it does not end."""
SHAPE = MemoryShape(ram_bits=32, rom_bits=32, ram_bytes=8, rom_bytes=8)
TEMPLATE = Path(__file__).with_name("kernels.vhd")


@dataclass(frozen=True)
class CircuitCase:
    """A case of an op, as a circuit: where its operands lie."""

    record: OpRecord
    case: Case
    call: Call
    unit: KernelUnit
    places: tuple[int, ...]
    size: int


def circuit_case(record: OpRecord, case: Case, number: int) -> CircuitCase | None:
    """A case as a circuit; None where it computes with floats."""
    call = call_of(record, case)
    kernel: Kernel = plain(kernel_of(record, call, case.dtypes))
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    places, at = [], 64
    for buffer in buffers:
        places.append(at)
        at += -(-buffer.dtype.nbytes(int(np.prod(buffer.shape, dtype=np.int64))) // 8) * 8 + 64
    try:
        memories: tuple[MemoryName, ...] = tuple("ram" for _ in buffers)
        unit = KernelUnit(f"case{number}", kernel, memories, SHAPE)
    except UncomputableError:
        return None
    unit.calls.append(UnitCall(0, tuple(MemoryPlace("ram", f"to_unsigned({place}, 32)") for place in places)))
    return CircuitCase(record, case, call, unit, tuple(places), at)


def run_cases(cases: Sequence[CircuitCase], folder: Path) -> Iterator[tuple[CircuitCase, Exception | None]]:
    """All cases in one simulation, and what is wrong with each."""
    said = simulate(cases, folder)
    for one in cases:
        status = next(said, "T")
        outputs = [np.frombuffer(bytes.fromhex(next(said)), np.uint8).copy() for _ in one.call.outputs]
        results = tuple(loaded(data[: kind.nbytes], kind) for data, kind in zip(outputs, one.call.outputs, strict=True))
        try:
            assert status in ("0", "1"), f"it does not end within {LIMIT} clocks: {one.case}"
            judge(one, results, int(status))
            for data, kind in zip(outputs, one.call.outputs, strict=True):
                assert not data[kind.nbytes :].any() or status == "1", "it wrote behind its output"
        except AssertionError as error:
            yield one, error
        else:
            yield one, None


def simulate(cases: Sequence[CircuitCase], folder: Path) -> Iterator[str]:
    """The lines that the simulation of some kernels writes."""
    support = resources("openinfer.synth.targets.vhdl") / "rtl" / "support.vhd"
    texts = {"oi.vhd": support.read_text("utf-8")}
    texts["ram.vhd"] = ram_text("case", max(one.size for one in cases), SHAPE)
    texts |= {f"{one.unit.name}.vhd": one.unit.text([]) for one in cases}
    texts["tb.vhd"] = bench(cases)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")
    run(["ghdl", "-a", "--std=08", "-Werror", *texts], folder)
    lines = [line for number, one in enumerate(cases) for line in commands(one, number)]
    arguments = ["ghdl", "-r", "--std=08", "kernels_tb", "--ieee-asserts=disable"]
    return iter(run(arguments, folder, "\n".join(lines) + "\n").splitlines())


def mapped_failure(cases: Sequence[CircuitCase], folder: Path) -> str | None:
    """What GHDL and yosys say against the circuits of simulated cases: what cannot be mapped, or is a latch."""
    rows = resources("openinfer.synth.targets.vhdl") / "synth" / "complete.awk"
    try:
        for one in cases:
            text = run(["ghdl", "--synth", "--std=08", "--out=verilog", one.unit.name], folder)
            (folder / f"{one.unit.name}.v").write_text(run(["awk", rows.read_text("utf-8")], folder, text), "ascii")
        files = " ".join(f"{one.unit.name}.v" for one in cases)
        run(["yosys", "-q", "-p", f"read_verilog {files}; proc; check -assert; select -assert-none t:$dlatch"], folder)
    except AssertionError as error:
        return str(error)
    return None


def run(arguments: Sequence[str], folder: Path, given: str = "") -> str:
    ended = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, input=given, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def commands(one: CircuitCase, number: int) -> Iterator[str]:
    """Puts operands into memory, runs the kernel, and asks for its outputs with bytes behind them."""
    yield f"w 00000000 {'00' * one.size}"
    pairs = zip(one.case.arrays, one.case.dtypes, strict=True)
    given = [stored_bytes(array, kind) for array, kind in pairs if array is not None and kind is not None]
    for place, data in zip(one.places, given, strict=False):
        if data.size:
            yield f"w {place:08x} {data.tobytes().hex()}"
    yield f"s {number}"
    for place, kind in zip(one.places[len(one.unit.kernel.inputs) :], one.call.outputs, strict=False):
        yield f"r {place:08x} {kind.nbytes + 8}"


def bench(cases: Sequence[CircuitCase]) -> str:
    """The test bench of some kernels."""
    names = [one.unit.name for one in cases]
    types = {"ram_addr": "unsigned(31 downto 0)", "ram_waddr": "unsigned(31 downto 0)", "ram_write": "std_logic"}
    types |= {"ram_size": "std_logic_vector(1 downto 0)", "ram_wdata": "std_logic_vector(63 downto 0)"}
    signals = [f"  signal {name}_{port} : {type_};" for name in names for port, type_ in types.items()]
    wires = [f"  {port} <= {' or '.join(f'{name}_{port}' for name in ('host', *names))};" for port in types]
    requests = ", ".join(f"{port} => {{name}}_{port}" for port in types)
    instances = [
        f"  {name}_unit : entity work.{name} port map (clk => clk, rst => rst, start => start({at}), "
        f"done => done({at}), failed => failed({at}), ram_q => ram_q, {requests.format(name=name)});"
        for at, name in enumerate(names)
    ]
    instances.append(
        "  ram : entity work.case_ram port map (clk => clk, addr => ram_addr, waddr => ram_waddr, write => ram_write, "
        "size => ram_size, wdata => ram_wdata, q => ram_q);"
    )
    text = TEMPLATE.read_text("ascii").replace("COUNT", str(len(cases))).replace("LIMIT", str(LIMIT))
    text = text.replace("SIGNALS", "\n".join(signals)).replace("WIRES", "\n".join(wires))
    return text.replace("INSTANCES", "\n".join(instances))


def cases_for(name: str, dtype: DType, most: int | None) -> list[Case]:
    """Cases of an op for a dtype that are small enough for a simulation."""
    found = list(cases_of(name, dtype, most))
    return [one for one in found if sum(array.size for array in one.arrays if array is not None) <= 4000]


__all__ = ["OPS", "CircuitCase", "cases_for", "circuit_case", "mapped_failure", "run_cases"]
