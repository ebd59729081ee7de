"""Interprets launches on the CPU, without a driver: every schedule can be checked before a device runs it.

A launch is a loop over its threads, in any order. If one thread writes an element and another then accesses it, the
loop interpreter raises an error. So each launch runs in both orders, and the results must not depend on the order.
"""

from collections.abc import Mapping, Sequence

from openinfer.dtypes import Array
from openinfer.loops.interpret import UndefinedError, interpret_in_turn
from openinfer.synth.targets.simt.launches import Launches


def launched(found: Launches, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None) -> tuple[Array, ...]:
    """The outputs of a kernel when it runs as launches."""
    kernels = [launch.kernel for launch in found.launches]
    inputs, outputs = found.kernel.inputs, found.kernel.outputs
    one, other = (
        interpret_in_turn(kernels, inputs, outputs, arrays, sizes, order, found.scratch) for order in (iter, reversed)
    )
    if any(left.tobytes() != right.tobytes() for left, right in zip(one, other, strict=True)):
        message = f"what '{found.kernel.name}' computes depends on the order of its threads"
        raise UndefinedError(message)
    return one
