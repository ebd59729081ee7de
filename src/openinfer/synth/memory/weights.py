"""Lays out the model data that a program needs in one blob."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from openinfer.check.bound import FromModel
from openinfer.dtypes import DType, convert, pack, unpack
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.oinf.model import ModelLoader
from openinfer.ops import Array
from openinfer.synth.memory.alignment import aligned
from openinfer.synth.program.ir import (
    FOLDED,
    CallStep,
    EntryStep,
    KernelStep,
    Move,
    PartStep,
    Program,
    Storage,
    Weight,
)
from openinfer.synth.program.packing import Packing
from openinfer.tensor import Tensor


@dataclass(frozen=True)
class Piece:
    """One tensor in the blob."""

    name: str
    part: str
    dtype: DType
    packing: Packing | None
    offset: int
    nbytes: int


WeightBytes = bytes | memoryview
WeightKey = tuple[str, str, str, Packing | None]
"""The name of a tensor, its part, dtype, and element order."""


def _key(name: str, weight: Weight) -> WeightKey:
    return name, weight.part, weight.dtype.name, weight.packing


@dataclass(frozen=True, eq=False)
class Places:
    """The offsets of a family's tensors; -1 for tensors that the model does not have."""

    offsets: tuple[int, ...]

    @cached_property
    def has_gaps(self) -> bool:
        """Whether some tensors are missing."""
        return -1 in self.offsets

    @cached_property
    def line(self) -> tuple[int, int] | None:
        """The first offset and the stride, if the stride is uniform and no tensor is missing."""
        first, *others = self.offsets
        step = others[0] - first if others else 0
        even = all(offset == first + step * place for place, offset in enumerate(self.offsets))
        return (first, step) if even and not self.has_gaps else None


@dataclass(frozen=True)
class Segment:
    """A contiguous range of the blob; no tensor spans two segments."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class WeightLayout:
    """The layout of the tensors that a program reads; unused tensors are left out."""

    program: Program
    pieces: Mapping[WeightKey, Piece]
    families: Mapping[Weight, Places]
    """For each operand, without its indices, the offsets of the tensors that it may refer to."""
    size: int
    segments: tuple[Segment, ...]

    def offset(self, weight: Weight, name: str) -> int:
        """The offset of one tensor of a weight operand."""
        return self.pieces[_key(name, weight)].offset

    def places(self, weight: Weight) -> Places:
        """The offsets of all tensors that an operand may refer to."""
        return self.families[replace(weight, index=())]

    def data(self, name: str, part: str, dtype: DType) -> WeightBytes:
        """The bytes of a tensor as kernels read them, before any packing."""
        return _data(self.program, name, part, dtype)

    def blob(self) -> bytes:
        """The whole blob."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[WeightBytes]:
        """The blob from start to end, one piece at a time: at most one tensor of the model is in memory."""
        end = 0
        for piece in self.pieces.values():
            yield bytes(piece.offset - end)
            data = self.data(piece.name, piece.part, piece.dtype)
            yield data if piece.packing is None else _packed(data, piece.dtype, piece.packing)
            end = piece.offset + piece.nbytes
        yield bytes(self.size - end)


def weight_layout(program: Program, alignment: int, max_buffer_bytes: int) -> WeightLayout:
    """The layout of all tensors that a program reads, in the order in which it names them."""
    pieces: dict[WeightKey, Piece] = {}
    size = 0
    operands = (*weights_in(program), *_other_weights(program))
    families: dict[Weight, Places] = {}
    for weight in dict.fromkeys(replace(one, index=()) for one in operands):
        for name in filter(None, weight.names):
            key = _key(name, weight)
            if key not in pieces:
                nbytes = _nbytes(program, name, weight)
                pieces[key] = Piece(name, weight.part, weight.dtype, weight.packing, size, nbytes)
                size += aligned(nbytes, alignment)
        offsets = (pieces[_key(name, weight)].offset if name else -1 for name in weight.names)
        families[weight] = Places(tuple(offsets))
    return WeightLayout(program, pieces, families, size, _segments(pieces.values(), size, max_buffer_bytes))


