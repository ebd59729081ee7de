"""Scans as a loop with a running total."""

from openinfer.loops.build import Builder, index
from openinfer.loops.ir import Scalar, Scan
from openinfer.loops.rewrite import replaced
from openinfer.loops.running import RunningProduct, RunningSum


def scanned(one: Scan, builder: Builder) -> None:
    """Accumulate step by step, from the end at which the scan begins."""
    extent, dtype = one.axis.extent, one.accumulator
    total = RunningSum(builder, dtype, extent) if one.op == "add" else RunningProduct(builder, dtype)
    with builder.loop(extent) as step:
        at = builder.let(index(extent - 1) - step if one.is_reversed else step)

        def here(value: Scalar) -> Scalar:
            return replaced(value, {one.axis.index: at, one.total: total.value})

        def store() -> None:
            builder.store(one.out.buffer, tuple(map(here, one.out.index)), here(one.out.value))

        total.begin(step)
        if one.is_exclusive:
            store()
        total.take(here(one.term))
        if not one.is_exclusive:
            store()
