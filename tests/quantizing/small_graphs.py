"""Small float graphs, quantized into a folder: what tests of quantization share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openinfer import ModelLoader, QuantizeReport, Simulator, load_graph, quantize
from openinfer.oinf import save_file

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Quantized:
    """A float graph and its integer graph, in files."""

    folder: Path
    report: QuantizeReport

    @property
    def text(self) -> str:
        return Path(self.report.graph).read_text()

    @property
    def ops(self) -> list[str]:
        """The op nodes of the integer graph."""
        return [line.strip().rstrip(";") for line in self.text.splitlines() if " op " in line]

    def outputs(self, samples: Arrays) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What both graphs give, step by step."""
        before, after = (
            Simulator(ModelLoader.open(model)).with_trace("off").make_executor(load_graph(graph))
            for graph, model in (
                (self.folder / "net.oig", self.folder / "net.oinf"),
                (self.report.graph, self.report.model),
            )
        )
        found = []
        for step in range(len(next(iter(samples.values())))):
            both = []
            for executor in (before, after):
                executor.insert({name: array[step] for name, array in samples.items()})
                executor.run_step()
                both.append({name: executor.fetch(name) for name in executor.bound.output_names})
            found.append((both[0], both[1]))
        return found


def quantized(folder: Path, text: str, tensors: Arrays, samples: Any, **options: Any) -> Quantized:
    """Write a float graph and its model, and quantize them."""
    (folder / "net.oig").write_text(text)
    save_file(folder / "net.oinf", tensors, sizevars={"D": 8})
    return Quantized(folder, quantize(folder / "net.oig", folder / "net.oinf", folder / "out", samples, **options))


def noise(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


CNN = """
// A small network.
dynamic { x: f32[1, 3, 8, 8]; }
volatile { y: f32[1, 5]; }
constant {
    W1: f32[6, 3, 3, 3]; b1: f32[6];  // of the first layer
    W2: f32[6, 1, 3, 3];
    W3: f32[6, 6, 1, 1]; b3: f32[6];
    W4: f32[5, 12]; b4: f32[5];
}
block entry {
    assign a: f32[1, 6, 8, 8];
    assign b: f32[1, 6, 8, 8];
    assign c: f32[1, 6, 4, 4];
    assign d: f32[1, 12, 4, 4];
    assign e: f32[1, 12];
    op conv2d(x, W1, b1, pads=1) >> a;
    op relu(a, clamp_max=1.5) >> a;  // as in many small networks
    scope "block" {
        op conv2d(a, W2, pads=1, groups=6) >> b;
        op conv2d(b, W3, b3) >> b;
        op add(a, b) >> b;
        op relu(b) >> b;
    }
    op max_pool(b, kernel=[2, 2]) >> c;
    op concat(c, c, axis=1) >> d;
    op mean_axis(d, axes=[2, 3]) >> e;
    op linear(e, W4, b4) >> y;
    return y;
}
"""


def cnn_tensors() -> dict[str, NDArray[np.float32]]:
    return {
        "W1": noise(6, 3, 3, 3, seed=1) * 0.3,
        "b1": noise(6, seed=2),
        "W2": noise(6, 1, 3, 3, seed=3) * 0.5,
        "W3": noise(6, 6, 1, 1, seed=4) * 0.5,
        "b3": noise(6, seed=5),
        "W4": noise(5, 12, seed=6),
        "b4": noise(5, seed=7),
    }
