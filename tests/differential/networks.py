"""Random networks of depthwise and other convolutions, in the simulator and as generated C.

``python -m tests.differential.networks --count 200 --seed 1``: each network for several devices, on one thread and on
three. In three networks of four all values have their channels last in memory that can; in the others it is as
schedules decide. What they compute must not depend on it.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from openinfer import Device, ModelLoader, Simulator
from openinfer.lang import graph
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.cpu.channels_last import ChannelGroups
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes

DEVICES = ("generic", "x86-avx2", "x86-avx512")
THREADS = (1, 3)
FLAGS = ("-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno")
_CHANNELS = (3, 8, 16, 17, 24, 33, 40, 64, 72)
_MOST_ELEMENTS = 40_000
_FAR = 1e-3
"""What is wrong differs by more; roundings by less, even where values cancel each other in a mean."""


@dataclass
class Network:
    """The text of a graph, and its tensors, while it is being made."""

    random: np.random.Generator
    lines: list[str] = field(default_factory=list)
    tensors: dict[str, Array] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several values."""
        return choices[int(self.random.integers(len(choices)))]

    def weight(self, *shape: int) -> str:
        """A new tensor of small numbers."""
        name = f"w{len(self.tensors)}"
        self.tensors[name] = (self.random.standard_normal(shape) / prod(shape[1:]) ** 0.5).astype(np.float32)
        return name

    def add(self, call: str, shape: tuple[int, ...]) -> str:
        """An op; the name of its result."""
        name = f"h{len(self.shapes)}"
        self.lines.append(f"op {call} >> {name};")
        self.shapes[name] = shape
        return name

    def conv(self, x: str, features: int, kernel: tuple[int, int], groups: int) -> str:
        """A convolution, with whatever stride, dilation and padding fit."""
        samples, channels, *extents = self.shapes[x]
        strides = [self.pick((1, 1, 1, 2)) for _ in kernel]
        dilations = [self.pick((1, 1, 1, 2)) if taps > 1 else 1 for taps in kernel]
        pads = [[self.pick((0, taps // 2, taps // 2, taps - 1)) for taps in kernel] for _ in range(2)]
        sizes = zip(extents, kernel, strides, dilations, *pads, strict=True)
        out = [(n + low + high - d * (k - 1) - 1) // s + 1 for n, k, s, d, low, high in sizes]
        if min(out) < 1:
            return x
        own = [self.weight(features, channels // groups, *kernel)] + [self.weight(features)] * self.pick((0, 1))
        given = f"strides={strides}, pads={pads[0] + pads[1]}, dilations={dilations}, groups={groups}"
        return self.add(f"conv2d({x}, {', '.join(own)}, {given})", (samples, features, *out))

    def layer(self, x: str) -> str:
        """One more layer."""
        samples, channels, height, width = self.shapes[x]
        same = [name for name, shape in self.shapes.items() if shape == self.shapes[x]]
        match self.pick("dddpppprrsaxkcgnm"):
            case "d":
                return self.conv(x, channels, self.pick(((3, 3), (5, 5), (1, 5), (3, 1), (2, 4), (9, 9))), channels)
            case "p":
                return self.conv(x, self.pick(_CHANNELS), (1, 1), 1)
            case "r":
                return self.add(f"{self.pick(('relu', 'hard_swish', 'silu'))}({x})", self.shapes[x])
            case "s":
                few = max(channels // 4, 1)
                mean = self.add(f"global_avg_pool({x})", (samples, channels, 1, 1))
                less = self.add(f"conv2d({mean}, {self.weight(few, channels, 1, 1)})", (samples, few, 1, 1))
                more = self.add(f"conv2d({less}, {self.weight(channels, few, 1, 1)})", (samples, channels, 1, 1))
                scale = self.add(f"hard_sigmoid({more})", (samples, channels, 1, 1))
                return self.add(f"mul({x}, {scale})", self.shapes[x])
            case "a":
                return self.add(f"add({x}, {self.pick(same)})", self.shapes[x])
            case "x" if min(height, width) > 1:
                shape = (samples, channels, (height - 2) // 2 + 1, (width - 2) // 2 + 1)
                return self.add(f"{self.pick(('max_pool', 'avg_pool'))}({x}, kernel=[2, 2], strides=[2, 2])", shape)
            case "k":
                return self.conv(x, self.pick(_CHANNELS), (3, 3), 1)
            case "c" if channels < max(_CHANNELS):
                other = self.pick(same)
                return self.add(f"concat({x}, {other}, axis=1)", (samples, 2 * channels, height, width))
            case "g" if channels % 2 == 0:
                return self.conv(x, 2 * self.pick((4, 8, 16)), (3, 3), 2)
            case "n":
                four = (np.abs(self.random.standard_normal((4, channels))) + 0.5).astype(np.float32)
                names = [self.weight(channels) for _ in four]
                self.tensors |= dict(zip(names, four, strict=True))
                return self.add(f"batch_norm({x}, {', '.join(names)})", self.shapes[x])
            case "m":
                return self.add(f"mean_axis({x}, axes=[1], keepdims=true)", (samples, 1, height, width))
            case _:
                return x


def network(seed: int) -> tuple[str, dict[str, Array], Array]:
    """A graph, its tensors and its input."""
    random = np.random.default_rng(seed)
    made = Network(random)
    shape = (made.pick((1, 1, 2)), made.pick(_CHANNELS), *(int(random.integers(5, 24)) for _ in range(2)))
    made.shapes["x"] = shape
    x = made.conv("x", made.pick(_CHANNELS), (1, 1), 1)
    for _ in range(int(random.integers(4, 11))):
        found = made.layer(x)
        x = x if np.prod(made.shapes[found]) > _MOST_ELEMENTS else found
    out = made.add(f"relu({x})", made.shapes[x])

    def declared(name: str, own: tuple[int, ...]) -> str:
        return f"{name}: f32[{', '.join(map(str, own))}];"

    values = " ".join(declared(name, own) for name, own in made.shapes.items() if name != "x")
    weights = " ".join(declared(name, one.shape) for name, one in made.tensors.items())
    given = f"dynamic {{ {declared('x', shape)} }} volatile {{ {weights} {values} }}"
    text = f"{given} block entry {{ {' '.join(made.lines)} op relu({out}) >> result; return result; }}"
    text = text.replace("block entry", f"volatile {{ {declared('result', made.shapes[out])} }} block entry", 1)
    return text, made.tensors, random.standard_normal(shape).astype(np.float32)


def disagreements(
    seed: int, folder: Path, devices: Sequence[str] = DEVICES, threads: Sequence[int] = THREADS
) -> Iterator[str]:
    """What is wrong with the generated code of a network."""
    text, tensors, x = network(seed)
    path = folder / f"{seed}.oinf"
    save_file(path, tensors)
    everywhere: AbstractContextManager[Any] = nullcontext()
    if seed % 4:
        everywhere = patch.object(ChannelGroups, "gain", return_value=1.0)
    with ModelLoader.open(path) as model, everywhere:
        found = graph(text)
        executor = Simulator(model, Device.CPU).make_executor(found)
        executor.insert(x=x)
        executor.step()
        wanted = executor.fetch("result")
        for device in devices:
            for count in threads:
                passes = Passes(divide=Divide(count, worth=0.0))
                plan = Synthesizer(DeviceArch.named(device), passes=passes).synthesize(model, found)
                module = plan.build(flags=FLAGS)
                module.insert(x=x)
                module.step()
                result = module.fetch("result")
                far = np.abs(result - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-30)
                if not far < _FAR:
                    yield f"network {seed} on {device} with {count} threads: {far:.2g} of the largest value"


def main() -> int:
    """Runs networks and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    with TemporaryDirectory(prefix="networks-") as folder:
        for seed in range(options.seed, options.seed + options.count):
            for line in disagreements(seed, Path(folder)):
                wrong += 1
                print(line)
    print(f"{options.count} networks on {len(DEVICES)} devices, {wrong} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
