"""A token of a language model on a GPU: ``python -m bench.gpu.decode FOLDER``, then ``FOLDER/run``.

``--device h200`` is CUDA, ``h200-vulkan`` Vulkan.

The model has the shape of LLaMA with 1.2 billion parameters, in bf16: 16 layers of width 2048, 32 heads of queries and
8 of keys, and 2.5 GB that every token reads. ``--weights i8``, ``i4`` or ``u4`` stores matrices as such integers, with
a scale of bf16 for every 32. The programs are built here and run wherever there is a driver: shaders
are arrays in them, and the weights are made when they start. What is printed as JSON is how long a step takes at the
end of a context of 1024 tokens, how long each kernel takes by the device's clock, and how long it takes at least: the
bytes of the weights, keys and values at the speed of a plain stream of reads, measured first.

A small model of the same graph is compared with the simulator in the tests.
"""

import argparse
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench.gpu.forms import Program

from openinfer import ModelLoader, Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cuda.project import CudaProject
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.vulkan.project import VulkanProject

HOST = Path(__file__).with_name("decode.c")
NAME = "decode"
TEXT = """
sizes { T <= S; }
dynamic { token: i32[1]; }
volatile { logits: bf16[1, C]; }
constant {
    last: bf16[D];
    head: bf16[C, D];
    N1(l): bf16[D] @pattern("layers.{l}.norm1");
    Wq(l): bf16[H*Dh, D] @pattern("layers.{l}.q");
    Wk(l): bf16[G*Dh, D] @pattern("layers.{l}.k");
    Wv(l): bf16[G*Dh, D] @pattern("layers.{l}.v");
    Wo(l): bf16[D, H*Dh] @pattern("layers.{l}.o");
    N2(l): bf16[D] @pattern("layers.{l}.norm2");
    W1(l): bf16[F, D] @pattern("layers.{l}.gate");
    W3(l): bf16[F, D] @pattern("layers.{l}.up");
    W2(l): bf16[D, F] @pattern("layers.{l}.down");
}
persistent {
    step: i32 @init(0);
    K(l, t): bf16[G, Dh] @table @fixed(l=L, t=S);
    V(l, t): bf16[G, Dh] @table @fixed(l=L, t=S);
}
block entry {
    assign h: bf16[1, D];
    assign n: bf16[1, D];
    assign q: bf16[1, H*Dh];
    assign k: bf16[1, G*Dh];
    assign v: bf16[1, G*Dh];
    assign query: bf16[H, 1, Dh];
    assign key: bf16[G, Dh];
    assign value: bf16[G, Dh];
    assign past_keys: bf16[T, G, Dh];
    assign past_values: bf16[T, G, Dh];
    assign keys: bf16[G, T, Dh];
    assign values: bf16[G, T, Dh];
    assign mixed: bf16[H, 1, Dh];
    assign joined: bf16[1, H*Dh];
    assign gate: bf16[1, F];
    assign up: bf16[1, F];
    op embedding(head, token) >> h;
    loop layers (l in 0..L) {
        op rms_norm(h, N1[l]) >> n;
        op linear(n, Wq[l]) >> q;
        op linear(n, Wk[l]) >> k;
        op linear(n, Wv[l]) >> v;
        op reshape(q, shape=[H, 1, Dh]) >> query;
        op rope(query, step) >> query;
        op reshape(k, shape=[G, Dh]) >> key;
        op rope(key, step) >> key;
        op reshape(v, shape=[G, Dh]) >> value;
        cache.write key >> K[l, step];
        cache.write value >> V[l, step];
        cache.read K[l, 0..step+1] >> past_keys;
        cache.read V[l, 0..step+1] >> past_values;
        op transpose(past_keys, perm=[1, 0, 2]) >> keys;
        op transpose(past_values, perm=[1, 0, 2]) >> values;
        op sdpa(query, keys, values) >> mixed;
        op reshape(mixed, shape=[1, H*Dh]) >> joined;
        op linear(joined, Wo[l]) >> n;
        op add(h, n) >> h;
        op rms_norm(h, N2[l]) >> n;
        op linear(n, W1[l]) >> gate;
        op linear(n, W3[l]) >> up;
        op silu(gate) >> gate;
        op mul(gate, up) >> up;
        op linear(up, W2[l]) >> n;
        op add(h, n) >> h;
    }
    op rms_norm(h, last) >> n;
    op linear(n, head) >> logits;
    cache.increment step;
    return logits;
}
"""