def _segments(pieces: Iterable[Piece], size: int, most: int) -> tuple[Segment, ...]:
    """As few segments as possible without splitting a piece; pieces keep their order."""
    starts = [0]
    for piece in pieces:
        if piece.nbytes > most:
            message = (
                f"the tensor {piece.name!r} has {piece.nbytes:,} bytes, and the device takes {most:,} in one buffer"
            )
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message))
        if piece.offset + piece.nbytes - starts[-1] > most:
            starts.append(piece.offset)
    return tuple(Segment(start, end - start) for start, end in pairwise((*starts, size)))


def _nbytes(program: Program, name: str, weight: Weight) -> int:
    if weight.packing is not None:
        return weight.dtype.nbytes(prod(weight.packing.shape))
    model = program.bound.model
    if weight.part == "data" and model is not None and name in model.tensors:
        return model.tensors[name].nbytes
    return len(_data(program, name, weight.part, weight.dtype))


def _data(program: Program, name: str, part: str, dtype: DType) -> WeightBytes:
    if part == FOLDED:
        return program.folded[name].raw().tobytes()
    model = program.bound.model
    assert isinstance(model, ModelLoader)
    if part != "data":
        quant = model.tensors[name].quant
        assert quant is not None
        numbers = {"scale": quant.scale, "zero": quant.zero_point, "offset": quant.offset}[part]
        assert numbers is not None
        return numbers.values.astype(dtype.array).tobytes()
    if name in model.tensors:
        return model.load(name).raw().data
    value = np.asarray(model.metadata[name])
    stored = convert(value, dtype) if dtype.kind != "float" else value.astype(dtype.array)
    return pack(stored, dtype).tobytes() if dtype.is_packed else np.asarray(stored).tobytes()


def _packed(data: WeightBytes, dtype: DType, packing: Packing) -> bytes:
    """The bytes of a tensor in packed element order."""
    if not dtype.is_packed:
        return bytes(packing.packed(np.frombuffer(data, dtype.array)).tobytes())
    stream = np.frombuffer(data, np.uint8)
    elements = unpack(stream, dtype, 0, stream.size * 8 // dtype.bits)
    return pack(packing.packed(elements), dtype).tobytes()


def weights_in(program: Program) -> Iterator[Weight]:
    """Every weight operand of a program."""
    for step in program.steps():
        if isinstance(step, KernelStep):
            yield from (operand for operand in step.inputs if isinstance(operand, Weight))
        elif isinstance(step, Move) and isinstance(step.src, Weight):
            yield step.src
        elif isinstance(step, CallStep):
            yield from (operand for operand in step.args if isinstance(operand, Weight))
        elif isinstance(step, EntryStep):
            yield step.family.entries


def _other_weights(program: Program) -> Iterator[Weight]:
    """Weights that no kernel reads: initial values, and tensors that are read in slices."""
    for home in program.homes.values():
        origin = program.bound.vars[str(home.variable)].origin
        if home.storage is Storage.STATE and isinstance(origin, FromModel):
            yield Weight((origin.name,), home.dtype, home.shape)
    for step in program.steps():
        if isinstance(step, PartStep):
            yield from (one for one in (step.whole, step.value) if isinstance(one, Weight))


_CHUNK = 1 << 20


def _are_finite(elements: Array) -> bool:
    """Whether all floats are finite; checks in chunks, as tensors can be larger than memory."""
    starts = range(0, elements.size, _CHUNK)
    return all(bool(np.isfinite(elements[at : at + _CHUNK].astype(np.float64)).all()) for at in starts)


class FiniteWeights:
    """The weights of a program without infinities and NaNs; checks each tensor once."""

    def __init__(self, program: Program) -> None:
        self._model = program.bound.model
        self._folded = program.folded
        self._known: dict[Weight, bool] = {}

    def __contains__(self, weight: Weight) -> bool:
        if weight.dtype.kind != "float" or weight.part not in ("data", FOLDED):
            return True
        family = replace(weight, index=())
        if family not in self._known:
            found = (np.frombuffer(one.raw(), weight.dtype.array) for one in self._tensors(weight))
            self._known[family] = all(_are_finite(one) for one in found)
        return self._known[family]

    def _tensors(self, weight: Weight) -> list[Tensor]:
        if weight.part == FOLDED:
            return [self._folded[name] for name in weight.names]
        model = self._model
        assert isinstance(model, ModelLoader)
        return [model.load(name) for name in weight.names if name in model.tensors]
