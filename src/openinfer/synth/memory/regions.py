"""Assigns the arena, the state and the weights to a device's memory regions."""

from collections.abc import Mapping
from itertools import product

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.oinf.report import size_text
from openinfer.synth.devices.description import DeviceArch


def regions_for(arch: DeviceArch, needed: Mapping[str, int]) -> dict[str, str]:
    """The region of each kind of memory: the fastest that may hold it and has room beside the others.

    A device that lists no regions has one memory of any size. If things do not fit, error E801 says what.

    >>> regions_for(DeviceArch.named("cortex-m4"), {"arena": 70_000, "state": 1_000, "weights": 0})
    {'arena': 'sram', 'state': 'ccm'}
    """
    regions = arch.memory.regions
    wanted = {what: nbytes for what, nbytes in needed.items() if nbytes}
    if not regions:
        return {}
    choices = [[one for one, region in enumerate(regions) if what in region.holds] for what in wanted]
    for chosen in product(*choices):
        used = [0] * len(regions)
        for number, nbytes in zip(chosen, wanted.values(), strict=True):
            used[number] += nbytes
        if all(taken <= region.bytes for taken, region in zip(used, regions, strict=True)):
            return {what: regions[number].name for what, number in zip(wanted, chosen, strict=True)}
    sizes = ", ".join(f"{what} {size_text(nbytes)}" for what, nbytes in wanted.items())
    message = f"{sizes} do not fit in the memories of {arch.title!r}"
    notes = tuple(f"{one.name}: {size_text(one.bytes)} for {', '.join(one.holds)}" for one in regions)
    raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "see memory.regions of the device", notes))
