"""What code may assume of a device with many threads."""

from dataclasses import dataclass
from typing import Literal

from openinfer.synth.devices.description import DeviceArch

Following = Literal["edges", "chain", "one", "counted"]
"""A launch waits for those that it needs; for the one before it, whatever that is; for the only one that it needs
(where there are several, it begins when they have ended); or until as many groups have ended as are before it."""
_GROUP = 256
"""Threads of a group, where the device allows as many."""
_LARGEST_GROUP = 1024
"""The most threads of a group, where the device allows as many."""
_LEAST_SHARED, _MOST_SHARED = 16_384, 49_152
"""Memory that groups share on every device, and what they have without asking for more where there is more."""
_WITH_MATRIX_UNITS = "sm_90a"
"""The architecture whose instructions for tiles in memory of a group are used."""
_LEAST_GROUP = 128
"""Threads of a group that every device allows."""


@dataclass(frozen=True)
class SimtMachine:
    """A device on which a launch runs the same code in many threads, in groups of a fixed number."""

    group: int = _GROUP
    """Threads of a group: a power of two, at most the square of the threads of a subgroup."""
    subgroup: int = 0
    """Threads of a subgroup, which exchange values without memory; 0 if that is not known."""
    most_groups: int = 65_535
    """Groups of one launch."""
    largest_group: int = 0
    """Threads of a group where one needs more than the usual number, of which the same is true; 0 if it cannot."""
    kept_elements: int = 32
    """Elements of a row that each of its threads keeps in registers from one loop to the next."""
    own_elements: int = 64
    """Memory of a thread is in its registers up to so many elements."""
    in_flight: int = 4096
    """Threads of a launch that have larger memory of their own: others wait for one of them to end."""
    least_row: int = 32
    """Elements of a row for which several threads pay."""
    long_row: int = 1 << 16
    """Elements from which on a row is too long for one group, if there are no others."""
    least_block: int = 16
    """Rows, columns and terms from which on contractions are computed in blocks."""
    shared_bytes: int = 16_384
    """Memory that the threads of a group share."""
    most_shared_bytes: int = 0
    """The same where a group asks for more than the usual."""
    has_matrix_units: bool = False
    """Whether 128 threads multiply tiles together, by instructions of their own."""
    units: int = 64
    """Groups that run at the same time, and no fewer, where there are enough of them."""
    fuses: bool = False
    """Whether a product and a sum are one instruction, which rounds once."""
    early: Following | None = None
    """How launches begin while those before them still run; None if they do not."""
    knows_weights: bool = False
    """Whether kernels say of weights that nothing writes them."""
    guards_late: bool = False
    """Whether launches look only before they write whether an earlier one has failed."""
    unaligned: frozenset[str] = frozenset()
    """Buffers of the kernel at hand that may begin anywhere, not only where the widest access may."""
    finite: frozenset[str] = frozenset()
    """Buffers of the kernel at hand that have neither infinities nor NaN: their products with 0 are 0."""

    @property
    def counts_groups(self) -> bool:
        """Whether launches count the groups of others that have ended, in place of barriers."""
        return self.early == "counted"

    @property
    def most_threads(self) -> int:
        """Threads of one launch."""
        return self.group * self.most_groups


def simt_machine(arch: DeviceArch) -> SimtMachine:
    """What code may assume of a device.

    >>> simt_machine(DeviceArch.named("lavapipe")).group, simt_machine(DeviceArch.named("vulkan")).group
    (64, 128)
    """
    limits = arch.limits
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
    early = next((following[one] for one in trials if one in following), None)
    if arch.device.api == "vulkan" and arch.features.ordered_launches:
        early = "counted"
    return SimtMachine(
        min(_GROUP, largest),
        subgroup,
        largest_group=largest,
        shared_bytes=min(limits.max_shared_memory_bytes or _LEAST_SHARED, _MOST_SHARED),
        most_shared_bytes=limits.max_shared_memory_bytes or 0,
        has_matrix_units=arch.device.api == "cuda" and arch.device.architecture == _WITH_MATRIX_UNITS,
        units=limits.compute_units or SimtMachine.units,
        fuses=arch.numerics.fma == "exact",
        early=early,
        knows_weights="restrict_weights" in trials,
        guards_late=arch.device.api in ("vulkan", "cuda"),
    )
