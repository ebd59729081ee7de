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
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import bench.decoder
import bench.sim
import numpy as np

from openinfer import ModelLoader, Simulator, graph
from openinfer.check.saved_state import saved_bytes
from openinfer.oinf import save_file
from openinfer.synth.c.support import support_code
from openinfer.synth.c.tiles import tile_name
from openinfer.synth.divide import Divide
from openinfer.synth.module import CompiledModule
from openinfer.synth.schedule import tile_shape
from openinfer.synth.synthesizer import Passes, Synthesizer
from openinfer.synth.target import CpuTarget, host

Array = Any
Row = dict[str, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Peer:
    """A model on both sides."""

    name: str
    text: str
    tensors: dict[str, Array]
    sizes: dict[str, int]
    inputs: Feeds
    output: str
    session: Callable[[int], Any]
    """An ONNX Runtime session with so many threads."""
    feeds: Feeds | None = None
    """The inputs of the session, where they are others."""
    plain: dict[str, Array] = field(default_factory=dict)
    """Persistent variables, which have these values before every step."""
    tables: dict[str, Array] = field(default_factory=dict)
    """Persistent tables before the first step."""
    read_bytes: int = 0
    """The bytes of the weights that a step reads once each; 0 where that says nothing about its speed."""

    @property
    def given(self) -> Feeds:
        """The inputs of the session."""
        return self.inputs if self.feeds is None else self.feeds


# --- ours -------------------------------------------------------------------------------------------------------------


def modelled(peer: Peer, folder: Path) -> ModelLoader:
    path = folder / f"{peer.name.split()[0]}.oinf"
    save_file(path, peer.tensors, sizevars=peer.sizes)
    return ModelLoader.open(path)


def compiled(peer: Peer, model: ModelLoader, threads: int) -> CompiledModule:
    passes = Passes(divide=Divide(threads=threads))
    return Synthesizer(name="net", passes=passes).synthesize(model, graph(peer.text)).build()


def ready(peer: Peer, one: Any) -> Any:
    """An executor or a module with the peer's state and inputs."""
    if peer.plain or peer.tables:
        one.load_state(saved_bytes(one.bound, peer.plain, {name: {(): value} for name, value in peer.tables.items()}))
    one.insert(peer.inputs)
    return one


def bare_step(peer: Peer, module: CompiledModule) -> Callable[[], None]:
    """One step of the C code itself, without the checks and copies that Python does around it."""
    inputs, results = module._input_type(), module._output_type()
    for name, array in peer.inputs.items():
        setattr(inputs, module._project.printer.input_fields[name], array.ctypes.data)
    plain = [(module.fetch_view(name), value) for name, value in peer.plain.items()]
    for view, _ in plain:
        view.flags.writeable = True
    function, context = module._library.net_step, ctypes.byref(module._context)
    into, out = ctypes.byref(inputs), ctypes.byref(results)

    def step() -> None:
        for view, value in plain:
            view[...] = value
        assert function(context, into, out) == 0

    return step


# --- peers ------------------------------------------------------------------------------------------------------------


class Onnx:
    """A small writer of ONNX graphs."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        from onnx import helper

        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def session(self, x: Array, output: str, shape: tuple[int, ...], threads: int) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        model = helper.make_model(
            helper.make_graph(
                self.nodes,
                "peer",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
                [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in self.constants.items()],
            ),
            opset_imports=[helper.make_opsetid("", 18)],
            ir_version=9,
        )
        return ort(model.SerializeToString(), threads)


def ort(model: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def mlp() -> Peer:
    rng = np.random.default_rng(0)
    widths = (784, 256, 128, 10)
    tensors: dict[str, Array] = {}
    onnx, h, lines = Onnx(), "x", []
    for layer, (inner, outer) in enumerate(pairwise(widths)):
        tensors[f"w{layer}"] = rng.normal(0, inner**-0.5, (outer, inner)).astype(np.float32)
        tensors[f"b{layer}"] = rng.normal(0, 0.1, outer).astype(np.float32)
        onnx.constants |= {f"w{layer}": tensors[f"w{layer}"], f"b{layer}": tensors[f"b{layer}"]}
        h = onnx.node("Gemm", [h, f"w{layer}", f"b{layer}"], transB=1)
        lines.append(f"op linear({'x' if layer == 0 else f'h{layer - 1}'}, w{layer}, b{layer}) >> h{layer};")
        if layer < 2:
            h = onnx.node("Relu", [h])
            lines.append(f"op relu(h{layer}) >> h{layer};")
    declared = " ".join(f"{name}: f32[{', '.join(map(str, value.shape))}];" for name, value in tensors.items())
    hidden = " ".join(f"h{layer}: f32[1, {width}];" for layer, width in enumerate(widths[1:]))
    text = f"dynamic {{ x: f32[1, 784]; }} volatile {{ {declared} {hidden} }}"
    text += f" block entry {{ {' '.join(lines)} return h2; }}"
    x = rng.normal(size=(1, 784)).astype(np.float32)
    name = "MLP 784-256-128-10, batch 1"
    return Peer(name, text, tensors, {}, {"x": x}, "h2", lambda n: onnx.session(x, h, (1, 10), n))


def encoder(length: int, layers: int = 6) -> Peer:
    bench.sim.T, bench.sim.LAYERS = length, layers
    tensors = bench.sim.encoder_weights()
    sizes = {"D": 384, "T": length, "H": 12, "F": 1536, "L": layers}
    x = np.random.default_rng(1).normal(size=(length, 384)).astype(np.float32)

    def session(threads: int) -> Any:
        bench.sim.T, bench.sim.LAYERS = length, layers
        return bench.sim.onnx_encoder(tensors, threads)

    name = f"encoder d=384, {layers} layers, T={length}"
    return Peer(name, bench.sim.ENCODER, tensors, sizes, {"x": x}, "h", session)


def decoder() -> Peer:
    shape = bench.decoder.Shape()
    tensors, state = bench.decoder.weights(shape), bench.decoder.past(shape)
    exported = bench.decoder.Exported(shape, tensors).model()
    return Peer(
        f"decoder d={shape.width}, {shape.layers} layers, token {shape.tokens}",
        bench.decoder.TEXT,
        tensors,
        shape.sizes,
        {"token": np.array([3], np.int32)},
        "logits",
        lambda threads: ort(exported, threads),
        bench.decoder.feeds(shape, 3, state),
        {"step": np.array(shape.tokens - 1, np.int32)},
        state,
        sum(value.nbytes for name, value in tensors.items() if name != "embed"),
    )


class _Resnet:
    """ResNet-18's shapes with random weights; batch norms are in the weights."""

    def __init__(self, size: int) -> None:
        self.rng = np.random.default_rng(2)
        self.onnx = Onnx()
        self.tensors: dict[str, Array] = {}
        self.lines: list[str] = []
        self.hidden: dict[str, tuple[int, ...]] = {}
        self.size = size

    def conv(self, x: str, onnx_x: str, shape: tuple[int, int], features: int, kernel: int, stride: int) -> Any:
        channels, size = shape
        number = len(self.hidden)
        w, b, h = f"w{number}", f"b{number}", f"h{number}"
        spread = (2 / (channels * kernel * kernel)) ** 0.5
        self.tensors[w] = self.rng.normal(0, spread, (features, channels, kernel, kernel)).astype(np.float32)
        self.tensors[b] = self.rng.normal(0, 0.1, features).astype(np.float32)
        pad = kernel // 2
        size = (size + 2 * pad - kernel) // stride + 1
        self.hidden[h] = (1, features, size, size)
        self.lines.append(f"op conv2d({x}, {w}, {b}, strides=[{stride}], pads=[{pad}]) >> {h};")
        made = self.onnx.node("Conv", [onnx_x, w, b], strides=[stride] * 2, pads=[pad] * 4)
        return h, made, (features, size)

    def relu(self, h: str, onnx_h: str) -> str:
        self.lines.append(f"op relu({h}) >> {h};")
        return self.onnx.node("Relu", [onnx_h])

    def block(self, x: str, onnx_x: str, shape: tuple[int, int], features: int, stride: int) -> Any:
        h, onnx_h, middle = self.conv(x, onnx_x, shape, features, 3, stride)
        onnx_h = self.relu(h, onnx_h)
        y, onnx_y, result = self.conv(h, onnx_h, middle, features, 3, 1)
        if stride != 1:
            x, onnx_x, _ = self.conv(x, onnx_x, shape, features, 1, stride)
        self.lines.append(f"op add({y}, {x}) >> {y};")
        return y, self.relu(y, self.onnx.node("Add", [onnx_y, onnx_x])), result

    def peer(self) -> Peer:
        h, onnx_h, shape = self.conv("x", "x", (3, self.size), 64, 7, 2)
        onnx_h = self.onnx.node(
            "MaxPool", [self.relu(h, onnx_h)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        )
        shape = (64, (shape[1] - 1) // 2 + 1)
        self.hidden["pooled"] = (1, 64, shape[1], shape[1])
        self.lines.append(f"op max_pool({h}, kernel=[3, 3], strides=[2], pads=[1]) >> pooled;")
        h = "pooled"
        for features in (64, 128, 256, 512):
            for stride in (1 if features == 64 else 2, 1):
                h, onnx_h, shape = self.block(h, onnx_h, shape, features, stride)
        self.tensors["w"] = self.rng.normal(0, 0.05, (1000, 512)).astype(np.float32)
        self.tensors["b"] = self.rng.normal(0, 0.1, 1000).astype(np.float32)
        self.hidden |= {"mean": (1, 512, 1, 1), "flat": (1, 512), "y": (1, 1000)}
        self.lines.append(f"op global_avg_pool({h}) >> mean; op reshape(mean, shape=[1, 512]) >> flat;")
        self.lines.append("op linear(flat, w, b) >> y;")
        flat = self.onnx.node("Flatten", [self.onnx.node("GlobalAveragePool", [onnx_h])])
        out = self.onnx.node("Gemm", [flat, "w", "b"], transB=1)
        self.onnx.constants |= self.tensors
        declared = " ".join(
            f"{name}: f32[{', '.join(map(str, found))}];"
            for name, found in {**{name: value.shape for name, value in self.tensors.items()}, **self.hidden}.items()
        )
        body = " ".join(self.lines)
        x = self.rng.normal(size=(1, 3, self.size, self.size)).astype(np.float32)
        text = f"dynamic {{ x: f32[1, 3, {self.size}, {self.size}]; }} volatile {{ {declared} }}"
        text += f" block entry {{ {body} return y; }}"
        name = f"ResNet-18 shapes, {self.size} x {self.size}"
        return Peer(name, text, self.tensors, {}, {"x": x}, "y", lambda n: self.onnx.session(x, out, (1, 1000), n))


def resnet(size: int = 224) -> Peer:
    return _Resnet(size).peer()


PEERS: dict[str, Callable[[], Peer]] = {
    "mlp": mlp,
    "encoder16": lambda: encoder(16),
    "encoder128": lambda: encoder(128),
    "resnet": resnet,
    "decoder": decoder,
}


# --- measuring --------------------------------------------------------------------------------------------------------


def compared(peer: Peer, folder: Path, rounds: int) -> Row:
    model = modelled(peer, folder)
    start = time.perf_counter()
    modules = [compiled(peer, model, threads) for threads in (1, 2)]
    built_in = time.perf_counter() - start
    sessions = [peer.session(threads) for threads in (1, 2)]
    wanted = sessions[0].run(None, peer.given)[0]
    simulator = Simulator(model).with_trace("off").make_executor(graph(peer.text))
    errors, simulated = [], []
    everyone: list[Any] = [*modules, *[simulator] * 3]
    for one in everyone:
        ready(peer, one)
        before = time.perf_counter()
        one.run_step()
        simulated.append(time.perf_counter() - before)
        errors.append(disagreement(one.fetch(peer.output), wanted))
    assert max(errors) < 1e-3, f"{peer.name}: the outputs disagree by {errors}"
    ours, theirs, both, two = timed(peer, modules, sessions, rounds)
    return {
        "what": peer.name,
        "ours_ms": ours,
        "ort_1_thread_ms": theirs,
        "speed_of_ort_1_thread": theirs / ours,
        "ours_2_threads_clock_ms": both,
        "ort_2_threads_clock_ms": two,
        "speed_of_ort_2_threads": two / both,
        "simulator_clock_ms": median(simulated[2:]) * 1e3,
        "weights_gb_per_s": [peer.read_bytes / 1e6 / found for found in (ours, both)] if peer.read_bytes else None,
        "error": max(errors),
        "built_in_s": built_in,
    }


def disagreement(found: Array, wanted: Array) -> float:
    return float(np.abs(found.reshape(-1) - wanted.reshape(-1)).max() / np.abs(wanted).max())


def timed(peer: Peer, modules: list[CompiledModule], sessions: list[Any], rounds: int) -> list[float]:
    """Milliseconds: ours and theirs on one thread by processor time, then on two by the clock."""
    clocks = (time.thread_time, time.perf_counter)
    steps = [bare_step(peer, module) for module in modules]
    actions = [
        (clock, action)
        for clock, step, session in zip(clocks, steps, sessions, strict=True)
        for action in (step, lambda session=session: session.run(None, peer.given))
    ]
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for (clock, action), found in zip(actions, times, strict=True):
            before = clock()
            action()
            found.append(clock() - before)
    return [median(found) * 1e3 for found in times]


PEAK = """
double peak(long count)
{
    struct timespec a, b;
    VECTOR s[12];
    for (int i = 0; i < 12; ++i) for (int j = 0; j < LANES; ++j) s[i][j] = (float)(i + j);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long n = 0; n < count; ++n) {
        STEPS
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    for (int i = 0; i < 12; ++i) for (int j = 0; j < LANES; ++j) sink += s[i][j];
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
double inner(long count, int64_t k, const float *x, const float *y, float *z)
{
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long n = 0; n < count; ++n) TILE(k, x, k, 1, y, WIDTH, z, WIDTH);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
"""
READ = """
#include <stdint.h>
typedef uint64_t wide __attribute__((vector_size(64)));
uint64_t total(const wide *p, long count)
{
    wide s[8] = { { 0 } };
    for (long n = 0; n + 8 <= count; n += 8) for (int i = 0; i < 8; ++i) s[i] += p[n + i];
    return (s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7])[0];
}
"""


def memory_speed(folder: Path, target: CpuTarget, rounds: int) -> Row:
    """How fast one thread (by its own time) and two (by the clock) read memory that is in no cache."""
    source, library = folder / "read.c", folder / "read.so"
    source.write_text(READ, encoding="ascii")
    subprocess.run(["gcc", "-O3", *target.flags, "-fPIC", "-shared", "-o", library, source], check=True)
    code = ctypes.CDLL(str(library))
    code.total.restype = ctypes.c_uint64
    data = np.ones(1 << 26, np.uint64)
    data = data[(-data.ctypes.data % 64) // 8 :]
    best = []
    for threads, clock in ((1, time.thread_time), (2, time.perf_counter)):
        count = data.size // 8 // threads
        starts = [ctypes.c_void_p(data.ctypes.data + 64 * count * one) for one in range(threads)]
        times = []
        with ThreadPoolExecutor(2) as pool:
            for _ in range(rounds):
                before = clock()
                helped = [pool.submit(code.total, start, ctypes.c_long(count)) for start in starts[1:]]
                code.total(starts[0], ctypes.c_long(count))
                for one in helped:
                    one.result()
                times.append(clock() - before)
        best.append(64 * count * threads / min(times) / 1e9)
    return {"what": "reading memory", "one_thread_gb_per_s": best[0], "two_threads_gb_per_s": best[1]}


def bare_loop(folder: Path, target: CpuTarget, rounds: int) -> Row:
    """The inner loop on a tile whose operands are in the first cache, against multiply-adds without any loads."""
    lanes = target.lanes(32)
    rows, vectors = tile_shape(128, 1536, lanes, target)
    vector, tile = f"oi_f32x{lanes}", tile_name("f32", lanes, rows, vectors)
    steps = " ".join(f"s[{i}] = oi_fma_f32x{lanes}(0.999f, s[{i}], s[{i}]);" for i in range(12))
    text = PEAK.replace("STEPS", steps).replace("VECTOR", vector).replace("LANES", str(lanes)).replace("TILE", tile)
    text = text.replace("WIDTH", str(vectors * lanes))
    source = folder / "peak.c"
    head = "#define _GNU_SOURCE\n#include <stdint.h>\n#include <time.h>\nstatic volatile float sink;\n"
    source.write_text(head + support_code({vector, tile}) + text, encoding="ascii")
    library = folder / "peak.so"
    subprocess.run(["gcc", "-O3", *target.flags, "-fPIC", "-shared", "-o", library, source], check=True)
    code = ctypes.CDLL(str(library))
    code.peak.restype = code.inner.restype = ctypes.c_double
    depth = 128
    x, y = np.zeros(rows * depth, np.float32), np.zeros(depth * vectors * lanes, np.float32)
    z = np.zeros(rows * vectors * lanes, np.float32)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (x, y, z)]
    most: list[float] = []
    found: list[float] = []
    for _ in range(rounds):
        most.append(1000000 * 12 * lanes * 2 / code.peak(ctypes.c_long(1000000)) / 1e9)
        seconds = code.inner(ctypes.c_long(10000), ctypes.c_int64(depth), *pointers)
        found.append(10000 * rows * vectors * lanes * depth * 2 / seconds / 1e9)
    return {
        "what": f"inner loop {rows} x {vectors * lanes}, k = {depth}, {target.isa}",
        "gflops": max(found),
        "peak_gflops": max(most),
        "share": max(found) / max(most),
    }


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
    parser.add_argument("models", nargs="*", default=[*PEERS], help=f"any of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    target = host()
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = [bare_loop(folder, target, 7), memory_speed(folder, target, 7)]
        print(f"{rows[0]['what']}: {rows[0]['gflops']:.0f} of {rows[0]['peak_gflops']:.0f} GFLOP/s")
        one, two = rows[1]["one_thread_gb_per_s"], rows[1]["two_threads_gb_per_s"]
        print(f"memory can be read at {one:.1f} GB/s by one thread, {two:.1f} GB/s by two")
        for model in options.models:
            row = compared(PEERS[model](), folder, options.rounds)
            rows.append(row)
            print(sentence(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
