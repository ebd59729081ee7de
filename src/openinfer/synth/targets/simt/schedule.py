"""The schedule of launches: each has the form that fits what it does, and without one, a thread for each iteration.

Forms are known by the structure of loops alone. They are functions from statements to statements, which the
interpreter of launches proves before a device runs them.
"""

from openinfer.loops.ir import Alloc, Kernel, walk
from openinfer.loops.rewrite import straightened, variables_of
from openinfer.synth.targets.simt.baseline import LaunchForm, formed, without_contractions
from openinfer.synth.targets.simt.flat import flat
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.long import with_long_loops
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.rows import rows
from openinfer.synth.targets.simt.stream import streamed
from openinfer.synth.targets.simt.wide import FreshNames

FORMS: tuple[LaunchForm, ...] = (flat, rows)


def scheduled(kernel: Kernel, machine: SimtMachine) -> Launches:
    """A kernel without structures as launches in the forms that suit a device."""
    body = without_contractions(kernel, lambda one, taken: streamed(one, FreshNames(taken)))
    body = straightened(body)
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs)} | {var.name for var in variables_of(body)}
    taken |= {one.buffer.name for one in walk(body) if isinstance(one, Alloc)}
    return formed(kernel, with_long_loops(body, machine, FreshNames(taken)), machine, *FORMS)
