"""The model data a program needs, laid out in one blob."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from openinfer.dtypes import DType, convert, pack, unpack
from openinfer.oinf.model import ModelLoader
from openinfer.synth.program.ir import FOLDED, EntryStep, KernelStep, Move, Program, Weight, steps_in
from openinfer.synth.targets.cpu.packing import Packing

ALIGNMENT = 64


@dataclass(frozen=True)
class Piece:
    """One tensor in the blob."""

    name: str
    part: str
    dtype: DType
    packing: Packing | None
    offset: int
    nbytes: int


def _key(name: str, weight: Weight) -> tuple[str, str, str, Packing | None]:
    return name, weight.part, weight.dtype.name, weight.packing


class WeightLayout:
    """Where each tensor that a program reads lies; tensors that nothing reads are left out."""

    def __init__(self, program: Program) -> None:
        self._model = program.bound.model
        self._folded = program.folded
        self.pieces: dict[tuple[str, str, str, Packing | None], Piece] = {}
        self.size = 0
        self._included: set[Weight] = set()
        self._offsets: dict[Weight, list[int | None]] = {}
        for weight in weights_in(program):
            self.include(weight)

    def include(self, weight: Weight) -> None:
        """Make room for the tensors of a weight operand."""
        family = replace(weight, index=())
        if family not in self._included:
            self._included.add(family)
            for name in filter(None, weight.names):
                self._add(name, weight)

    def _add(self, name: str, weight: Weight) -> None:
        key = _key(name, weight)
        if key in self.pieces:
            return
        nbytes = len(self.data(name, weight.part, weight.dtype))
        if weight.packing is not None:
            nbytes = weight.dtype.nbytes(prod(weight.packing.shape))
        self.pieces[key] = Piece(name, weight.part, weight.dtype, weight.packing, self.size, nbytes)
        self.size += -(-nbytes // ALIGNMENT) * ALIGNMENT

    def offset(self, weight: Weight, name: str) -> int:
        """The offset of one tensor of a weight operand."""
        return self.pieces[_key(name, weight)].offset

    def offsets(self, weight: Weight) -> list[int | None]:
        """The offsets of all tensors that an operand can be; None for names that the model does not have."""
        family = replace(weight, index=())
        if family not in self._offsets:
            self._offsets[family] = [self.offset(weight, name) if name else None for name in weight.names]
        return self._offsets[family]

    def data(self, name: str, part: str, dtype: DType) -> bytes:
        """The bytes of a tensor as a kernel reads them."""
        if part == FOLDED:
            return self._folded[name].raw().tobytes()
        model = self._model
        assert isinstance(model, ModelLoader)
        if part != "data":
            quant = model.tensors[name].quant
            assert quant is not None
            values = quant.scale.values if part == "scale" else quant.zero_point.values  # type: ignore[union-attr]
            return values.astype(dtype.array).tobytes()
        if name in model.tensors:
            return model.load(name).raw().tobytes()
        value = np.asarray(model.metadata[name])
        stored = convert(value, dtype) if dtype.kind != "float" else value.astype(dtype.array)
        return pack(stored, dtype).tobytes() if dtype.is_packed else np.asarray(stored).tobytes()

    def blob(self) -> bytes:
        """All pieces at their offsets."""
        out = bytearray(self.size)
        for piece in self.pieces.values():
            data = self.data(piece.name, piece.part, piece.dtype)
            if piece.packing is not None:
                data = _in_panels(data, piece.dtype, piece.packing)
            out[piece.offset : piece.offset + piece.nbytes] = data
        return bytes(out)


def _in_panels(data: bytes, dtype: DType, packing: Packing) -> bytes:
    """The bytes of a tensor in another order of its elements."""
    if not dtype.is_packed:
        return bytes(packing.packed(np.frombuffer(data, dtype.array)).tobytes())
    stream = np.frombuffer(data, np.uint8)
    elements = unpack(stream, dtype, 0, stream.size * 8 // dtype.bits)
    return pack(packing.packed(elements), dtype).tobytes()


def weights_in(program: Program) -> Iterator[Weight]:
    """Every weight operand of a program."""
    for steps in program.blocks.values():
        for step in steps_in(steps):
            if isinstance(step, KernelStep):
                yield from (operand for operand in step.inputs if isinstance(operand, Weight))
            elif isinstance(step, Move) and isinstance(step.src, Weight):
                yield step.src
            elif isinstance(step, EntryStep):
                yield step.family.entries


def is_finite(weight: Weight, program: Program) -> bool:
    """Whether the tensors of a weight operand have neither infinities nor NaN."""
    if weight.dtype.kind != "float" or weight.part not in ("data", FOLDED):
        return True
    if weight.part == FOLDED:
        tensors = [program.folded[name] for name in weight.names]
    else:
        model = program.bound.model
        assert isinstance(model, ModelLoader)
        tensors = [model.load(name) for name in weight.names if name in model.tensors]
    found = [np.frombuffer(one.raw(), weight.dtype.array) for one in tensors]
    return all(bool(np.isfinite(one.astype(np.float64)).all()) for one in found)
