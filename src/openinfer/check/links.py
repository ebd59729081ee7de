"""Links declared variables to the model: which entry each one is, and whether their types agree."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from openinfer.check.bound import BoundVar, FromCaller, FromInit, FromModel, FromPattern, Origin
from openinfer.check.problems import Problems, ReportedError
from openinfer.check.sizes import SizeError, Sizes
from openinfer.dtypes import DType, convert, from_numpy_dtype
from openinfer.errors import Advice, Code, Fix, FixPlace, counted, fixes_of
from openinfer.ir import MemoryKind, VarDecl
from openinfer.ir.expr import Expr, names
from openinfer.oinf.layout import DTYPE_BY_TAG
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import TensorInfo
from openinfer.ops import Shape, TensorType
from openinfer.tensor import MAX_DIMS

GIVE_A_MODEL = "--model FILE, or ModelLoader.open(path) in Python"


@dataclass(frozen=True)
class Entry:
    """A tensor or metadata entry of a model, as a value with a type."""

    name: str
    type: TensorType
    has_data: bool
    is_tensor: bool


def model_entry(model: ModelLoader | None, name: str) -> Entry | None:
    """The entry of a name; tensors take precedence over metadata. Strings are not values."""
    if model is None:
        return None
    info: TensorInfo | None = model.tensors.get(name)
    if info is not None:
        return Entry(name, TensorType(info.dtype, info.shape, info.quant), info.has_data, is_tensor=True)
    dtype = metadata_dtype(model, name) if name in model.metadata_info else None
    if dtype is None:
        return None
    return Entry(name, TensorType(dtype, np.shape(model.metadata[name])), has_data=True, is_tensor=False)


def metadata_dtype(model: ModelLoader, name: str) -> DType | None:
    """The dtype of a metadata entry; a bitset holds bools, a string has none."""
    scalar = DTYPE_BY_TAG.get(model.metadata_info[name].tag)
    return scalar or from_numpy_dtype(np.asarray(model.metadata[name]).dtype)


def metadata_scalar_fits(model: ModelLoader, name: str, dtype: DType) -> bool:
    """Whether a metadata number can initialize a constant of another type exactly."""
    value = model.metadata[name]
    if isinstance(value, bool) or dtype.kind == "bool":
        return isinstance(value, bool) and dtype.kind == "bool"
    if not isinstance(value, int | float):
        return False
    if dtype.kind == "float":
        with np.errstate(all="ignore"):
            stored = float(np.asarray(value, np.float64).astype(dtype.array))
        return stored == value or isnan(value)
    fits = value == int(value) if np.isfinite(value) else False
    return fits and dtype.minimum <= value <= dtype.maximum and (not dtype.values or int(value) in dtype.values)


class Links:
    """Links every declared variable to the model, and collects problems."""

    def __init__(
        self, declared: Mapping[str, VarDecl], model: ModelLoader | None, sizes: Sizes, problems: Problems
    ) -> None:
        self._model = model
        self._sizes = sizes
        self._problems = problems
        self.declared = declared.keys()
        self.vars: dict[str, BoundVar] = {}
        self.missing: list[str] = []
        """Variables whose values would come from a model when there is none."""
        self.unlinked: set[str] = set()
        """Variables without a value because of a problem; those that have a type can still be checked."""
        for decl in declared.values():
            try:
                self.vars[decl.name] = self._bound(decl)
            except SizeError as error:
                self._report(error.code, error.message, decl, error.advice)
                if model is None and decl.kind is MemoryKind.CONSTANT and decl.init is None and not decl.is_indexed:
                    self.missing.append(decl.name)
            except ReportedError:
                self.unlinked.add(decl.name)

    def _report(self, code: Code, message: str, decl: VarDecl, advice: str | None = None) -> None:
        self.unlinked.add(decl.name)
        self._problems.report(code, message, decl.span, advice)

    def _bound(self, decl: VarDecl) -> BoundVar:
        shape = tuple(self._sizes.at_most(dim) for dim in decl.dims)
        fixed = {name: self._sizes.at_most(bound) for name, bound in decl.fixed}
        indices = [index for index in decl.table_indices if decl.table and index not in decl.auto_dim]
        require_rank(decl.name, len(indices) + len(shape))  # a whole table, A[], is a tensor too
        is_dynamic = any(self._sizes.is_dynamic(dim) for dim in decl.dims)
        if is_dynamic:
            self._require_one_shape(decl)
        kind = TensorType(decl.dtype, shape, dims=tuple(map(str, decl.dims)))
        entry = None if decl.is_indexed else model_entry(self._model, decl.ref_name or decl.name)
        if entry is not None and not self._is_meant(decl, entry):
            entry = None
        origin = self._origin(decl, kind, entry, is_dynamic=is_dynamic)
        quant = entry.type.quant if entry is not None and isinstance(origin, FromModel) else None
        return BoundVar(decl.name, decl.kind, decl.dtype, decl.dims, shape, origin, decl, quant, fixed, is_dynamic)

    def _require_one_shape(self, decl: VarDecl) -> None:
        """Refuse dynamic sizes if the value outlives the step that binds them, or comes from the model."""
        size = self._first_dynamic(decl.dims)
        if decl.kind is MemoryKind.PERSISTENT:
            what = "an entry of a persistent table" if decl.is_indexed else "a persistent variable"
            message = f"{what} has one shape, but {decl.name!r} has the dynamic size {size!r}"
            raise SizeError(Code.BAD_SHAPE, message, "let it grow instead: K(t): ... @table, written as K[t]")
        if decl.pattern is not None:
            message = f"the entries of a prefix table have one shape, but {decl.name!r} has the dynamic size {size!r}"
            raise SizeError(Code.BAD_SHAPE, message, "give it the shape that the model's tensors have")

    def _first_dynamic(self, dims: tuple[Expr, ...]) -> str:
        return next(name for dim in dims for name in names(dim) if name in self._sizes.bounds)

    def _is_meant(self, decl: VarDecl, entry: Entry) -> bool:
        """Whether an entry is meant by a declaration: metadata fills constants only, unless requested by ``@ref``."""
        return entry.is_tensor or decl.kind is MemoryKind.CONSTANT or decl.ref_name is not None

    def _origin(self, decl: VarDecl, kind: TensorType, entry: Entry | None, *, is_dynamic: bool) -> Origin:
        """The origin of a variable's value; after a problem it is the initial value, so that checking can continue."""
        initial = FromInit(decl.init)
        if decl.pattern is not None:
            return FromPattern(decl.pattern)
        if entry is not None and not self._agrees(decl, kind, entry, is_dynamic=is_dynamic):
            return FromCaller() if decl.kind is MemoryKind.DYNAMIC else initial
        if decl.kind is MemoryKind.DYNAMIC:
            return FromCaller()
        if decl.is_indexed:
            return initial
        if decl.ref_name is not None and entry is None:
            self._missing(decl, decl.ref_name)
            return initial
        if decl.kind is MemoryKind.PERSISTENT and decl.init is not None:
            return initial
        if entry is not None and entry.has_data:
            return FromModel(entry.name)
        if decl.kind is MemoryKind.CONSTANT and decl.init is None:
            self._missing(decl, decl.ref_name or decl.name)
        return initial

    def _agrees(self, decl: VarDecl, kind: TensorType, entry: Entry, *, is_dynamic: bool) -> bool:
        same = entry.type.dtype is decl.dtype and entry.type.shape == kind.shape
        if (same and not is_dynamic) or self._converts(decl, entry, kind.shape):
            return True
        is_input = decl.kind is MemoryKind.DYNAMIC
        if is_dynamic and is_input and entry.type.dtype is decl.dtype and len(entry.type.shape) == len(kind.shape):
            return True  # the caller's value may match; it is compared when inserted
        found = "of the model" if entry.is_tensor else "of the model's metadata"
        message = f"{decl.name!r} is {kind}, but the entry {entry.name!r} {found} is {entry.type}"
        advice = None if decl.ref_name else "variables and entries of one name have one type: rename one of them"
        if same:
            size = self._first_dynamic(decl.dims)
            message = f"{decl.name!r} is {kind} where {size!r} is dynamic, but the entry {entry.name!r} has one shape"
            advice = _declared_as(f"give it the shape of the entry: {entry.type}", entry)
        elif self._is_metadata_scalar(decl, entry, kind.shape):
            advice = _declared_as(f"its value has no {decl.dtype.name} form: declare it as {entry.type}", entry)
        self._report(Code.LINK_TYPE, message, decl, advice)
        return False

    def _is_metadata_scalar(self, decl: VarDecl, entry: Entry, shape: Shape) -> bool:
        return decl.kind is MemoryKind.CONSTANT and not (entry.is_tensor or shape or entry.type.shape)

    def _converts(self, decl: VarDecl, entry: Entry, shape: Shape) -> bool:
        if self._model is None or not self._is_metadata_scalar(decl, entry, shape):
            return False
        return metadata_scalar_fits(self._model, entry.name, decl.dtype)

    def _missing(self, decl: VarDecl, name: str) -> None:
        advice: str | None = None
        if self._model is None:
            message = f"the value of {decl.name!r} comes from a model, and none was given"
            advice = GIVE_A_MODEL if decl.ref_name else f"{GIVE_A_MODEL}; a value of its own is written @init(...)"
            self.missing.append(decl.name)
        elif name in self._model.tensors:
            message = f"the tensor {name!r} of the model has no data for {decl.name!r}"
            advice = "give it @init(...), or write its data into the model" if decl.ref_name is None else None
        elif name in self._model.metadata_info:
            kind = self._model.metadata_info[name].type_name
            message = (
                f"the entry {name!r} of the model's metadata is {kind}, which cannot be the value of {decl.name!r}"
            )
        else:
            message = f"the model has no entry {name!r} for {decl.kind.value} {decl.name!r}"
            known = self._problems.nearest(name, self._model.tensors, self._model.metadata_info)
            advice = known or "give it @init(...), or link it to an entry with @ref(...)"
            if decl.ref_name is None and known is not None:  # the name may be used elsewhere, so only add @ref
                refs = (
                    Fix(f" @ref({json.dumps(fix.new, ensure_ascii=False)})", place=FixPlace.TYPE_END)
                    for fix in fixes_of(known)
                )
                advice = Advice(known, *refs)
        self._report(Code.UNKNOWN_LINK, message, decl, advice)


def _declared_as(words: str, entry: Entry) -> Advice:
    return Advice(words, Fix(str(entry.type), place=FixPlace.TYPE))


def require_rank(name: str, rank: int) -> None:
    """Refuse a rank higher than a tensor can have."""
    if rank > MAX_DIMS:
        message = f"{name!r} has {counted(rank, 'dimension')}, more than the {MAX_DIMS} a tensor may have"
        raise SizeError(Code.BAD_SHAPE, message)


def scalar_value(bound: BoundVar, model: ModelLoader | None) -> Any:
    """The Python value of a scalar constant."""
    found: Any
    match bound.origin:
        case FromInit(initial):
            if initial is None:
                return 0
            found = convert(np.asarray(initial.value), bound.dtype)  # 0.1 is a different number in f16
        case FromModel(name):
            assert model is not None
            found = model.load(name).to_numpy() if name in model.tensors else model.metadata[name]
        case _:
            return None
    return {"float": float, "bool": bool}.get(bound.dtype.kind, int)(found)
