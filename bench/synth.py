"""What generated C costs: ``python -m bench.synth``.

Generated C for this machine's best vectors, compiled for one thread and for two, against ONNX Runtime on the same
weights with one thread and with two, interleaved round by round after their outputs were found to agree. One thread is
compared by its own processor time, which a busy machine does not change much; two by the clock. The simulator runs the
same step a few times. The bare inner loop is set against the fastest multiply-add loop of the same run, and a decoder's
weights, each of which is read once per token, against how fast memory can be read. Nothing here is asserted about time:
the table says what was measured.
"""

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench.ceilings import IN_MEMORY, Ceilings
from bench.decoder import Shape, decoder
from bench.models import Model, disagreement, encoder, mlp, resnet
from bench.onnx_writer import ort

from openinfer import ModelLoader, Simulator, graph
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.run.build import library_of
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.targets.c.support import support_code
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.emit.tiles import FloatTile
from openinfer.synth.targets.cpu.machine import CpuMachine, host
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes
from openinfer.synth.targets.target import Passes

Row = dict[str, Any]


# --- ours -------------------------------------------------------------------------------------------------------------


def compiled(model: Model, loader: ModelLoader, threads: int) -> CompiledModule:
    passes = Passes(divide=Divide(threads=threads))
    return Synthesizer(name="net", passes=passes).synthesize(loader, graph(model.text)).build()


def bare_step(model: Model, module: CompiledModule) -> Callable[[], None]:
    """One step of the C code itself, without the checks and copies that Python does around it."""
    inputs, results = module._input_type(), module._output_type()
    for name, array in model.inputs.items():
        setattr(inputs, module._project.placed.names.inputs[name], array.ctypes.data)
    plain = [(module.fetch_view(name), value) for name, value in model.plain.items()]
    for view, _ in plain:
        view.flags.writeable = True
    function, context = module._library.net_step, ctypes.byref(module._context)
    into, out = ctypes.byref(inputs), ctypes.byref(results)

    def step() -> None:
        for view, value in plain:
            view[...] = value
        assert function(context, into, out) == 0

    return step


# --- models -----------------------------------------------------------------------------------------------------------

MODELS: dict[str, Callable[[], Model]] = {
    "mlp": mlp,
    "encoder16": lambda: encoder(16),
    "encoder128": lambda: encoder(128),
    "resnet": resnet,
    "decoder": lambda: decoder(Shape()),
}


# --- measuring --------------------------------------------------------------------------------------------------------


def compared(model: Model, folder: Path, rounds: int) -> Row:
    loader = model.saved(folder)
    start = time.perf_counter()
    modules = [compiled(model, loader, threads) for threads in (1, 2)]
    built_in = time.perf_counter() - start
    exported = model.onnx()
    sessions = [ort(exported, threads) for threads in (1, 2)]
    wanted = sessions[0].run(None, model.given)[0]
    simulator = Simulator(loader).with_trace("off").make_executor(graph(model.text))
    errors, simulated = [], []
    everyone: list[Any] = [*modules, *[simulator] * 3]
    for one in everyone:
        model.begin(one)
        before = time.perf_counter()
        one.run_step()
        simulated.append(time.perf_counter() - before)
        errors.append(disagreement(one.fetch(model.output), wanted))
    assert max(errors) < 1e-3, f"{model.name}: the outputs disagree by {errors}"
    ours, theirs, both, two = timed(model, modules, sessions, rounds)
    is_read_once = model.multiply_adds < model.read_bytes
    return {
        "what": model.name,
        "ours_ms": ours,
        "ort_1_thread_ms": theirs,
        "speed_of_ort_1_thread": theirs / ours,
        "ours_2_threads_clock_ms": both,
        "ort_2_threads_clock_ms": two,
        "speed_of_ort_2_threads": two / both,
        "simulator_clock_ms": median(simulated[2:]) * 1e3,
        "weights_gb_per_s": [model.read_bytes / 1e6 / found for found in (ours, both)] if is_read_once else None,
        "error": max(errors),
        "built_in_s": built_in,
    }


