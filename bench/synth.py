"""What generated C costs: ``python -m bench.synth``.

Generated C for this machine's best vectors, compiled once, against ONNX Runtime on the same weights with one thread and
with two, interleaved round by round after their outputs were found to agree. One thread is compared by its own
processor time, which a busy machine does not change much; two by the clock. The bare inner loop is set against the
fastest multiply-add loop of the same run. Nothing here is asserted: the table says what was measured.
"""

import argparse
import ctypes
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import bench.sim
import numpy as np

from openinfer import ModelLoader, graph
from openinfer.check import bind
from openinfer.oinf import save_file
from openinfer.synth.c.project import Project
from openinfer.synth.c.support import support_code
from openinfer.synth.c.tiles import tile_name
from openinfer.synth.fuse import Fuse
from openinfer.synth.liveness import without_dead_steps
from openinfer.synth.lower import lowered
from openinfer.synth.module import FLAGS, CompiledModule, built
from openinfer.synth.schedule import Schedule, tile_shape
from openinfer.synth.target import CpuTarget, host

Array = Any
Row = dict[str, Any]
FAST = ("-O3", "-fno-trapping-math")


@dataclass(frozen=True)
class Peer:
    """A model on both sides."""

    name: str
    text: str
    tensors: dict[str, Array]
    sizes: dict[str, int]
    x: Array
    output: str
    session: Callable[[int], Any]
    """An ONNX Runtime session with so many threads."""


# --- ours -------------------------------------------------------------------------------------------------------------


def compiled(peer: Peer, folder: Path, target: CpuTarget) -> CompiledModule:
    path = folder / f"{peer.name.split()[0]}.oinf"
    save_file(path, peer.tensors, sizevars=peer.sizes)
    program, _ = Fuse().run(without_dead_steps(lowered(bind(graph(peer.text), ModelLoader.open(path)))))
    project = Project(Schedule(target).run(program), "net")
    return built(project, flags=(*FLAGS, *FAST, *target.flags))


def bare_step(module: CompiledModule, x: Array) -> Callable[[], None]:
    """One step of the C code itself, without the checks and copies that Python does around it."""
    pointers = (ctypes.c_void_p * 4)(x.ctypes.data)
    results = (ctypes.c_void_p * 8)()
    function = module._library.net_step
    context = ctypes.byref(module._context)

    def step() -> None:
        function(context, pointers, results)

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
    return Peer("MLP 784-256-128-10, batch 1", text, tensors, {}, x, "h2", lambda n: onnx.session(x, h, (1, 10), n))


def encoder(length: int, layers: int = 6) -> Peer:
    bench.sim.T, bench.sim.LAYERS = length, layers
    tensors = bench.sim.encoder_weights()
    sizes = {"D": 384, "T": length, "H": 12, "F": 1536, "L": layers}
    x = np.random.default_rng(1).normal(size=(length, 384)).astype(np.float32)

    def session(threads: int) -> Any:
        bench.sim.T, bench.sim.LAYERS = length, layers
        return bench.sim.onnx_encoder(tensors, threads)

    return Peer(f"encoder d=384, {layers} layers, T={length}", bench.sim.ENCODER, tensors, sizes, x, "h", session)


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
        return Peer(name, text, self.tensors, {}, x, "y", lambda n: self.onnx.session(x, out, (1, 1000), n))


def resnet(size: int = 224) -> Peer:
    return _Resnet(size).peer()


PEERS: dict[str, Callable[[], Peer]] = {
    "mlp": mlp,
    "encoder16": lambda: encoder(16),
    "encoder128": lambda: encoder(128),
    "resnet": resnet,
}


# --- measuring --------------------------------------------------------------------------------------------------------


def compared(peer: Peer, folder: Path, target: CpuTarget, rounds: int) -> Row:
    start = time.perf_counter()
    module = compiled(peer, folder, target)
    built_in = time.perf_counter() - start
    one, two = peer.session(1), peer.session(2)
    module.insert(x=peer.x)
    module.run_step()
    (wanted,) = one.run(None, {"x": peer.x})
    found = module.fetch(peer.output)
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    assert error < 1e-3, f"{peer.name}: the two disagree by {error}"
    step = bare_step(module, peer.x)
    times: dict[str, list[float]] = {"ours": [], "one": [], "ours by the clock": [], "two": []}
    for _ in range(rounds):
        for name, action in (("ours", step), ("one", lambda: one.run(None, {"x": peer.x}))):
            before = time.thread_time()
            action()
            times[name].append(time.thread_time() - before)
        for name, action in (("ours by the clock", step), ("two", lambda: two.run(None, {"x": peer.x}))):
            before = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - before)
    ours, theirs, clock, both = (median(values) * 1e3 for values in times.values())
    return {
        "what": peer.name,
        "ours_ms": ours,
        "ort_1_thread_ms": theirs,
        "speed_of_ort_1_thread": theirs / ours,
        "ours_clock_ms": clock,
        "ort_2_threads_clock_ms": both,
        "error": error,
        "built_in_s": built_in,
    }


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
    return (
        f"{row['what']}: {row['ours_ms']:.3f} ms, ONNX Runtime on one thread {row['ort_1_thread_ms']:.3f} ms:"
        f" {ratio:.2f}x its speed ({'met' if ratio >= 0.5 else 'MISS'}: 0.5x);"
        f" by the clock {row['ours_clock_ms']:.3f} ms, on two threads {row['ort_2_threads_clock_ms']:.3f} ms;"
        f" outputs agree within {row['error']:.0e}; built in {row['built_in_s']:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*PEERS], help=f"any of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    target = host()
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = [bare_loop(folder, target, 7)]
        print(f"{rows[0]['what']}: {rows[0]['gflops']:.0f} of {rows[0]['peak_gflops']:.0f} GFLOP/s")
        for model in options.models:
            row = compared(PEERS[model](), folder, target, options.rounds)
            rows.append(row)
            print(sentence(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
