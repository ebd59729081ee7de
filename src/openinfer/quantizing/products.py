"""Layers as integer arithmetic: i32 sums of products of codes, with biases and zero points in one i32 vector."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from openinfer.check.bound import BoundOp
from openinfer.dtypes import Array
from openinfer.ir import Access, Operand
from openinfer.ir.expr import BinaryExpr, Expr, Num
from openinfer.ir.graph import Constraints
from openinfer.ir.values import DTypeValue, ExprList, IntValue
from openinfer.quantizing import kinds
from openinfer.quantizing.analysis import Candidates
from openinfer.quantizing.calibrate import LoopPlace
from openinfer.quantizing.constants import Constants
from openinfer.quantizing.declarations import F32, I8, I32, Dims, NewDeclarations
from openinfer.quantizing.sharing import Sharing
from openinfer.quantizing.sites import CodeGroup, CodeSite, QuantLayer
from openinfer.quantizing.stored import StoredCodes, StoredWeights
from openinfer.quantizing.writing import Attrs, NodeWriter

MOST_BIAS = 1 << 30
"""The most steps of its sum that a bias may have."""


@dataclass(frozen=True)
class Sums:
    """The sums of a layer on the way to its result."""

    layer: QuantLayer
    name: str
    """The variable of its result."""
    real: Access
    """Where the sums are: first as i32, then as f32."""
    units: Mapping[LoopPlace, npt.NDArray[np.float32]]
    """The value of one step of the sums, for each channel or for all."""
    channels: Dims
    axis: int
    is_scaled: bool = False
    """Whether ``real`` holds numbers already instead of sums."""

    @property
    def has_channels(self) -> bool:
        """Whether each channel has its own scale."""
        return bool(self.channels)


class CodeNames:
    """The variables that hold codes: those that hold nothing else keep their names."""

    def __init__(self, declarations: NewDeclarations, kept: frozenset[str]) -> None:
        self.kept = kept
        self._declarations = declarations
        self._of_sites: dict[CodeSite, Access] = {}
        self._of_names: dict[str, Access] = {}

    def of(self, site: CodeSite, dims: Dims | None = None) -> Access:
        """The variable for the codes of a site."""
        name = site.access.base
        if site.is_read:
            if site not in self._of_sites:
                self._of_sites[site] = self._new(name, dims)
            return self._of_sites[site]
        if name in self.kept:
            return Access(name)
        if name not in self._of_names:
            self._of_names[name] = self._new(name, dims)
        return self._of_names[name]

    def _new(self, name: str, dims: Dims | None) -> Access:
        shape = self._declarations.dims(name) if dims is None else dims
        return self._declarations.temporary(f"{name}_q", name, I8, shape)


class Products:
    """Writes the integer arithmetic of layers."""

    def __init__(
        self,
        candidates: Candidates,
        constants: Constants,
        declarations: NewDeclarations,
        sharing: Sharing,
        writer: NodeWriter,
    ) -> None:
        self._candidates, self._constants, self._declarations = candidates, constants, declarations
        self._sharing, self._writer = sharing, writer
        self._stored: StoredWeights = declarations.stored
        self._renamed: dict[tuple[str, int], Access] = {}

    def weights(self, layer: QuantLayer) -> Access:
        """The weights of a layer as codes."""
        assert layer.weights is not None
        in_place = self._sharing.is_weights_only(layer)
        as_numbers = self._sharing.is_read_as_numbers(layer)
        key = layer.weights.base, layer.axis
        if key not in self._renamed:
            self._renamed[key] = self._declarations.weights(
                layer.weights, layer.axis, in_place=in_place, is_read_as_numbers=as_numbers or layer.is_in_floats
            )
        return replace(layer.weights, base=self._renamed[key].base)

    def sums(
        self,
        layer: QuantLayer,
        own: BoundOp,
        operands: list[Access],
        groups: list[CodeGroup],
        constraints: Constraints,
    ) -> Sums:
        """Write the product; its sums are exact."""
        name = self._candidates.kind(layer.node).outputs[0].base
        assert own.call is not None
        attrs: Attrs = tuple(one for one in self._candidates.kind(layer.node).attrs if one[0] != "acc")
        if kinds.has_padding(layer.op, own.call.params) and any(
            codes.zero for codes in self._constants.codes_in(groups[0])
        ):
            operands = [self._padded(layer, own, operands[0], groups[0])]
            attrs = tuple(one for one in attrs if one[0] != "pads")
        units = self._units(layer, groups)
        found: list[Operand] = [*operands]
        offset = None
        if layer.weights is not None:
            found.append(self.weights(layer))
            offset = self._offset(layer, groups[0], units, name)
        if offset is not None and layer.op != "matmul":
            found.append(offset)
        total = self._declarations.passing(f"{name}_sum", name, I32, self._declarations.dims(name))
        self._writer.op(layer.op, found, total, (*attrs, ("acc", DTypeValue(I32))), constraints)
        if offset is not None and layer.op == "matmul":
            self._writer.op("add", [total, offset], total)
        axis = kinds.result_axis(layer.op, own.call.params, self._declarations.rank(name))
        return Sums(layer, name, total, units, self._channels(layer), axis)

    def _channels(self, layer: QuantLayer) -> Dims:
        if layer.weights is None:
            return ()
        channels, count = self._declarations.dims(layer.weights.base)[layer.axis], self._repeats(layer)
        return (channels if count == 1 else _times(channels, count),)

    def _repeats(self, layer: QuantLayer) -> int:
        own = self._candidates.op(layer.node)
        assert own is not None
        assert own.call is not None
        return kinds.repeats(layer.op, own.call.params)

    def _units(self, layer: QuantLayer, groups: list[CodeGroup]) -> dict[LoopPlace, npt.NDArray[np.float32]]:
        found = {}
        for place in self._constants.places(layer):
            scales = [np.float32(self._constants.at(group, place).scale) for group in groups]
            if layer.weights is None:
                found[place] = np.asarray(scales[0] * scales[1], np.float32)
            else:
                channels = np.tile(self._codes_at(layer, place).scales, self._repeats(layer))
                found[place] = (scales[0] * channels).astype(np.float32)
        return found

    def _codes_at(self, layer: QuantLayer, place: LoopPlace) -> StoredCodes:
        assert layer.weights is not None
        entry = self._stored.entry(layer.weights, dict(zip(layer.path, place, strict=True)))
        return self._stored.codes(entry, layer.axis)

    def _offset(
        self, layer: QuantLayer, group: CodeGroup, units: Mapping[LoopPlace, Array], name: str
    ) -> Access | None:
        """The bias in steps of the sums, minus what the zero point of the operand adds to them."""
        found: dict[LoopPlace, Array] = {}
        entries: dict[str, Array] = {}
        for place, unit in units.items():
            sums = np.tile(self._codes_at(layer, place).sums, self._repeats(layer))
            whole = -self._constants.at(group, place).zero * sums
            if layer.bias is not None:
                entry = self._stored.entry(layer.bias, dict(zip(layer.path, place, strict=True)))
                whole = whole + np.rint(self._stored.array(entry).astype(np.float64) / unit.astype(np.float64))
                entries[entry] = found[place] = _wrapped(whole)
            found[place] = _wrapped(whole)
        if layer.bias is None and not any(array.any() for array in found.values()):
            return None
        if layer.bias is not None and self._sharing.is_own(layer, layer.bias):
            return self._declarations.bias(layer.bias, entries)
        beside = None if layer.weights is None else layer.weights.base
        return self._declarations.constant(f"{name}_offset", beside, layer.path, found, self._channels(layer))

    def _padded(self, layer: QuantLayer, own: BoundOp, codes: Access, group: CodeGroup) -> Access:
        """Codes padded with the zero point, where the convolution would pad with zeros."""
        assert own.call is not None
        source = layer.sites[0].access.base
        dims = self._declarations.dims(source)
        count, pads = len(dims) - 2, tuple(own.call.params["pads"])
        pads = pads * (2 * count) if len(pads) == 1 else pads
        first = 2 if own.call.params["layout"] == "NCHW" else 1
        begins, ends = [0] * len(dims), [0] * len(dims)
        begins[first : first + count], ends[first : first + count] = pads[:count], pads[count:]
        wider = tuple(_more(dim, begin + end) for dim, begin, end in zip(dims, begins, ends, strict=True))
        result = self._declarations.passing(f"{source}_padded", source, I8, wider)
        zero = next(self._constants.codes_in(group)).zero
        attrs: Attrs = (("pads", ExprList(tuple(map(Num, (*begins, *ends))))), ("value", IntValue(zero)))
        self._writer.op("pad", [codes], result, attrs)
        return result

    def real(self, sums: Sums, *, is_scaled: bool) -> Sums:
        """Sums as f32: still to be scaled, or with ``is_scaled`` as the numbers that they stand for."""
        beside = sums.name
        real = self._declarations.passing(f"{sums.name}_real", beside, F32, self._declarations.dims(sums.name))
        if is_scaled:
            self.numbers(sums, real)
        else:
            self._writer.op("cast", [sums.real], real, (("to", DTypeValue(F32)),))
        return replace(sums, real=real, is_scaled=is_scaled)

    def numbers(self, sums: Sums, result: Access) -> int:
        """Write the numbers that sums stand for, as f32."""
        unit = self._constant(f"{sums.name}_unit", sums, sums.units)
        attrs: Attrs = (("axis", IntValue(sums.axis)),) if sums.axis and sums.has_channels else ()
        return self._writer.op("dequantize", [sums.real, unit], result, attrs)

    def steps(self, sums: Sums, group: CodeGroup, name: str) -> Access:
        """One step of a result's codes, in steps of the sums."""
        found = {
            place: (np.float32(self._constants.at(group, place).scale) / unit).astype(np.float32)
            for place, unit in sums.units.items()
        }
        return self._constant(f"{name}_step", sums, found)

    def _constant(self, name: str, sums: Sums, values: Mapping[LoopPlace, Array]) -> Access:
        layer = sums.layer
        beside = (layer.bias or layer.weights or Access("")).base or None
        return self._declarations.constant(name, beside, layer.path, values, sums.channels)


def _wrapped(whole: Array) -> npt.NDArray[np.int32]:
    return np.asarray(whole, np.int64).astype(np.int32)


def _times(dim: Expr, count: int) -> Expr:
    return Num(dim.value * count) if isinstance(dim, Num) else BinaryExpr("*", Num(count), dim)


def _more(dim: Expr, count: int) -> Expr:
    if isinstance(dim, Num):
        return Num(dim.value + count)
    return BinaryExpr("+", dim, Num(count)) if count else dim
