"""Windows of three bytes in C, two at a time, with the instructions of a Cortex-M; in plain C elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations

from openinfer.loops.affine import Affine, position, variables
from openinfer.loops.cse import named
from openinfer.loops.ir import Contraction, Let, Load, Scalar, ScalarVar, visit
from openinfer.loops.rewrite import replaced
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS
from openinfer.synth.targets.cpu.emit.tiling import COLUMN, PAD, counted, loop, of_sum, offset_from
from openinfer.synth.targets.cpu.emit.word_tiles import HAS_PAIRS, Pairs
from openinfer.synth.targets.cpu.word_taps import WordTaps
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need


@dataclass(frozen=True)
class TapPairs:
    """The functions that accumulate one row of a window, or of two adjacent windows."""

    dtype: str

    @property
    def name(self) -> str:
        """The function for two windows."""
        return f"oi_taps_{self.dtype}"

    @property
    def alone(self) -> str:
        """The function for one window."""
        return f"oi_tap_{self.dtype}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Pairs."""
        return (Pairs(self.dtype),)

    @property
    def text(self) -> str:
        """The definitions."""
        kind, pairs = ELEMENTS[self.dtype], Pairs(self.dtype)
        return f"""/* Packs the outer two of three weights; the middle one stays separate. */
#define oi_outer(first, last) ((uint32_t)(uint16_t)(first) | (uint32_t)(last) << 16)

/* Adds the products of three weights with the bytes at p to a sum. */
static inline int32_t {self.alone}(const {kind} *p, uint32_t outer, int32_t middle, int32_t sum)
{{
    return sum + p[0] * (int16_t)outer + p[1] * middle + p[2] * (int16_t)(outer >> 16);
}}

/* The same for two windows, the second one byte further. */
static inline void {self.name}(const {kind} *p, uint32_t outer, int32_t middle, int32_t *sums)
{{
#if {HAS_PAIRS}
    uint32_t word, even, odd;
    memcpy(&word, p, sizeof word);
    {pairs.even}(even, word);
    {pairs.odd}(odd, word);
    sums[0] = __smlabb((int32_t)odd, middle, __smlad((int16x2_t)even, (int16x2_t)outer, sums[0]));
    sums[1] = __smlatb((int32_t)even, middle, __smlad((int16x2_t)odd, (int16x2_t)outer, sums[1]));
#else
    sums[0] = {self.alone}(p, outer, middle, sums[0]);
    sums[1] = {self.alone}(p + 1, outer, middle, sums[1]);
#endif
}}
"""


def window_lines(one: Contraction, taps: WordTaps, scalars: ScalarPrinter) -> list[str]:
    """The lines of a contraction of such windows."""
    return _Windows(one, taps, scalars).lines()


