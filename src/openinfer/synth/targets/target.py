"""``Target``: everything the pipeline must know about a device and its language, as one value; and the target registry.

The pipeline imports nothing else about a language or a device. A new target adds its own folder and a line in
``TARGETS``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

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
from openinfer.synth.targets.facts import Feature, Numerics, no_target
from openinfer.synth.targets.project import EmittedProject, ProjectOptions

if TYPE_CHECKING:
    from openinfer.synth.targets.cpu.divide import Divide
    from openinfer.synth.targets.cpu.machine import CpuMachine
    from openinfer.synth.targets.cstyle.dialect import Dialect
    from openinfer.synth.targets.simt.machine import SimtMachine
    from openinfer.synth.targets.vhdl.machine import FpgaMachine
    from openinfer.synth.tuning.records import Tuned
    from openinfer.synth.tuning.tune import Tune

P = TypeVar("P", bound=EmittedProject)
Pass = Callable[[Program], Program]


class Allowed(StrEnum):
    """An optimization that is faster but less exact, and therefore opt-in."""

    WINOGRAD = "winograd"
    """3 x 3 convolutions by transformed tiles."""


@dataclass(frozen=True)
class Passes:
    """The optional passes of the pipeline; without ``schedule``, one thread computes everything in plain loops."""

    simplify: Simplify | None = field(default_factory=Simplify)
    fuse: Fuse | None = field(default_factory=Fuse)
    schedule: bool = True
    divide: "Divide | None" = None
    """Divides kernels among threads; None means as ``Divide()`` does, among all cores of the device."""
    tune: "Tune | None" = None
    """Chooses tiles by measuring on this machine, where ``tuned`` has no record."""
    tuned: "Tuned | None" = None
    """Earlier measurements; None means the shipped records, or none if ``tune`` measures now."""
    allow: frozenset[Allowed] = frozenset()
    """The deviations from the numerics contract that are allowed, besides nodes that say so themselves."""
    rollback: bool | None = None
    """Whether a step that fails is rolled back, which takes memory; None means if there is an operating system."""

    @classmethod
    def preferred(cls, arch: DeviceArch) -> "Passes":
        """The passes that a device's description asks for."""
        wishes = arch.preferences
        if wishes.prefer_fusion is False:
            return NODE_BY_NODE
        fuse = Fuse() if wishes.max_kernel_ops is None else Fuse(max_kernel_ops=wishes.max_kernel_ops)
        return cls(fuse=fuse, allow=frozenset(map(Allowed, wishes.allow)))


NODE_BY_NODE = Passes(Simplify(fold=False, share=False, drop=False, norms=False), fuse=None)
"""Every node keeps its own kernel, even if nothing reads its result."""


# --- targets ----------------------------------------------------------------------------------------------------------

Machine: TypeAlias = "CpuMachine | SimtMachine | FpgaMachine"
"""The description of a device's hardware; a new kind of device is one more member of the union."""


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
    """What code is generated for: a device, and a language."""

    name: str
    machine: Machine
    """The hardware of the device. Passes get it from their own target, which knows its kind."""
    dialect: "Dialect | None"
    """How the language spells kernels; None outside the C family."""
    supports: frozenset[Feature]
    numerics: Numerics
    alignment: int
    """In bytes. Its only definition: layouts, headers and code follow it."""
    index_bits: int
    """The preferred width of positions."""
    max_argument_bytes: int
    """The most bytes that the arguments of a kernel can take."""
    max_buffer_bytes: int
    """The most bytes that a kernel reaches through one address; no tensor straddles two such segments."""
    passes: Callable[[Passes, MemoryRules], tuple[Pass, ...]]
    """The passes between fusion and placement."""
    project: Callable[[Placed, ProjectOptions], P]
    """Turns a placed program into files."""
    build: Callable[[P, BuildOptions], CompiledModule]
    """Compiles a project and loads it on this machine."""
    profile: Callable[[P, str, TimedRun], Profile]
    """Builds a project with a compiler and times it on this machine."""

    footprint: Callable[[P], Footprint | CircuitFootprint] | None = None
    """Measures what a project takes on the device, with the device's own tools; None where there is no such measure."""
    facts: Callable[[P], dict[str, Any]] = lambda _project: {}
    """Facts about a project that its plan has beyond those of all plans."""
    structures: frozenset[type[Structure]] = frozenset()
    """The structured statements that its schedule has templates for; all others are lowered to loops first."""

    rewritten: Callable[[Program, Passes], tuple[Program, tuple[InexactNode, ...]]] | None = None
    """Rewrites a program before fusion, as far as the user allows; also returns the nodes that it made inexact."""
    prepared: Pass | None = None
    """The pass before kernels are fused into launches."""
    is_launch: Callable[[Kernel], bool] | None = None
    """Whether a fused kernel runs as one launch; None where kernels are called as functions."""
    fusion_rules: tuple[FusionRule, ...] = ()
    """Fusion rules of its own."""
    on_device: bool = False
    """Whether steps work in device memory."""

    def rules(self, passes: Passes) -> MemoryRules:
        """The rules by which memory is laid out."""
        is_hosted = Feature.HOSTED in self.supports
        return MemoryRules(
            self.alignment,
            self.max_buffer_bytes,
            has_heap=is_hosted,
            is_hosted=is_hosted,
            rolls_back=is_hosted if passes.rollback is None else passes.rollback,
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
"""Targets by the ``api`` of their devices. A target is imported when it is first requested."""


def target_of(arch: DeviceArch) -> Target[Any]:
    """The target for a device; refused if no target generates code for it (E801).

    >>> target_of(DeviceArch.named("x86-avx2")).name
    'c'
    """
    if arch.api not in TARGETS:
        raise no_target(arch)
    return TARGETS[arch.api](arch)
