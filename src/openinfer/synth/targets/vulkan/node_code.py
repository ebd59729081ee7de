"""One op call as shaders and launches of its own: what an on-device simulator runs for a node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from math import prod

from openinfer.dtypes import DType
from openinfer.loops.dim import at, most_elements
from openinfer.loops.expand import plain
from openinfer.loops.ir import Buffer, Space, Structure
from openinfer.ops import Call, OpRecord
from openinfer.ops.lower.kernel import QuantizationInput, lowered_call
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.gpu.arguments import Given, LaunchCode
from openinfer.synth.targets.gpu.project import device_header
from openinfer.synth.targets.node_kernel import NodeArgument, NodeLaunch, NodeProgram
from openinfer.synth.targets.simt.launches import Launch, Launches, group_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.require import Requirement
from openinfer.synth.targets.simt.schedule import scheduled
from openinfer.synth.targets.vulkan.buildfiles import LIBRARIES
from openinfer.synth.targets.vulkan.dialect import glsl
from openinfer.synth.targets.vulkan.features import features_of
from openinfer.synth.targets.vulkan.project import VULKAN
from openinfer.synth.targets.vulkan.require import ARGUMENT_BYTES
from openinfer.synth.targets.vulkan.shader import launch_code, shader


def host_code() -> tuple[dict[str, str], tuple[str, ...]]:
    """The C host that runs such code: files by path, and the libraries to link."""
    packages = (VULKAN.package, "openinfer.synth.targets.gpu")
    found = [one for package in packages for one in (resources(package) / "host").iterdir()]
    files = {one.name: one.read_text(encoding="utf-8") for one in found if one.name.endswith((".c", ".h"))}
    # Nothing is copied or moved here, so no shader with a fixed number is needed.
    files["device.h"] = f"#pragma once\n{device_header(VULKAN, group=1, kernels=0, axes=1)}"
    places = {name: f"include/{name}" if name.endswith(".h") else f"src/{name}" for name in sorted(files)}
    return {place: files[name] for name, place in places.items()}, LIBRARIES


@dataclass(frozen=True)
class WrittenLaunch:
    """A launch as a shader, with its number of threads per group."""

    launch: Launch
    code: LaunchCode
    group: int


@dataclass(frozen=True)
class NodeCode:
    """An op call as a program of its own, and what its buffers hold."""

    shaders: tuple[str, ...]
    launches: tuple[WrittenLaunch, ...]
    lanes: int
    buffers: tuple[Buffer, ...]
    """Inputs, including those of quantization, then outputs, then memory passed between launches."""
    inputs: int
    outputs: int
    quantization: tuple[QuantizationInput, ...]
    needs: Requirement

    def at(self, sizes: Mapping[str, int]) -> NodeProgram:
        """The program for given dynamic sizes."""
        return NodeProgram(
            self.shaders,
            tuple(self._launch(one, sizes) for one in self.launches),
            tuple(one.dtype.nbytes(prod(at(extent, sizes) for extent in one.shape)) for one in self.buffers),
            self.lanes,
        )

    def _launch(self, one: WrittenLaunch, sizes: Mapping[str, int]) -> NodeLaunch:
        places = {buffer.name: place for place, buffer in enumerate(self.buffers)}
        kernel = one.launch.kernel
        written = {buffer.name for buffer in kernel.outputs}
        arguments = [
            NodeArgument(places[given.name], given.name in written)
            if given.kind is Given.MEMORY
            else NodeArgument(-1, number=sizes[given.name])
            for given in one.code.arguments
            if given.kind in (Given.MEMORY, Given.SIZE)
        ]
        return NodeLaunch(-(-at(one.launch.threads, sizes) // one.group), kernel.can_fail, tuple(arguments))


@dataclass(frozen=True)
class CallWriter:
    """Writes code for single op calls."""

    machine: SimtMachine
    numerics: Numerics
    structures: frozenset[type[Structure]]

    def code(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeCode:
        """The code of a complete call; ``stored`` are the actual dtypes of its operands."""
        lowered = lowered_call(record, call, stored, glsl(self.numerics).about)
        kernel = plain(lowered.kernel, self.structures)
        launches = scheduled(kernel, self.machine)
        printed = [
            launch_code(Launch(one.kernel, one.threads, is_guarded=True), f"launch_{place}", self.numerics)
            for place, one in enumerate(launches.launches)
        ]
        buffers = (*kernel.inputs, *kernel.outputs, *launches.scratch)
        written = tuple(
            WrittenLaunch(launch, code, group_of(launch.kernel, self.machine.group))
            for launch, code in zip(launches.launches, printed, strict=True)
        )
        return NodeCode(
            tuple(shader([one.code], one.group, self.numerics, f"{one.code.name}();") for one in written),
            written,
            self.machine.subgroup,
            buffers,
            len(kernel.inputs),
            len(kernel.outputs),
            lowered.quantization,
            self._requirement(launches, printed),
        )

    def _requirement(self, launches: Launches, printed: Sequence[LaunchCode]) -> Requirement:
        found = frozenset[Feature]().union(*(features_of(one.code, self.numerics) for one in printed))
        shared = (
            sum(one.dtype.nbytes(most_elements(one.shape)) for one in each.kernel.scratch if one.space is Space.GROUP)
            for each in launches.launches
        )
        group = max((group_of(one.kernel, self.machine.group) for one in launches.launches), default=1)
        return Requirement(found, group, max(shared, default=0), ARGUMENT_BYTES)
