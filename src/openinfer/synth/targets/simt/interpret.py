"""What launches mean, on the CPU and without a driver: every schedule can be proved before a device sees it.

A launch is a loop over its threads, which may run in any order. Two threads that touch one element, one of them writing
it, are refused by the interpreter of loops if the write comes first; so a launch runs from either end, and what it
computes must not depend on it.
"""

from collections.abc import Mapping, Sequence

from openinfer.dtypes import Array
from openinfer.loops.interpret import UndefinedError, interpret_in_turn
from openinfer.synth.targets.simt.launches import Launches


def launched(found: Launches, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None) -> tuple[Array, ...]:
    """The outputs of a kernel that runs as launches."""
    kernels = [launch.kernel for launch in found.launches]
    inputs, outputs = found.kernel.inputs, found.kernel.outputs
    one, other = (
        interpret_in_turn(kernels, inputs, outputs, arrays, sizes, order, found.scratch) for order in (iter, reversed)
    )
    if any(left.tobytes() != right.tobytes() for left, right in zip(one, other, strict=True)):
        message = f"what '{found.kernel.name}' computes depends on the order of its threads"
        raise UndefinedError(message)
    return one
