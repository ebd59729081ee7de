"""Networks as circuits: ``python -m tests.synth.vhdl.networks --images 100 --route``.

The digits of the examples in GHDL, whose scores, clocks and use of lanes are held against what is promised, and on an
iCE40 UP5K; and a keyword spotter in integers, of the shapes of MLPerf Tiny's, simulated and mapped to a larger part.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from examples.digits import example as digits

from openinfer import Graph, ModelLoader, Plan, Simulator, Synthesizer, graph
from openinfer.oinf import save_file
from openinfer.synth.run.circuit import CircuitModule

LEAST_USE = 0.85
LEAST_HERTZ = 12e6
FEATURES, BLOCKS = 64, 4


def differences(plan: Plan, model: ModelLoader, parsed: Graph, steps: list[dict[str, Any]]) -> Iterator[str]:
    """What a circuit in GHDL gives that the simulator does not, clocks included."""
    module = plan.build()
    assert isinstance(module, CircuitModule)
    simulator = Simulator(model).with_trace("off").make_executor(parsed)
    clocks = plan.facts()["circuit"]["clocks"]
    for number, step in enumerate(steps):
        for machine in (module, simulator):
            machine.insert(step)
            machine.run_step()
        for name in simulator.bound.output_names:
            if not np.array_equal(module.fetch(name), simulator.fetch(name)):
                yield f"{plan.project.name}, step {number}: {name} differs"
        if module.cycles != clocks:
            yield f"{plan.project.name}, step {number}: {module.cycles} clocks, and {clocks} computed"


def digits_plan() -> tuple[Plan, ModelLoader, Graph]:
    """The circuit that reads digits."""
    parsed, model = digits.circuit_network()
    return Synthesizer("ice40-up5k", name="digits").synthesize(model, parsed), model, parsed


def digits_differences(first: int, count: int) -> list[str]:
    """Some of the test images."""
    plan, model, parsed = digits_plan()
    images = digits.held_out()[0][first : first + count]
    return list(differences(plan, model, parsed, [{"image": image[None].astype(np.int8)} for image in images]))


def digits_failures(images: int) -> Iterator[str]:
    """All images, in as many simulations as there are cores."""
    facts = digits_plan()[0].facts()["circuit"]
    print(f"digits: {facts['clocks']} clocks, lanes used {facts['lanes']['use']:.1%}", flush=True)
    if facts["lanes"]["use"] < LEAST_USE:
        yield f"digits: lanes are used {facts['lanes']['use']:.1%}"
    share = -(-images // (os.cpu_count() or 1))
    firsts = range(0, images, share)
    with ProcessPoolExecutor() as pool:
        counts = [min(share, images - first) for first in firsts]
        yield from chain.from_iterable(pool.map(digits_differences, firsts, counts))
    print(f"digits: {images} images in GHDL", flush=True)


def digits_routed() -> Iterator[str]:
    """The circuit on an UP5K: mapped, placed and routed, fast enough."""
    with TemporaryDirectory() as folder:
        digits_plan()[0].emit(folder)
        ended = subprocess.run(["make", "-s", "pnr"], cwd=folder, capture_output=True, text=True, check=False)
        if ended.returncode:
            yield f"digits, make pnr: {ended.stderr[-3000:]}"
            return
        report = json.loads((Path(folder) / "build" / "digits.report.json").read_text())
    used = ", ".join(f"{name} {one['used']} of {one['available']}" for name, one in report["utilization"].items())
    reached = min(one["achieved"] for one in report["fmax"].values()) * 1e6
    print(f"digits on an UP5K: {reached / 1e6:.1f} MHz; {used}", flush=True)
    if reached < LEAST_HERTZ:
        yield f"digits: {reached / 1e6:.1f} MHz"


# --- the keyword spotter ----------------------------------------------------------------------------------------------


def spotter(folder: Path) -> tuple[Graph, ModelLoader]:
    """Depthwise-separable convolutions over 49 frames of 10 coefficients, in integers; nobody has trained it."""
    rng = np.random.default_rng(7)
    tensors: dict[str, Any] = {}
    constants: list[str] = []
    lines: list[str] = []

    def weight(name: str, shape: tuple[int, ...], dtype: str, low: int, high: int) -> None:
        tensors[name] = rng.integers(low, high, shape).astype({"i8": np.int8, "i32": np.int32}[dtype])
        constants.append(f'{name}: {dtype}[{", ".join(map(str, shape))}] @ref("{name}");')

    def conv(at: int, given: str, shape: tuple[int, ...], options: str, bits: int) -> str:
        weight(f"W{at}", shape, "i8", -127, 128)
        weight(f"b{at}", (shape[0],), "i32", -3000, 3000)
        weight(f"scale{at}", (shape[0], 1, 1), "i32", 500, 1000)
        lines.append(f"assign s{at}: i32[1, {shape[0]}, 25, 5]; assign h{at}: i8[1, {shape[0]}, 25, 5];")
        lines.append(f"op conv2d({given}, W{at}, b{at}, {options}acc=i32) >> s{at};")
        lines.append(f"op shr(s{at}, bits=3) >> s{at}; op mul(s{at}, scale{at}) >> s{at};")
        lines.append(f"op shr(s{at}, bits={bits}) >> s{at}; op clamp(s{at}, min=0, max=127) >> s{at};")
        lines.append(f"op cast(s{at}, to=i8) >> h{at};")
        return f"h{at}"

    h = conv(0, "x", (FEATURES, 1, 10, 4), "strides=[2], pads=[5, 2, 4, 1], ", 15)
    for block in range(BLOCKS):
        h = conv(2 * block + 1, h, (FEATURES, 1, 3, 3), f"pads=1, groups={FEATURES}, ", 14)
        h = conv(2 * block + 2, h, (FEATURES, FEATURES, 1, 1), "", 15)
    weight("L", (12, FEATURES), "i8", -127, 128)
    text = f"""
