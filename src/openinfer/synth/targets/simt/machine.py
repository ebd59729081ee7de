"""What code may assume of a device with many threads."""

from dataclasses import dataclass

from openinfer.synth.devices.description import DeviceArch

_GROUP = 64
"""Threads of a group, where the device has no fewer: whole subgroups on every device."""


@dataclass(frozen=True)
class SimtMachine:
    """A device on which a launch runs the same code in many threads, in groups of a fixed number."""

    group: int = _GROUP
    """Threads of a group."""
    most_groups: int = 65_535
    """Groups of one launch."""
    own_elements: int = 64
    """Memory of a thread is in its registers up to so many elements."""
    in_flight: int = 4096
    """Threads of a launch that have larger memory of their own: others wait for one of them to end."""

    @property
    def most_threads(self) -> int:
        """Threads of one launch."""
        return self.group * self.most_groups


def simt_machine(arch: DeviceArch) -> SimtMachine:
    """What code may assume of a device.

    >>> simt_machine(DeviceArch.named("lavapipe")).group
    64
    """
    return SimtMachine(group=min(_GROUP, arch.limits.max_workgroup_invocations or _GROUP))