MATRIX = re.compile(r"^    (W\w|head)(\(l\))?: bf16", re.MULTILINE)
"""The declaration of a matrix."""
GROUP = 32
"""Weights with the same scale."""


def text_of(weights: str) -> str:
    """The graph with matrices of another type; integers count as the real numbers that they stand for."""
    return MATRIX.sub(lambda found: found[0].replace("bf16", weights), TEXT)


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a model; the usual ones are those of 1.2 billion parameters."""

    layers: int = 16
    width: int = 2048
    heads: int = 32
    groups: int = 8
    head: int = 64
    hidden: int = 8192
    classes: int = 128256
    tokens: int = 1024

    @property
    def sizes(self) -> dict[str, int]:
        """As the graph calls them."""
        return {
            "L": self.layers,
            "D": self.width,
            "H": self.heads,
            "G": self.groups,
            "Dh": self.head,
            "F": self.hidden,
            "C": self.classes,
            "S": self.tokens,
        }

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights."""
        own, shared = self.heads * self.head, self.groups * self.head
        found: dict[str, tuple[int, ...]] = {"last": (self.width,), "head": (self.classes, self.width)}
        for layer in range(self.layers):
            found |= {
                f"layers.{layer}.norm1": (self.width,),
                f"layers.{layer}.q": (own, self.width),
                f"layers.{layer}.k": (shared, self.width),
                f"layers.{layer}.v": (shared, self.width),
                f"layers.{layer}.o": (self.width, own),
                f"layers.{layer}.norm2": (self.width,),
                f"layers.{layer}.gate": (self.hidden, self.width),
                f"layers.{layer}.up": (self.hidden, self.width),
                f"layers.{layer}.down": (self.width, self.hidden),
            }
        return found

    def read_bytes(self, weights: str = "bf16") -> int:
        """What a step reads at the end of the context: all weights once, and all keys and values."""
        elements = sum(int(np.prod(shape)) for shape in self.tensors.values())
        scales = 0 if weights == "bf16" else elements // GROUP
        cells = 2 * self.layers * self.tokens * self.groups * self.head
        return DTYPES[weights].nbytes(elements) + 2 * (scales + cells)


SMALL = LlamaShape(layers=1, width=512, heads=4, groups=1, head=32, hidden=320, classes=400, tokens=48)


def saved(shape: LlamaShape, path: Path, seed: int | None = None, weights: str = "bf16") -> ModelLoader:
    """A model of random weights; without a seed, of zeros."""
    rng, bf16 = np.random.default_rng(seed), DTYPES["bf16"].array
    tensors: dict[str, Any] = {}
    for name, extents in shape.tensors.items():
        if len(extents) == 2 and weights != "bf16":
            tensors[name] = _integers(rng, extents, weights, is_zero=seed is None)
        elif seed is None:
            tensors[name] = np.zeros(extents, bf16)
        elif len(extents) == 1:
            tensors[name] = rng.uniform(0.5, 1.5, extents).astype(bf16)
        else:
            tensors[name] = (rng.standard_normal(extents) * extents[1] ** -0.5).astype(bf16)
    save_file(path, tensors, sizevars=shape.sizes)
    return ModelLoader.open(path)


