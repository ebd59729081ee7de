"""The schedule of launches: each takes the form that fits it; if none does, each iteration is a thread.

The structure of the loops alone selects a form. Forms map statements to statements, so that the launch interpreter can
check them before a device runs them.
"""

from dataclasses import replace

from openinfer.loops.expand import plain
from openinfer.loops.ir import Alloc, Attend, Contraction, Kernel, Order, Scan, Structure, walk
from openinfer.loops.rewrite import Statements, straightened, variables_of
from openinfer.synth.targets.simt.attention import attention
from openinfer.synth.targets.simt.baseline import LaunchForm, formed, without_contractions
from openinfer.synth.targets.simt.blocks import blocks, fits_blocks
from openinfer.synth.targets.simt.collapsed import with_collapsed_loops
from openinfer.synth.targets.simt.flat import flat
from openinfer.synth.targets.simt.independent import with_independent_loops
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.long import with_long_loops
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.matrix import fits_units, matrix_units
from openinfer.synth.targets.simt.order import sorted_by_groups, with_orders
from openinfer.synth.targets.simt.queries import with_own_queries
from openinfer.synth.targets.simt.query_blocks import query_blocks
from openinfer.synth.targets.simt.query_tiles import query_tiles
from openinfer.synth.targets.simt.recomputed import with_recomputed_rows
from openinfer.synth.targets.simt.rows import rows
from openinfer.synth.targets.simt.scan import scanned
from openinfer.synth.targets.simt.scans import with_scans
from openinfer.synth.targets.simt.split import with_split_sums
from openinfer.synth.targets.simt.stream import streamed
from openinfer.synth.targets.simt.tiles import tiles
from openinfer.synth.targets.simt.together import together
from openinfer.synth.targets.simt.vectors import vectors
from openinfer.synth.targets.simt.wide import FreshNames

STRUCTURES: frozenset[type[Structure]] = frozenset({Attend, Order, Scan})
"""Structures that have forms of their own."""
FORMS: tuple[LaunchForm, ...] = (matrix_units, blocks, sorted_by_groups, scanned, tiles, flat, rows, together)


def scheduled(kernel: Kernel, machine: SimtMachine) -> Launches:
    """A kernel as launches, in the forms that suit a device. Its only structures are those of ``STRUCTURES``."""
    found = attention(kernel, machine) or vectors(kernel, machine)
    found = found or query_tiles(kernel, machine) or query_blocks(kernel, machine)
    if found is not None:
        return found
    kernel = with_own_queries(kernel)
    loops = plain(kernel)
    kernel = with_collapsed_loops(kernel)
    kernel = with_recomputed_rows(with_orders(plain(kernel, frozenset({Order, Scan})), machine))
    kernel = with_scans(kernel, machine)
    kernel = with_split_sums(kernel, machine)
    whole = [one for one in kernel.body if isinstance(one, Contraction)]

    def expand(one: Contraction, taken: set[str]) -> Statements | None:
        found = streamed(one, FreshNames(taken))
        fits = fits_blocks(one, machine) or fits_units(one, machine)
        return (one,) if found is None and any(one is each for each in whole) and fits else found

    body = without_contractions(kernel, expand)
    body = with_independent_loops(straightened(body))
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs)} | {var.name for var in variables_of(body)}
    taken |= {one.buffer.name for one in walk(body) if isinstance(one, Alloc)}
    launches = formed(kernel, with_long_loops(body, machine, FreshNames(taken)), machine, *FORMS)
    return replace(launches, kernel=loops)
