"""Grouped or few-channel convolutions of bytes: windows are offset lists, each offset that of four adjacent bytes.

Each row of a window is copied as groups of four bytes, which one instruction multiplies and adds: one group, or more if
the row is longer. The windows of a row of results are then contiguous, and so are the rows: sums run over the result as
one long row, however narrow it is. The copy adds the borders. With a row stride above one, the rows of each phase are
stored separately.
"""

from dataclasses import dataclass, replace
from typing import Any

from openinfer.dtypes import DType
from openinfer.loops.affine import Affine, position, variables
from openinfer.loops.build import index
from openinfer.loops.ir import (
    ACCUMULATOR,
    Buffer,
    Contraction,
    For,
    Load,
    LoopKind,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    Template,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Change, changed, changed_statements
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu.byte_products import GROUP, flipped
from openinfer.synth.targets.cpu.packing import in_panels
from openinfer.synth.targets.cpu.run_on import run_on
from openinfer.synth.targets.cpu.taps import Along
from openinfer.synth.targets.cpu.window import BAND

_BYTE = 8
_VECTOR = 64
"""The bytes of the widest vector: a compiler may use wider ones than the device has."""
_AT_ONCE = 2
"""Vectors of sums that become one of bytes: with fewer, compilers compute results one by one."""
PLACE = ScalarVar("place")
"""The position of a sum in the result of a band."""


@dataclass(frozen=True)
class ByteTaps(Template):
    """Sums of windows on ``quads``, a copy of their input in groups of four; ``fill`` is the value of borders.

    ``axis`` is the first window axis in the index of the first factor; ``row`` are the windows along it if there are
    two window axes, and ``last`` those along the last. Bytes are flipped in the copy if the instruction needs it.
    """

    rows: int
    vectors: int
    lanes: int
    quads: Buffer
    axis: int
    row: Along | None
    last: Along
    channels: tuple[ScalarVar, int] | None
    bands: int
    fill: int
    is_flipped: bool

    @property
    def groups(self) -> int:
        """The number of groups of four in each row of a window."""
        return -(-self.last.taps // GROUP)

    @property
    def places(self) -> int:
        """The number of rows of each phase that the windows of a band read."""
        return 1 if self.row is None else self.row.places

    @property
    def phases(self) -> int:
        """The number of phases of rows."""
        return 1 if self.row is None else self.row.phases

    @property
    def windows(self) -> int:
        """The number of sums for a row of weights in a band."""
        return self.last.count * (1 if self.row is None else self.row.count)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The byte offsets of the first window's groups: by channel, row of the window, and group in the row."""
        plane, found = self.places * self.last.count, []
        for channel in range(1 if self.channels is None else self.channels[1]):
            for tap in range(1 if self.row is None else self.row.taps):
                phase, place = (0, 0) if self.row is None else self.row.split(tap)
                for group in range(self.groups):
                    start = (channel * self.groups + group) * self.phases + phase
                    found.append(GROUP * (start * plane + place * self.last.count))
        return tuple(found)

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The memory for groups."""
        return (self.quads,)

    @property
    def prepares_factors(self) -> bool:
        """Whether bytes are flipped as they are copied."""
        return self.is_flipped

    @property
    def text(self) -> str:
        """The tile in words, as part of a kernel's text."""
        own = f"in tiles of {self.rows} x {self.vectors * self.lanes} by {self.lanes} at groups of four"
        axes = " and ".join(str(one) for one in (self.row, self.last) if one is not None)
        return f"{own} at offsets {self.offsets}, {self.places} rows, {axes}, padded with {self.fill}"

    @property
    def facts(self) -> dict[str, Any]:
        """The tile in a plan."""
        own = {"rows": self.rows, "columns": self.vectors * self.lanes}
        return {**own, "divided": None, "chosen_by": "rule", "gain": None}


@dataclass(frozen=True)
class ByteWindows:
    """A convolution of bytes with windows as offset lists: the loops around a group, its features and its template."""

    one: Contraction
    loops: tuple[tuple[ScalarVar, int], ...]
    features: tuple[ScalarVar, int] | None
    template: ByteTaps

    @property
    def sums_shape(self) -> tuple[int, int]:
        """The shape of the memory for sums: whole vectors for each row of weights."""
        lanes = _AT_ONCE * self.template.lanes
        rows = 1 if self.features is None else self.features[1]
        return rows, -(-self.template.windows // lanes) * lanes

    @property
    def quads_dtype(self) -> DType:
        """The type of the copied bytes."""
        return flipped(self.one.a.dtype) if self.template.is_flipped else self.one.a.dtype

    @property
    def quads_shape(self) -> tuple[int]:
        """The shape of the memory for groups, with room at the end for whole vectors of windows."""
        own = self.template
        channels = 1 if own.channels is None else own.channels[1]
        whole = channels * own.groups * own.phases * own.places * own.last.count * GROUP
        reach = max(own.offsets) + self.sums_shape[1] * GROUP
        return (max(whole, reach) + _VECTOR,)

    def packing(self) -> Packing:
        """The weights, with rows of windows padded to whole groups: ``[..., 0, 0, tap]``."""
        lead, tap = self._weights
        place = position(self.one.b, self.one.b_index)
        assert place is not None
        steps = [(extent, place.stride(var)) for var, extent in lead]
        taps = () if tap is None else ((tap[1], place.stride(tap[0])),)
        found = in_panels(place.first, tuple(steps), (), taps, GROUP * self.template.groups)
        return replace(found, words="with rows of windows padded to groups of four")

    @property
    def _weights(self) -> tuple[list[tuple[ScalarVar, int]], tuple[ScalarVar, int] | None]:
        """The indices of the weights: those outside a row of a window, and the one along it."""
        own, extents = self.template, self._extents
        place = position(self.one.b, self.one.b_index)
        assert place is not None
        outer = [(var, extent) for var, extent in extents.items() if place.stride(var) and var in self.one.free]
        inner = [own.channels] if own.channels is not None else []
        if own.row is not None and own.row.tap is not None:
            inner.append((own.row.tap, own.row.taps))
        tap = own.last.tap
        return [*outer, *inner], None if tap is None else (tap, own.last.taps)

    @property
    def _extents(self) -> dict[ScalarVar, int]:
        one = self.one
        return dict(zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True))

    @property
    def made_shape(self) -> tuple[int] | None:
        """The shape of the memory for a row of results that are computed in whole vectors and then copied; else None.

        They must be bytes, and read nothing that depends on the window: some are past the last window.
        """
        own, rounded = self.template, self.sums_shape[1]
        windows = {axis.window.name for axis in (own.row, own.last) if axis is not None and axis.window is not None}
        reads = [part for part in visit(self.one.epilogue) if isinstance(part, Load) and variables(part) & windows]
        is_ragged = self.one.out.dtype.bits == _BYTE and own.windows < rounded
        return (rounded,) if is_ragged and not reads else None

    def over(self, panels: Buffer, quads: Buffer, sums: Buffer, made: Buffer | None) -> tuple[Statement, ...]:
        """Sums and results of one group."""
        return (self._sums(panels, quads, sums), *self._results(sums, made))

    def around(self, *body: Statement) -> tuple[Statement, ...]:
        """A body inside the loops."""
        for var, extent in reversed(self.loops):
            body = (For(var, index(extent), body, LoopKind.PARALLEL),)
        return body

    def _sums(self, panels: Buffer, quads: Buffer, sums: Buffer) -> Contraction:
        lead, tap = self._weights
        zero = index(0)
        where = (*(var for var, _ in lead), zero, zero, zero if tap is None else tap[0])
        (one,) = changed_statements((self.one,), self._in_band)
        assert isinstance(one, Contraction)
        own, rows = self.template, [] if self.features is None else [self.features]
        windows = [(axis.window, axis.count) for axis in (own.row, own.last) if axis is not None]
        known = [*rows, *((var, count) for var, count in windows if var is not None)]
        # The order of terms is that of the offset list.
        inner = [*([own.channels] if own.channels is not None else [])]
        inner += [(axis.tap, axis.taps) for axis in (own.row, own.last) if axis is not None and axis.tap is not None]
        return replace(
            one,
            out=sums,
            b=panels,
            b_index=where,
            free=tuple(var for var, _ in known),
            extents=tuple(count for _, count in known),
            bound=tuple(var for var, _ in inner),
            reduced=tuple(count for _, count in inner),
            out_index=(self._row, self._window()),
            epilogue=ScalarVar(ACCUMULATOR, one.accumulator),
            template=replace(own, quads=quads),
        )

    @property
    def _row(self) -> Scalar:
        return index(0) if self.features is None else self.features[0]

    def _window(self) -> Scalar:
        """The position of a window in the result of a band."""
        row, last = self.template.row, self.template.last
        at: Scalar = index(0) if last.window is None else last.window
        if row is None or row.window is None:
            return at
        return row.window * index(last.count) + at

    def _in_band(self, part: Scalar) -> Scalar | None:
        row = self.template.row
        if self.template.bands == 1 or row is None or part != row.window:
            return None
        return BAND * index(row.count) + part

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, sums: Buffer, made: Buffer | None) -> tuple[Statement, ...]:
        """The results of the sums, in one loop if the rows of the result are contiguous."""
        body: tuple[Statement, ...] = ()
        if made is not None:
            total = Load(sums, (self._row, PLACE))
            store = Store(made, (PLACE,), changed(self.one.epilogue, lambda part: _accumulated(part, total)))
            body = (For(PLACE, index(self.sums_shape[1]), (store,), LoopKind.PARALLEL),)
        body = (*body, *(self._as_one_loop(sums, made) or self._by_rows(sums, made)))
        if self.features is None:
            return body
        return (For(self.features[0], index(self.features[1]), body, LoopKind.PARALLEL),)

    def _by_rows(self, sums: Buffer, made: Buffer | None) -> tuple[Statement, ...]:
        found: tuple[Statement, ...] = (self._store((sums, made, self._window()), self._in_band),)
        for axis in (self.template.last, self.template.row):
            if axis is not None and axis.window is not None:
                found = (For(axis.window, index(axis.count), found, LoopKind.PARALLEL),)
        return found

    def _as_one_loop(self, sums: Buffer, made: Buffer | None) -> tuple[Statement, ...] | None:
        row, last = self.template.row, self.template.last
        if row is None or row.window is None or last.window is None:
            return None
        at: Scalar = PLACE
        if self.template.bands > 1:
            at = BAND * index(row.count * last.count) + PLACE
        places: dict[Scalar, Scalar] = {row.window: at // index(last.count), last.window: at % index(last.count)}
        store = self._store((sums, made, PLACE), places.get)
        parts = [part for own in walk(run_on((store,))) for value in scalars(own) for part in visit(value)]
        if any(part in places.values() for part in parts):
            return None
        return (For(PLACE, index(row.count * last.count), (store,), LoopKind.PARALLEL),)

    def _store(self, results: tuple[Buffer, Buffer | None, Scalar], place: Change) -> Store:
        """Stores a result, from a sum or as computed before, at a position; ``place`` substitutes window indices."""
        sums, made, at = results
        one, total = self.one, Load(sums, (self._row, at))
        value: Scalar = one.epilogue if made is None else Load(made, (at,))

        def there(part: Scalar) -> Scalar | None:
            return _accumulated(part, total) or place(part)

        where = tuple(changed(part, there) for part in one.out_index)
        return Store(one.out, where, changed(value, there) if made is None else value)


def _accumulated(part: Scalar, total: Scalar) -> Scalar | None:
    """A sum in place of the accumulator."""
    return total if isinstance(part, ScalarVar) and part.name == ACCUMULATOR else None


def plane_start(one: Contraction, taps: ByteTaps) -> Affine:
    """The start of the plane that the windows of a contraction with ``ByteTaps`` read, for the first channel."""
    place = position(one.a, (*one.a_index[: taps.axis], *[index(0)] * (len(one.a_index) - taps.axis)))
    assert place is not None
    inner = taps.channels[0].name if taps.channels is not None else None
    return Affine(place.first, {name: step for name, step in place.strides.items() if name != inner})
