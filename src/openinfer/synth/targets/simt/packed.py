"""Integers of 4 and 8 bits as floats, from the words that hold them: two or three instructions for each.

Devices convert integers at a fraction of the rate at which they multiply, too slowly for a stream of weights. So a
field is masked where it is, and becomes the low bits of a float at 2**23: one multiply-add moves it down and removes
what was added. All of it is exact.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import bits, math
from openinfer.loops.ir import Binary, Buffer, Cast, Const, Let, Scalar, ScalarVar, Statement, WideLoad, scalars, visit
from openinfer.loops.rewrite import Statements, changed, with_bodies, with_scalars
from openinfer.synth.targets.simt.wide import FreshNames

PACKED = ("i8", "u8", "i4", "u4")
"""The integers that are converted so."""
_U32, _F32 = DTYPES["u32"], DTYPES["f32"]
_HALF = 16
"""Fields above this bit would reach into the exponent."""
_ONE = 1 << 23
MAGIC = Const(0x4B000000, _U32)
"""2**23 as a float, whose last bit counts ones."""


@dataclass(frozen=True)
class _Field:
    """An integer in a word."""

    word: ScalarVar
    bit: int
    dtype: DType

    @property
    def flip(self) -> int:
        """What makes all numbers of a word unsigned, each larger by half its range: their signs."""
        width = self.dtype.bits
        return sum(1 << at + width - 1 for at in range(0, 32, width)) if self.dtype.kind == "int" else 0


@dataclass(frozen=True)
class PackedNumbers:
    """Statements whose wide loads of integers become loads of words, unpacked where their numbers are needed."""

    buffers: Collection[Buffer]
    """Buffers of integers that are only read as f32."""
    magic: Scalar
    """``MAGIC``, in a register: masks and or then are one instruction, which takes one constant at most."""
    names: FreshNames
    fuses: bool
    """Whether multiply-add is one instruction."""
    _fields: dict[Scalar, _Field] = field(default_factory=dict)

    def converted(self, body: Statements) -> Statements:
        """The statements; those that come first must be converted first."""
        return self._inside(body, {})

    def _inside(self, body: Statements, known: Mapping[tuple[ScalarVar, bool], ScalarVar]) -> Statements:
        own, made = dict(known), list[Statement]()

        def number(part: Scalar) -> Scalar | None:
            return self._number(part, own)

        for one in body:
            if isinstance(one, WideLoad) and one.buffer in self.buffers and not one.has_words:
                made.append(self._of_words(one))
                continue
            for found in (self._fields.get(part) for value in scalars(one) for part in visit(value)):
                made += () if found is None else self._prepared(found, own)
            copy = with_scalars(one, lambda value: changed(value, number))
            made.append(with_bodies(copy, lambda inner: self._inside(inner, own)))
        return tuple(made)

    def _of_words(self, one: WideLoad) -> WideLoad:
        dtype = one.buffer.dtype
        words = [self.names.var(one.buffer.name, _U32) for _ in range(one.count * dtype.bits // 32)]
        for place, var in enumerate(one.variables):
            bit = place * dtype.bits
            self._fields[var] = _Field(words[bit // 32], bit % 32, dtype)
        return WideLoad(tuple(words), one.buffer, one.index, one.is_ahead)

    def _prepared(self, one: _Field, own: dict[tuple[ScalarVar, bool], ScalarVar]) -> Iterator[Statement]:
        """The word without signs, and its upper half moved down, each once."""
        for is_high in (False, True)[: 1 + (one.bit >= _HALF)]:
            if (one.word, is_high) in own:
                continue
            word: Scalar = own[one.word, False] if is_high else one.word
            if is_high or one.flip:
                own[one.word, is_high] = var = self.names.var(one.word.name, _U32)
                other = Const(_HALF if is_high else one.flip, _U32)
                yield Let(var, Binary("shr" if is_high else "xor", word, other))
            else:
                own[one.word, False] = one.word

    def _number(self, part: Scalar, own: Mapping[tuple[ScalarVar, bool], ScalarVar]) -> Scalar | None:
        if not isinstance(part, Cast) or part.operand not in self._fields:
            return None
        one = self._fields[part.operand]
        bit, width = one.bit % _HALF, one.dtype.bits
        word = own[one.word, one.bit >= _HALF]
        masked = Binary("and", word, Const(((1 << width) - 1) << bit, _U32))
        number = bits(Binary("or", masked, self.magic), _F32)
        least = Const(float((_ONE >> bit) + (1 << width - 1 if one.flip else 0)), _F32)
        if bit == 0:
            return Binary("sub", number, least)
        unit = Const(1 / (1 << bit), _F32)
        if self.fuses:
            return math("fma", number, unit, Const(-least.value, _F32))
        return Binary("sub", Binary("mul", number, unit), least)