def timed(model: Model, modules: list[CompiledModule], sessions: list[Any], rounds: int) -> list[float]:
    """Milliseconds: ours and theirs on one thread by processor time, then on two by the clock."""
    clocks = (time.thread_time, time.perf_counter)
    steps = [bare_step(model, module) for module in modules]
    actions = [
        (clock, action)
        for clock, step, session in zip(clocks, steps, sessions, strict=True)
        for action in (step, lambda session=session: session.run(None, model.given))
    ]
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for (clock, action), found in zip(actions, times, strict=True):
            before = clock()
            action()
            found.append(clock() - before)
    return [median(found) * 1e3 for found in times]


INNER = """
double inner(long count, int64_t k, const float *x, const float *y, float *z)
{
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long n = 0; n < count; ++n) TILE(k, x, k, 1, y, WIDTH, z, WIDTH);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
"""


def bare_loop(target: CpuMachine, peak: float, rounds: int) -> Row:
    """The inner loop on a tile whose operands are in the first cache, against multiply-adds without any loads."""
    lanes, depth, count = target.lanes(32), 128, 10000
    rows, vectors = tile_shapes(128, 1536, lanes, target)[0]
    tile = FloatTile("f32", lanes, rows, vectors)
    text = INNER.replace("TILE", tile.name).replace("WIDTH", str(vectors * lanes))
    head = "#define _GNU_SOURCE\n#include <stdint.h>\n#include <time.h>\n"
    source = {"inner.c": head + support_code({tile}) + text}
    code = library_of(source, ("inner.c",), "gcc", ("-O3", *target.flags))
    code.inner.restype = ctypes.c_double
    sizes = (rows * depth, depth * vectors * lanes, rows * vectors * lanes)
    operands = [np.zeros(size, np.float32) for size in sizes]
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in operands]
    seconds = min(code.inner(ctypes.c_long(count), ctypes.c_int64(depth), *pointers) for _ in range(rounds))
    found = count * rows * vectors * lanes * depth * 2 / seconds / 1e9
    return {
        "what": f"inner loop {rows} x {vectors * lanes}, k = {depth}, {target.isa}",
        "gflops": found,
        "peak_gflops": peak,
        "share": found / peak,
    }


def memory_speed(ceilings: Ceilings) -> Row:
    """How fast one thread and two read memory that is in no cache."""
    one, two = (ceilings.read_gb(IN_MEMORY, threads) for threads in (1, 2))
    return {"what": "reading memory", "one_thread_gb_per_s": one, "two_threads_gb_per_s": two}


def sentence(row: Row) -> str:
    ratio = row["speed_of_ort_1_thread"]
    text = (
        f"{row['what']}: {row['ours_ms']:.3f} ms, ONNX Runtime on one thread {row['ort_1_thread_ms']:.3f} ms:"
        f" {ratio:.2f}x its speed ({'met' if ratio >= 0.5 else 'MISS'}: 0.5x);"
        f" on two threads, by the clock, {row['ours_2_threads_clock_ms']:.3f} ms to"
        f" {row['ort_2_threads_clock_ms']:.3f} ms: {row['speed_of_ort_2_threads']:.2f}x;"
        f" the simulator takes {row['simulator_clock_ms']:.1f} ms;"
        f" outputs agree within {row['error']:.0e}; built in {row['built_in_s']:.1f} s"
    )
    if row["weights_gb_per_s"]:
        one, two = row["weights_gb_per_s"]
        text += f"; weights are read at {one:.1f} GB/s by one thread, {two:.1f} GB/s by two"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MODELS], help=f"any of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    target = host()
    with TemporaryDirectory() as name:
        folder = Path(name)
        ceilings = Ceilings(target)
        rows = [bare_loop(target, ceilings.gflops(1), 7), memory_speed(ceilings)]
        print(f"{rows[0]['what']}: {rows[0]['gflops']:.0f} of {rows[0]['peak_gflops']:.0f} GFLOP/s")
        one, two = rows[1]["one_thread_gb_per_s"], rows[1]["two_threads_gb_per_s"]
        print(f"memory can be read at {one:.1f} GB/s by one thread, {two:.1f} GB/s by two")
        for model in options.models:
            row = compared(MODELS[model](), folder, options.rounds)
            rows.append(row)
            print(sentence(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