class _Windows:
    """Weights outside, then windows, two at a time, and the results of their sums."""

    def __init__(self, one: Contraction, taps: WordTaps, scalars: ScalarPrinter) -> None:
        self._one, self._taps, self._scalars = one, taps, scalars
        self._extents = dict(zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True))
        self._index = counted(scalars, (*one.free, COLUMN), [*self._extents.values(), one.a.shape[-1]])
        self._functions = TapPairs(one.a.dtype.name)
        scalars.need(self._functions)

    def lines(self) -> list[str]:
        """All loops, outermost first."""
        names = variables(*self._one.b_index)
        outside = [var for var in self._one.free if var.name in names]
        inside = [var for var in self._one.free if var not in outside and var != self._taps.along]
        loads, parts = self._known(inside)
        body = _nested(self._loops(inside), self._along(parts))
        lines = _nested(self._loops(outside), [*self._weights(), *loads, *body])
        return lines if outside else ["{", *(PAD + line for line in lines), "}"]

    def _loops(self, variables_: Sequence[ScalarVar]) -> list[str]:
        return [loop(self._index, var.name, self._extents[var]) for var in variables_]

    def _rows(self) -> list[dict[str, int]]:
        """The indices of each row of a window."""
        others = [var for var in self._one.bound if var != self._taps.tap]
        places = combinations(*(range(self._extents[var]) for var in others))
        return [dict(zip((var.name for var in others), place, strict=True)) for place in places]

    def _weights(self) -> list[str]:
        """The weights of each row of a window, which stay in registers."""
        place = position(self._one.b, self._one.b_index)
        assert place is not None
        start = offset_from(self._one.b.name, self._scalars.position(_start(place, self._one).scalar()))
        lines = [f"const {ELEMENTS[self._one.b.dtype.name]} *const taps = {start};"]
        step = int(place.stride(self._taps.tap))
        for number, row in enumerate(self._rows()):
            first = _offset(place, row)
            lines.append(f"const uint32_t outer{number} = oi_outer(taps[{first}], taps[{first + 2 * step}]);")
            lines.append(f"const int32_t middle{number} = taps[{first + step}];")
        return lines

    def _known(self, inside: Sequence[ScalarVar]) -> tuple[list[str], dict[Scalar, Scalar]]:
        """Hoists the loads that all windows of the same weights share into variables."""
        changing = {var.name for var in (*inside, self._taps.along)}
        lines, parts = [], dict[Scalar, Scalar]()
        for load in visit(self._one.epilogue):
            if (
                not isinstance(load, Load)
                or load in parts
                or load.buffer == self._one.out
                or variables(load) & changing
            ):
                continue
            own = ScalarVar(f"{load.buffer.name}_row{len(parts)}", load.dtype)
            parts[load] = own
            lines.append(self._scalars.constant(Let(own, load)))
        return lines, parts

    def _along(self, known: dict[Scalar, Scalar]) -> list[str]:
        """The loop over windows."""
        along, extent = self._taps.along.name, self._extents[self._taps.along]
        place = position(self._one.a, self._one.a_index)
        assert place is not None
        start = offset_from(self._one.a.name, self._scalars.position(_start(place, self._one).scalar()))
        rows = [f"from + {_offset(place, row)}, outer{at}, middle{at}" for at, row in enumerate(self._rows())]
        two = [f"{self._functions.name}({row}, sums);" for row in rows]
        last = [f"sums[0] = {self._functions.alone}({row}, sums[0]);" for row in rows]
        body = [f"const {ELEMENTS[self._one.a.dtype.name]} *const from = {start};", "int32_t sums[2] = {0};"]
        columns = "2"
        if extent % 2:
            columns = "columns"
            body.append(f"const int columns = {extent} - {along} < 2 ? 1 : 2;")
            two = [
                "if (columns == 2) {",
                *(PAD + line for line in two),
                "} else {",
                *(PAD + line for line in last),
                "}",
            ]
        results = _nested([f"for (int column = 0; column < {columns}; ++column)"], self._results(known))
        head = f"for ({self._index} {along} = 0; {along} < {extent}; {along} += 2)"
        return _nested([head], [*body, *two, *results])

    def _results(self, known: dict[Scalar, Scalar]) -> list[str]:
        one, scalars = self._one, self._scalars
        moved: dict[Scalar, Scalar] = {self._taps.along: self._taps.along + COLUMN}
        epilogue, index = replaced(replaced(one.epilogue, known), moved), [replaced(at, moved) for at in one.out_index]
        sums, epilogue = of_sum(epilogue, one.accumulator, "int32_t", "sums[column]")
        lets, value = named(epilogue, *index, Load(one.out, ()))
        return [
            *sums,
            *map(scalars.constant, lets),
            scalars.store(one.out, scalars.offset(one.out, tuple(index)), value),
        ]


def _start(place: Affine, one: Contraction) -> Affine:
    """A position with all inner indices at 0."""
    inner = {var.name for var in one.bound}
    return Affine(place.first, {name: step for name, step in place.strides.items() if name not in inner})


def _offset(place: Affine, row: dict[str, int]) -> int:
    """The offset of a row from the first."""
    return sum(int(place.strides.get(name, 0)) * at for name, at in row.items())


def _nested(heads: Sequence[str], body: Sequence[str]) -> list[str]:
    """Lines inside loops."""
    lines = [*body]
    for head in reversed(heads):
        lines = [f"{head} {{", *(PAD + line for line in lines), "}"]
    return lines