def _integers(rng: np.random.Generator, extents: tuple[int, ...], weights: str, *, is_zero: bool) -> TensorSpec:
    dtype = DTYPES[weights]
    codes = np.zeros(extents, np.int8) if is_zero else rng.integers(0, 1 << dtype.bits, extents) + int(dtype.minimum)
    whole = codes.astype(dtype.array)
    spread = 2 * extents[1] ** -0.5 / (dtype.maximum - dtype.minimum)
    scales = (rng.uniform(0.5, 1.5, (extents[0], extents[1] // GROUP)) * spread).astype(DTYPES["bf16"].array)
    return TensorSpec(whole, weights, quant=QuantParams("symmetric", QuantScale.per_group(1, GROUP, scales)))


def build(plan: Plan, shape: LlamaShape, folder: Path, weights: str = "bf16") -> None:
    """The program that steps a model, with a clock around its launches."""
    project = plan.project
    assert isinstance(project, CudaProject | VulkanProject)
    code, sources = project.timed_code()
    for path, text in code.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for path, name in project.shaders.items():
        output = folder / "build" / f"{name}.h"
        output.parent.mkdir(exist_ok=True)
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.2", "--vn", name, "-o", str(output)]
        subprocess.run([*command, str(folder / path)], check=True, capture_output=True)
    calls = project.kernels.calls
    names = ", ".join(f'"{used.name}"' for used, _ in calls)
    numbers = {"LAUNCHES": len(calls), "TOKENS": shape.tokens, "CLASSES": shape.classes}
    facts = f"enum {{ {', '.join(f'{key} = {number}' for key, number in numbers.items())} }};\n"
    facts += f"#define READ_BYTES {shape.read_bytes(weights)}.0\n"
    (folder / "kernels.h").write_text(f"{facts}static const char *const launch_names[] = {{ {names} }};\n")
    folders = [f"-I{folder / one}" for one in ("", "include", "src", "build")]
    files = [str(HOST), *(str(folder / one) for one in sources)]
    if isinstance(project, CudaProject):
        *others, kernels = files
        objects = [f"{folder / Path(one).stem}.o" for one in files]
        for file, made in zip(others, objects, strict=False):
            subprocess.run(["nvcc", "-Xcompiler", "-std=c11", "-O2", *folders, "-c", "-o", made, file], check=True)
        subprocess.run(["nvcc", *project.kernel_flags, *folders, "-c", "-o", objects[-1], kernels], check=True)
        subprocess.run(["nvcc", "-o", str(folder / NAME), *objects], check=True)
        return
    subprocess.run(["gcc", "-std=c11", "-O2", *folders, "-o", str(folder / NAME), *files, "-lvulkan"], check=True)


def with_trials(device: str, trials: Sequence[str]) -> DeviceArch:
    """A shipped device that is asked for kernels which are not the usual ones."""
    document = DeviceArch.named(device).to_json()
    return DeviceArch.from_json({**document, "preferences": {**document.get("preferences", {}), "trials": [*trials]}})


CUDA_RUN = """#!/bin/sh
# Steps of the model. READS: GB that the device reads in a second, which bench.gpu.forms measures there by Vulkan.
cd "$(dirname "$0")" && ./decode "${READS:-4270}" "$@"
"""
RUN = """#!/bin/sh
# How fast the device reads, then steps of the model.
cd "$(dirname "$0")" && ./decode "$(./reads/forms 3000 | awk '/read by hand/ { print $(NF - 2) }')" "$@"
"""


def main() -> None:
    """Build the programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h200-vulkan")
    parser.add_argument("--trials", nargs="+", default=(), help="ways to write kernels, as a device file names them")
    parser.add_argument("--weights", choices=("bf16", "i8", "u8", "i4", "u4"), default="bf16")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--small", action="store_true", help="small sizes, to see whether everything is there")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    shape = SMALL if options.small else LlamaShape(layers=options.layers)
    with TemporaryDirectory() as folder:
        model = saved(shape, Path(folder) / "model.oinf", weights=options.weights)
        arch = with_trials(options.device, options.trials)
        plan = Synthesizer(arch, name=NAME).synthesize(model, graph(text_of(options.weights)))
        build(plan, shape, options.folder, options.weights)
    if arch.api == "vulkan":
        (options.folder / "reads").mkdir(exist_ok=True)
        reads = Program(options.folder / "reads", simt_machine(arch), Numerics.of(arch))
        reads.ceiling(1 << 30)
        reads.build()
    script = options.folder / "run"
    script.write_text(RUN if arch.api == "vulkan" else CUDA_RUN, encoding="ascii")
    script.chmod(0o755)
    print(script)


if __name__ == "__main__":
    main()