dynamic {{ x: i8[1, 1, 49, 10]; }}
volatile {{ scores: i32[1, 12]; }}
constant {{ {" ".join(constants)} }}
block entry {{
    assign total: i32[1, {FEATURES}]; assign mean: i8[1, {FEATURES}];
    {" ".join(lines)}
    op sum_axis({h}, axes=[2, 3], acc=i32) >> total;
    op shr(total, bits=7) >> total;
    op cast(total, to=i8) >> mean;
    op linear(mean, L, acc=i32) >> scores;
    return scores;
}}
"""
    save_file(folder / "spotter.oinf", tensors)
    return graph(text), ModelLoader.open(folder / "spotter.oinf")


def spotter_failures(*, maps: bool) -> Iterator[str]:
    """One step in GHDL, and the circuit mapped to an ECP5."""
    with TemporaryDirectory() as folder:
        parsed, model = spotter(Path(folder))
        plan = Synthesizer("ecp5-85k", name="spotter").synthesize(model, parsed)
        facts = plan.facts()["circuit"]
        print(f"spotter: {facts['clocks']} clocks on {facts['lanes']['count']} lanes", flush=True)
        sound = np.random.default_rng(8).integers(-128, 128, (1, 1, 49, 10)).astype(np.int8)
        yield from differences(plan, model, parsed, [{"x": sound}])
        if maps:
            plan.emit(Path(folder) / "out")
            command = ["make", "-s", "synth"]
            ended = subprocess.run(command, cwd=Path(folder) / "out", capture_output=True, text=True, check=False)
            if ended.returncode:
                yield f"spotter, make synth: {ended.stderr[-3000:]}"
            else:
                print((Path(folder) / "out" / "build" / "spotter.stat").read_text(), flush=True)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100, help="of the digits, in GHDL")
    parser.add_argument("--route", action="store_true", help="map the circuits, and place and route the digits")
    parser.add_argument("--spotter", action="store_true", help="the keyword spotter as well")
    options = parser.parse_args()
    if shutil.which("ghdl-llvm"):  # a few times as fast in long simulations
        os.environ["GHDL_BACKEND"] = "llvm"
    parts = [digits_failures(options.images)] if options.images else []
    parts += [digits_routed()] if options.route else []
    parts += [spotter_failures(maps=options.route)] if options.spotter else []
    count = 0
    for failure in chain.from_iterable(parts):
        print(failure, flush=True)
        count += 1
    print(f"{count} failures")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
