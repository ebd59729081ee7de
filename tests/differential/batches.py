"""Batches of random graphs: made, synthesized with and without passes, compiled together, judged."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which

from tests.differential.building import SANITIZERS, Toolchain, library_of, watched
from tests.differential.graphs import RandomGraph, random_graph
from tests.differential.judging import Habits, Spread, judge_graph, parsed

from openinfer import ModelLoader
from openinfer.oinf import save_file
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cpu.choices import Choice, ChooseTile, ProductShape
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.target import Passes
from openinfer.synth.tuning.records import Processor, Tuned, possible_tiles

BATCH = 10
"""Graphs whose code is compiled together, with the same options."""
PLAIN = Passes(simplify=None, fuse=None, schedule=False)
"""Nothing but what must be done."""


class AnyTile(Tuned):
    """Says of every product that some tile is the best; which one, depends on nothing but the product."""

    def choose(self, processor: Processor) -> ChooseTile:
        def some(shape: ProductShape) -> Choice:
            rng = random.Random(repr((shape, processor)))
            rows, vectors = rng.choice(possible_tiles(shape, processor))
            copies = rng.choice((None, True, False)) if shape.right == "lies" else None
            return Choice(rows=rows, vectors=vectors, copies=copies, divided=rng.choice((None, "rows", "columns")))

        return some


IN_THREADS = Passes(divide=Divide(threads=3, worth=0), tuned=AnyTile())
"""Everything that can be divided is, however small, in any tiles."""


@dataclass(frozen=True)
class Setting:
    """How the graphs of a batch become programs."""

    device: str
    toolchain: Toolchain
    is_brief: bool = False
    """Whether each graph becomes one program, not two: one with all passes, or in turn another."""
    beside: "Setting | None" = None
    """Another one, in which the same graphs become programs too."""

    @property
    def every(self) -> "tuple[Setting, ...]":
        """This one, and the one beside it."""
        return (self,) if self.beside is None else (self, *self.beside.every)

    @property
    def has_heap(self) -> bool:
        return self.device in ("cpu", VULKAN.device, CUDA.device)

    @property
    def habits(self) -> Habits:
        """What the device may do that others do not."""
        is_flushing = self == VULKAN and Numerics.of(DeviceArch.named(self.device)).subnormals == "flushed"
        return Habits(is_flushing, has_own_nans=is_flushing or self == CUDA)

    @property
    def arch(self) -> DeviceArch | str:
        """The device; one whose name ends in 32 has addresses of as many bits, as far as its code knows."""
        name = self.device.removesuffix(" 32")
        return self.device if name == self.device else narrow(name)


def narrow(name: str) -> DeviceArch:
    """A shipped device with addresses of 32 bits: code for it has narrow positions, and runs here all the same."""
    document = DeviceArch.named(name).to_json()
    return DeviceArch.from_json({**document, "cpu": {**document["cpu"], "address_bits": 32}})


_QUICK = Toolchain("gcc", ("-O0",))
VULKAN = Setting(
    os.environ.get("OPENINFER_TEST_DEVICE", "lavapipe"),
    _QUICK,
    is_brief=True,
    beside=Setting("cpu", _QUICK, is_brief=True),
)
"""On a device, which runs the shaders, which take long to compile: lavapipe unless another one is named. And in C."""
CUDA = replace(VULKAN, device=os.environ.get("OPENINFER_TEST_DEVICE", "h200"))
"""The same with CUDA: on an H200, unless another one is named."""
ON = {"vulkan": VULKAN, "cuda": CUDA}
"""By the interface of the device."""
SETTINGS = tuple(
    Setting(device, Toolchain(cc, (level,)))
    for device, cc, level in (
        ("cpu", "gcc", "-O1"),
        ("generic", "gcc", "-O0"),
        ("x86-avx2", "clang", "-O0"),
        ("cpu", "gcc", "-O0"),
        ("cpu", "clang", "-O1"),
        ("generic", "clang", "-O0"),
        ("x86-avx2", "gcc", "-O0"),
        ("cpu", "gcc", "-O3"),
        ("cpu", "clang", "-O0"),
        ("generic 32", "gcc", "-O0"),
        ("x86-avx2", "clang", "-O3"),
        ("cpu", "gcc", "-O0"),
        ("x86-avx2 32", "gcc", "-O0"),
        ("generic 32", "gcc", "-O2"),
        ("cpu", "clang", "-O0"),
        ("cpu", "gcc", "-O0"),
    )
)
"""Compilers take several times as long where they optimize, which is therefore what one batch in three does."""


def setting(batch: int, *, sanitized: bool = False) -> Setting:
    """The setting of a batch; where its compiler is not installed, the same with gcc."""
    return available(SETTINGS[batch % len(SETTINGS)], sanitized=sanitized)


def available(found: Setting, *, sanitized: bool) -> Setting:
    """A setting with gcc where its compiler is not installed, and with sanitizers where they are asked for."""
    toolchain = found.toolchain if which(found.toolchain.cc) else Toolchain("gcc", found.toolchain.options)
    if sanitized:
        toolchain = Toolchain("gcc", ("-O0", *SANITIZERS))
    return replace(found, toolchain=toolchain)


@dataclass(frozen=True)
class Failure:
    """A graph for which the two differ, or which one of them refuses."""

    seed: int
    message: str
    text: str
    kind: str = ""
    """The same for the same sort of failure, where that is known."""


@dataclass
class _Version:
    """A graph as a program: which of its variables it returns, and with which passes."""

    made: RandomGraph
    outputs: tuple[str, ...]
    plan: Plan
    how: Setting


def judge_batch(seeds: Sequence[int], how: Setting, folder: Path) -> Iterator[Failure]:
    """Judge graphs that are compiled together."""
    versions: list[_Version] = []
    spreads: dict[int, Spread] = {}
    for seed in seeds:
        made = random_graph(seed, has_heap=how.has_heap)
        try:
            own = folder / f"{seed}.oinf"
            save_file(own, made.tensors)
            model = ModelLoader.open(own)
            versions += [version for one in how.every for version in _versions(made, model, one)]
            spreads[seed] = Spread(made, model, how.habits)
        except Exception as error:  # noqa: BLE001  (whatever a graph causes is what we are looking for)
            yield Failure(seed, f"{type(error).__name__}: {error}", made.text(made.results))
    whole = [one for one in versions if one.made.seed in spreads]
    plans = {way: [one.plan.project for one in whole if one.how == way] for way in how.every}
    libraries = {way: library_of(own, folder / way.device, way.toolchain) for way, own in plans.items() if own}
    for one in whole:
        try:
            module = watched(one.plan.project, libraries[one.how])
            judge_graph(one.made, spreads[one.made.seed], module, one.outputs)
        except Exception as error:  # noqa: BLE001  (as above)
            message = f"{one.how.device}, {one.plan.project.name}: {type(error).__name__}: {error}"
            yield Failure(one.made.seed, message, one.made.text(one.outputs))


def _versions(made: RandomGraph, model: ModelLoader, how: Setting) -> Iterator[_Version]:
    """Only what nobody reads returned, with all passes; and, in turn, everything returned or a pass switched off."""
    everything, last = made.results, made.last
    others = (
        ("plain", everything, PLAIN),
        ("seen", everything, Passes()),
        ("threads", everything, IN_THREADS),
        ("plain", everything, PLAIN),
        ("unfused", last, Passes(fuse=None)),
        ("unscheduled", last, Passes(schedule=False)),
        ("unsimplified", last, Passes(simplify=None)),
    )
    kinds = [("fused", last, Passes()), others[made.seed % len(others)]]
    if how.is_brief:
        kinds = kinds[made.seed % 2 :][:1]
    for name, outputs, passes in kinds:
        synthesizer = Synthesizer(how.arch, name=f"g{made.seed}_{name}", passes=passes)
        yield _Version(made, outputs, synthesizer.synthesize(model, parsed(made.text(outputs))), how)
