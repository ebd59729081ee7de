"""Filters of signals and spectra."""

import numpy as np

from openinfer.loops.build import Builder, cast, const, index, load, math, pair, select, stored_position
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import ACCUMULATOR, INDEX, Buffer, Contraction, LoopKind, Scalar, ScalarVar
from openinfer.ops.filters import mel_edges, mel_ends
from openinfer.ops.lower.elementwise import I64, U64
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F64


@lowers("fir")
def _fir(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x, taps), (out,) = inputs, outputs
    assert x is not None
    assert taps is not None
    compute = call.dtype().compute
    dtype = U64 if compute is I64 else compute  # Sums of i64 wrap too.
    free = tuple(builder.fresh("i") for _ in out.shape)
    delay = builder.fresh("k")
    builder.add(
        Contraction(
            out=out,
            a=x.buffer,
            b=taps.buffer,
            free=free,
            extents=out.shape,
            bound=(delay,),
            reduced=taps.shape,
            out_index=free,
            a_index=(*free[:-1], free[-1] - delay),
            b_index=(delay,),
            accumulator=dtype,
            epilogue=cast(ScalarVar(ACCUMULATOR, dtype), compute),
            valid=delay <= free[-1],
        )
    )


# --- the mel scale ----------------------------------------------------------------------------------------------------


class _Mel:
    """The triangles of a filter bank, by what is between two neighbouring edges: one rises there, another one falls.

    Positions are in Hz. Where values are f64, they are sums of two numbers: what is left of a difference has all its
    digits then.
    """

    def __init__(self, call: Call, builder: Builder) -> None:
        self._builder = builder
        self._call = call
        self._bins, self._frequencies = call.params["bins"], call.shape(0)[-1]
        parts = 2 if call.dtype() is F64 else 1
        self._edges = [builder.buffer(F64, (self._bins + 2,), "edges") for _ in range(parts)]
        self._grid = [builder.buffer(F64, (self._frequencies,), "grid") for _ in range(parts)]
        self._starts = builder.buffer(stored_position(self._frequencies), (self._bins + 2,), "starts")
        self._slopes = builder.buffer(F64, (self._frequencies, 2), "slopes")
        if is_symbolic(self._bins):
            self._compute_edges()
        else:
            self._store_edges()
        self._compute_grid()
        self._compute_starts()
        self._compute_slopes()

    def _store_edges(self) -> None:
        """Edges are constants, those of the reference: what lies exactly on one is judged alike."""
        for at, edge in enumerate(mel_edges(self._call)):
            rest = edge
            for buffer in self._edges:
                part = float(rest)
                self._builder.store(buffer, (at,), const(part, F64))
                rest = rest - np.longdouble(part)

    def _compute_edges(self) -> None:
        """The same when the number of bins is known only when the code runs."""
        first, last = mel_ends(self._call)
        with self._builder.loop(self._bins + 2, LoopKind.PARALLEL) as at:
            share = cast(at, F64) / cast(index(self._bins + 1), F64)
            mel = const(float(first), F64) + share * float(last - first)
            edge = (math("pow", const(10, F64), mel / 2595) - 1) * 700
            self._builder.store(self._edges[0], (at,), edge)
            for rest in self._edges[1:]:
                self._builder.store(rest, (at,), const(0, F64))

    def _compute_grid(self) -> None:
        """Where the frequencies are."""
        builder = self._builder
        half = const(float(self._call.params["rate"]) / 2, F64)
        intervals = cast(pair("max", index(self._frequencies - 1), index(1)), F64)
        with builder.loop(self._frequencies, LoopKind.PARALLEL) as f:
            number = builder.let(cast(f, F64))
            product = builder.let(number * half)
            place = builder.let(product / intervals)
            builder.store(self._grid[0], (f,), place)
            for rest in self._grid[1:]:
                lost = math("fma", number, half, -product) + math("fma", -place, intervals, product)
                builder.store(rest, (f,), lost / intervals)

    def _distance(self, frequency: Scalar, edge: Scalar) -> Scalar:
        """How far a frequency is above an edge."""
        first, *rest = (
            load(grid, frequency) - load(edges, edge) for grid, edges in zip(self._grid, self._edges, strict=True)
        )
        return first + rest[0] if rest else first

    def _compute_starts(self) -> None:
        """The first frequency that is not below each edge: how many are."""
        builder = self._builder
        with builder.loop(self._bins + 2, LoopKind.PARALLEL) as edge:
            below = builder.local(0, INDEX)
            with builder.loop(self._frequencies) as f:
                builder.assign(below, below + select(self._distance(f, edge) < 0, index(1), index(0)))
            builder.store(self._starts, (edge,), cast(below, self._starts.dtype))

    def _between(self, edge: Scalar) -> tuple[Scalar, Scalar]:
        """The first frequency between an edge and the next, and how many there are."""
        start = self._builder.let(cast(load(self._starts, edge), INDEX))
        return start, self._builder.let(cast(load(self._starts, edge + 1), INDEX) - start)

    def _compute_slopes(self) -> None:
        builder = self._builder
        with builder.loop(self._bins + 1, LoopKind.PARALLEL) as edge:
            width, *rest = (load(part, edge + 1) - load(part, edge) for part in self._edges)
            width = builder.let(width + rest[0] if rest else width)
            start, count = self._between(edge)
            with builder.loop(count) as i:
                f = builder.let(start + i)
                builder.store(self._slopes, (f, 0), self._distance(f, edge) / width)
                builder.store(self._slopes, (f, 1), -self._distance(f, edge + 1) / width)

    def add(self, total: ScalarVar, power: KernelInput, where: tuple[ScalarVar, ...], mel_bin: ScalarVar) -> None:
        """The power in a triangle: what is outside does not count, not even when it is infinite."""
        builder = self._builder
        for side in (0, 1):
            start, count = self._between(mel_bin + side)
            with builder.loop(count) as i:
                f = builder.let(start + i)
                slope = builder.let(load(self._slopes, f, side))
                with builder.when(slope > 0):
                    builder.assign(total, total + slope * cast(power[(*where, f)], F64))


@lowers("mel_filterbank")
def _mel_filterbank(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (power,), (out,) = inputs, outputs
    assert power is not None
    mel = _Mel(call, builder)
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        total = builder.local(0, F64)
        mel.add(total, power, where[:-1], where[-1])
        builder.store(out, where, cast(total, out.dtype.compute))
