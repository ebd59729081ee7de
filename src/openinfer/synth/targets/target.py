"""``Target``: all that the pipeline must know of what code is written for, as one value; and the registry of targets.

The pipeline imports nothing else of a language or a device. A target that is new adds its own folder, and a line in
``TARGETS``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from openinfer.check.events import TraceLevel
from openinfer.loops.ir import Kernel, Structure
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.placed import MemoryRules, Placed
from openinfer.synth.passes.fuse.fuse import Fuse
from openinfer.synth.passes.fuse.ledger import InexactNode
from openinfer.synth.passes.fuse.pair import FusionRule
from openinfer.synth.passes.simplify import Simplify
from openinfer.synth.program.ir import Program
from openinfer.synth.report.fabric import CircuitFootprint
from openinfer.synth.report.footprint import Footprint
from openinfer.synth.report.profile import Profile
from openinfer.synth.run.library import FLAGS
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.step_memory import WeightMemory
from openinfer.synth.run.timed import TimedRun
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.machine import CpuMachine, no_target
from openinfer.synth.targets.cstyle.dialect import Dialect
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.project import EmittedProject, ProjectOptions
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.vhdl.machine import FpgaMachine
from openinfer.synth.tuning.records import Tuned
from openinfer.synth.tuning.tune import Tune

P = TypeVar("P", bound=EmittedProject)
Pass = Callable[[Program], Program]


class Allowed(StrEnum):
    """What is faster and less exact, and therefore done only where it is asked for."""

    WINOGRAD = "winograd"
    """Convolutions of 3 x 3 by transformed tiles."""


@dataclass(frozen=True)
class Passes:
    """The optional steps of the pipeline; without ``schedule`` everything is computed in plain loops, by one thread."""

    simplify: Simplify | None = field(default_factory=Simplify)
    fuse: Fuse | None = field(default_factory=Fuse)
    schedule: bool = True
    divide: Divide = field(default_factory=Divide)
    tune: Tune | None = None
    """Tiles are chosen by measuring on this machine, where ``tuned`` does not know them."""
    tuned: Tuned | None = None
    """What was measured before; None means the records that are shipped, or nothing where it is measured now."""
    allow: frozenset[Allowed] = frozenset()
    """What may be computed in other ways than the contract of numbers foresees, besides nodes that say so."""
    undo: bool | None = None
    """Whether a step that fails is rolled back, which takes memory; None means where there is an operating system."""

    @classmethod
    def preferred(cls, arch: DeviceArch) -> "Passes":
        """What a device's description asks for."""
        wishes = arch.preferences
        if wishes.prefer_fusion is False:
            return NODE_BY_NODE
        fuse = Fuse() if wishes.max_kernel_ops is None else Fuse(max_kernel_ops=wishes.max_kernel_ops)
        return cls(fuse=fuse, allow=frozenset(map(Allowed, wishes.allow)))


NODE_BY_NODE = Passes(Simplify(fold=False, share=False, drop=False, norms=False), fuse=None)
"""Every node keeps a kernel of its own, also where nothing reads its result."""


# --- targets ----------------------------------------------------------------------------------------------------------

Machine: TypeAlias = CpuMachine | SimtMachine | FpgaMachine
"""What devices have that code is written for; another kind of device is one more member of the union."""


@dataclass(frozen=True)
class BuildOptions:
    """How a project is built and run on this machine."""

    cc: str = "gcc"
    flags: tuple[str, ...] = FLAGS
    trace: TraceLevel = TraceLevel.OFF
    node_budget: int | None = None
    weights: WeightMemory = WeightMemory.HELD


@dataclass(frozen=True)
class Target(Generic[P]):
    """What code is written for: a device, and a language it is written in."""

    name: str
    machine: Machine
    """What the device has. Passes take it from their own target, which knows what kind it is."""
    dialect: Dialect | None
    """How the language says kernels; None where it is not one of C's family."""
    supports: frozenset[Feature]
    numerics: Numerics
    alignment: int
    """In bytes. Nothing else says so: layouts, headers and code follow."""
    index_bits: int
    """The width of positions that it prefers."""
    max_argument_bytes: int
    """The most that the arguments of a kernel take."""
    max_buffer_bytes: int
    """The most bytes that a kernel reaches through one address; no tensor straddles two such segments."""
    passes: Callable[[Passes, MemoryRules], tuple[Pass, ...]]
    """What is done to a program between fusing and placing it."""
    project: Callable[[Placed, ProjectOptions], P]
    """A program as files."""
    build: Callable[[P, BuildOptions], CompiledModule]
    """A project compiled and loaded on this machine."""
    profile: Callable[[P, str, TimedRun], Profile]
    """A project built with a compiler, and timed on this machine."""

    footprint: Callable[[P], Footprint | CircuitFootprint] | None = None
    """What a project takes of the device, measured by its own tools; None where that is this machine's business."""
    facts: Callable[[P], dict[str, Any]] = lambda _project: {}
    """What a plan says of a project beyond what all plans say."""
    structures: frozenset[type[Structure]] = frozenset()
    """The structured statements that its schedule has templates for; all others are loops from the start."""

    rewritten: Callable[[Program, Passes], tuple[Program, tuple[InexactNode, ...]]] | None = None
    """What is done to a program before kernels are joined, where the user allows it; and to which nodes."""
    prepared: Pass | None = None
    """What is done to a program before kernels are joined in launches."""
    is_launch: Callable[[Kernel], bool] | None = None
    """Which kernels run in one launch; None where kernels are functions that are called."""
    fusion_rules: tuple[FusionRule, ...] = ()
    """Rules of its own by which kernels become one."""
    on_device: bool = False
    """Whether steps run in memory of a device."""

    def rules(self, passes: Passes) -> MemoryRules:
        """How memory is laid out."""
        is_hosted = Feature.HOSTED in self.supports
        return MemoryRules(
            self.alignment,
            self.max_buffer_bytes,
            has_heap=is_hosted,
            is_hosted=is_hosted,
            rolls_back=is_hosted if passes.undo is None else passes.undo,
            on_device=self.on_device,
        )


def _c(arch: DeviceArch) -> Target[Any]:
    from openinfer.synth.targets.c_target import c_target

    return c_target(arch)


def _vulkan(arch: DeviceArch) -> Target[Any]:
    from openinfer.synth.targets.vulkan_target import vulkan_target

    return vulkan_target(arch)


def _cuda(arch: DeviceArch) -> Target[Any]:
    from openinfer.synth.targets.cuda_target import cuda_target

    return cuda_target(arch)


def _vhdl(arch: DeviceArch) -> Target[Any]:
    from openinfer.synth.targets.vhdl_target import vhdl_target

    return vhdl_target(arch)


TARGETS: dict[str, Callable[[DeviceArch], Target[Any]]] = {"c": _c, "cuda": _cuda, "vhdl": _vhdl, "vulkan": _vulkan}
"""Targets, by the ``api`` of the devices they are for. A target is imported when it is asked for."""


def target_of(arch: DeviceArch) -> Target[Any]:
    """The target of a device; a device that nothing writes code for has none (E801).

    >>> target_of(DeviceArch.named("x86-avx2")).name
    'c'
    """
    if arch.api not in TARGETS:
        raise no_target(arch)
    return TARGETS[arch.api](arch)
