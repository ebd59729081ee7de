"""The machine model: what generated code may assume of a device with many threads."""

from dataclasses import dataclass
from typing import Literal

from openinfer.synth.devices.description import DeviceArch

Following = Literal["edges", "short", "chain", "one", "counted"]
"""How an early launch waits. ``edges``: for the launches it depends on. ``short``: the same, where only short launches
begin early. ``chain``: for the previous launch, whatever it is. ``one``: for its only dependency; a launch with several
starts after they have ended. ``counted``: until as many groups have ended as were launched before it."""
_GROUP = 256
"""Threads per group, if the device allows that many."""
_LARGEST_GROUP = 1024
"""Upper limit on threads per group, if the device allows that many."""
_LEAST_SHARED, _MOST_SHARED = 16_384, 49_152
"""Shared memory per group that every device has, and the most that a group gets without opting in to more."""
_WITH_MATRIX_UNITS = "sm_90a"
"""The architecture whose matrix instructions on shared-memory tiles are used."""
_WITH_EARLY_LAUNCHES = 90
"""The first architecture on which launches can begin while those before them still run."""
_MANY_REGISTERS, _KEPT_IN_MANY = 1 << 16, 48
"""Registers of a compute unit with which each thread keeps more of a long row, which then takes fewer threads."""
_LEAST_GROUP = 128
"""Threads per group that every device allows."""


@dataclass(frozen=True)
class SharedRows:
    """How several groups share a row, on devices that start groups in the order of their numbers.

    While some groups of a unit wait for memory or for their team, others load or store.
    """

    threads: int = 128
    """Threads of each group."""
    elements: int = 32
    """Elements of a row that each thread keeps in registers at most."""
    most: int = 32
    """Groups of a team at most; they must be able to run at the same time."""
    words: int = 1 << 20
    """Words of memory through which the groups of a launch exchange values at most."""


@dataclass(frozen=True)
class SimtMachine:
    """A device on which a launch runs the same code in many threads, in groups of a fixed size."""

    group: int = _GROUP
    """Threads per group: a power of two, at most the square of the subgroup size."""
    subgroup: int = 0
    """Threads per subgroup, which exchange values without memory; 0 if unknown or unusable."""
    most_groups: int = 65_535
    """Groups per launch at most."""
    largest_group: int = 0
    """Threads per group where a form needs more than ``group``, under the same constraints; 0 if unsupported."""
    kept_elements: int = 32
    """Elements of a row that each thread keeps in registers from one loop to the next."""
    most_kept: int = 0
    """The same for rows that would take several subgroups, which then take fewer; 0 if it is not more."""
    own_elements: int = 64
    """Private arrays of up to this many elements live in registers."""
    in_flight: int = 4096
    """Threads per launch if each has a larger private array; they loop over the remaining iterations."""
    least_row: int = 32
    """Row length from which several threads per row pay off."""
    long_row: int = 1 << 16
    """Length from which a row is too long for one group, if it is the only row."""
    least_block: int = 16
    """Rows, columns and terms from which contractions are computed in blocks."""
    shared_bytes: int = 16_384
    """Shared memory per group."""
    most_shared_bytes: int = 0
    """Shared memory per group if a launch opts in to more."""
    has_matrix_units: bool = False
    """Whether 128 threads can multiply tiles together, with dedicated instructions."""
    unit_registers: int = 0
    """Registers of a compute unit, which the threads that run on it share; 0 if unknown."""
    units: int = 64
    """Compute units: at least this many groups run concurrently, if there are enough."""
    busy: int = 1024
    """Threads per compute unit that keep memory busy if each has several accesses in flight."""
    unrolls: bool = False
    """Whether code can ask the compiler to unroll a loop."""
    fuses: bool = False
    """Whether multiply-add is one instruction with a single rounding."""
    early: Following | None = None
    """How a launch waits that starts while earlier ones still run; None if launches do not overlap."""
    knows_weights: bool = False
    """Whether kernels declare that nothing writes weights."""
    guards_late: bool = False
    """Whether launches check for an earlier failure only before they write."""
    joins: bool = False
    """Whether short launches that do not depend on each other become one."""
    shared_rows: SharedRows | None = None
    """How several groups share a row; None if groups must not wait for each other."""
    unaligned: frozenset[str] = frozenset()
    """Buffers of the current kernel that may start anywhere, not only aligned for the widest access."""
    finite: frozenset[str] = frozenset()
    """Buffers of the current kernel without infinities or NaN: their products with 0 are 0."""

    @property
    def is_early_if_short(self) -> bool:
        """Whether short launches begin early, and no others."""
        return self.early in ("counted", "short")

    @property
    def most_threads(self) -> int:
        """Threads per launch at most."""
        return self.group * self.most_groups


def simt_machine(arch: DeviceArch) -> SimtMachine:
    """The machine model of a device.

    >>> simt_machine(DeviceArch.named("lavapipe")).group, simt_machine(DeviceArch.named("vulkan")).group
    (64, 128)
    """
    limits = arch.limits
    registers = limits.registers_per_unit or 0
    subgroup = limits.subgroup_size or 0
    if subgroup & (subgroup - 1):
        subgroup = 0
    shuffles = arch.features.subgroup_shuffle
    if (arch.features.subgroup_ops if shuffles is None else shuffles) is False:
        subgroup = 0
    most = min(_LARGEST_GROUP, limits.max_workgroup_invocations or _LEAST_GROUP)
    if limits.max_workgroup_size is not None:
        most = min(most, limits.max_workgroup_size[0])
    if subgroup:
        most = min(most, subgroup**2)
    largest = 1 << (most.bit_length() - 1)
    trials = arch.preferences.trials if arch.device.api == "cuda" else ()
    following: dict[str, Following] = {
        "early_launches": "edges",
        "early_launches_in_a_chain": "chain",
        "early_launches_after_one": "one",
    }
    usual: Following | None = "short" if arch.device.api == "cuda" and _begins_early(arch) else None
    early = next((following[one] for one in trials if one in following), usual)
    if "launches_in_turn" in trials:
        early = None
    is_ordered = arch.device.api == "vulkan" and arch.features.ordered_launches is True
    if is_ordered:
        early = "counted"
    return SimtMachine(
        min(_GROUP, largest),
        subgroup,
        largest_group=largest,
        most_kept=_KEPT_IN_MANY if registers >= _MANY_REGISTERS else SimtMachine.most_kept,
        shared_bytes=min(limits.max_shared_memory_bytes or _LEAST_SHARED, _MOST_SHARED),
        most_shared_bytes=limits.max_shared_memory_bytes or 0,
        has_matrix_units=arch.device.api == "cuda" and arch.device.architecture == _WITH_MATRIX_UNITS,
        unit_registers=registers,
        units=limits.compute_units or SimtMachine.units,
        unrolls=arch.device.api == "cuda",
        fuses=arch.numerics.fma == "exact",
        early=early,
        knows_weights="restrict_weights" in trials,
        guards_late=arch.device.api in ("vulkan", "cuda"),
        joins=arch.device.api == "cuda",
        shared_rows=SharedRows() if is_ordered and limits.max_loop_iterations is None else None,
    )


def _begins_early(arch: DeviceArch) -> bool:
    """Whether launches of a CUDA device can begin while those before them still run."""
    name = arch.device.architecture or ""
    digits = name.removeprefix("sm_").rstrip("af")
    return name.startswith("sm_") and digits.isdigit() and int(digits) >= _WITH_EARLY_LAUNCHES
