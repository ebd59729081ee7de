"""Builds models from Python objects: dataclasses, dicts, arrays."""

import dataclasses
import operator
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import DType, dtype_of
from openinfer.errors import Code, Diagnostic, OinfError, TensorError
from openinfer.oinf.file import AnyPath
from openinfer.oinf.metadata import MetadataValue, metadata_value
from openinfer.oinf.package import Held, Package, TensorEntry, duplicate_name, size_value
from openinfer.oinf.quant import QuantParams
from openinfer.tensor import Tensor

_EXTRA_TABLES = ("sizevars", "metadata", "tensors")


@dataclass(frozen=True)
class SizeVar:
    """Marks a value as a size variable.

    >>> SizeVar(16)
    SizeVar(value=16)
    """

    value: int


@dataclass(frozen=True, eq=False)
class TensorSpec:
    """Marks a value as a tensor, with its dtype, its name in the file and its quantization if they matter."""

    values: npt.ArrayLike | Tensor
    dtype: str | DType | None = None
    name: str | None = None
    quant: QuantParams | None = None

    def __post_init__(self) -> None:
        _require_parameters(self.quant)


@dataclass(frozen=True)
class UninitializedTensor:
    """A tensor that the model declares without values."""

    dtype: str | DType
    shape: tuple[int, ...]
    name: str | None = None
    quant: QuantParams | None = None

    def __post_init__(self) -> None:
        _require_parameters(self.quant)


def _require_parameters(quant: object) -> None:
    if quant is not None and not isinstance(quant, QuantParams):
        message = f"the quantization of a tensor must be QuantParams, not {quant!r:.100}"
        raise OinfError(Diagnostic(Code.BAD_QUANTIZATION, message))


@dataclass
class _Tables:
    sizevars: dict[str, int] = dataclasses.field(default_factory=dict)
    metadata: dict[str, MetadataValue] = dataclasses.field(default_factory=dict)
    tensors: dict[str, TensorEntry] = dataclasses.field(default_factory=dict)

    def add(self, name: str, value: object, annotation: object = None) -> None:
        """Add a named value to the table it belongs to."""
        if isinstance(value, SizeVar) or (_names_a_size(annotation) and not isinstance(value, bool)):
            self.add_sizevar(name, value)
        elif isinstance(value, TensorSpec | UninitializedTensor | np.ndarray | Tensor):
            self.add_tensor(name, value)
        else:
            self.add_metadata(name, value)

    def add_sizevar(self, name: str, value: object) -> None:
        if name in self.sizevars:
            raise duplicate_name("size variable", name)
        self.sizevars[name] = size_value(name, value.value if isinstance(value, SizeVar) else value)

    def add_metadata(self, name: str, value: object) -> None:
        if name in self.metadata:
            raise duplicate_name("metadata", name)
        self.metadata[name] = named_metadata(name, value)

    def add_tensor(self, name: str, value: object) -> None:
        entry = tensor_entry(name, value)
        if entry.name in self.tensors:
            raise duplicate_name("tensor", entry.name)
        self.tensors[entry.name] = entry


def dataclass_to_oinf(instance: object, version: int = 2) -> bytes:
    """The bytes of a model file with the contents of a dataclass instance.

    >>> @dataclass
    ... class Tiny:
    ...     D: int
    ...     w: TensorSpec
    ...     mode: str = "fast"
    >>> len(dataclass_to_oinf(Tiny(2, TensorSpec([1.0, 2.0]))))
    200
    """
    return _package(instance, version).to_bytes()


def write_oinf(instance: object, path: AnyPath, version: int = 2) -> None:
    """Write the contents of a dataclass instance to a model file."""
    from openinfer.oinf.writer import write_package

    write_package(path, _package(instance, version))


def _package(instance: object, version: int) -> Package:
    tables = _Tables()
    for name, value, annotation in _fields(instance):
        tables.add(name, value, annotation)
    for name, value in _extra(instance, "sizevars"):
        tables.add_sizevar(name, value)
    for name, value in _extra(instance, "metadata"):
        tables.add_metadata(name, value)
    for name, value in _extra(instance, "tensors"):
        tables.add_tensor(name, value)
    return Package.of(tables.sizevars, tables.metadata, tables.tensors.values(), version)


def _fields(instance: object) -> Iterable[tuple[str, object, object]]:
    if not dataclasses.is_dataclass(instance) or isinstance(instance, type):
        if any(isinstance(getattr(instance, table, None), Mapping) for table in _EXTRA_TABLES):
            return []
        raise OinfError(
            Diagnostic(
                Code.BAD_AUTHORING_VALUE,
                f"cannot make a model of {instance!r:.100}",
                help="pass an instance of a dataclass, or use save_file with dicts",
            )
        )
    annotations = _annotations(type(instance))
    return [
        (field.name, getattr(instance, field.name), annotations.get(field.name))
        for field in dataclasses.fields(instance)
        if field.name not in _EXTRA_TABLES or not isinstance(getattr(instance, field.name), Mapping)
    ]


def _annotations(kind: type) -> dict[str, Any]:
    """Field annotations, with forward references resolved where possible."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {field.name: field.type for field in dataclasses.fields(kind)}


def _extra(instance: object, table: str) -> Iterable[tuple[str, object]]:
    entries = getattr(instance, table, None)
    return entries.items() if isinstance(entries, Mapping) else []


def _names_a_size(annotation: object) -> bool:
    return annotation in (int, SizeVar, "int", "SizeVar")


def _shape(name: str, shape: Iterable[Any]) -> tuple[int, ...]:
    """The extents as plain integers, so that no fixed-width arithmetic can overflow later."""
    try:
        return tuple(operator.index(extent) for extent in shape)
    except TypeError as error:
        message = f"tensor {name!r} needs a tuple of integers as its shape, not {shape!r:.100}"
        raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, message)) from error


def named_metadata(name: str, value: object) -> MetadataValue:
    """The stored form of a metadata value; errors name the value."""
    try:
        return metadata_value(value)
    except (OinfError, TensorError) as error:
        raise in_field(name, error) from error


def tensor_entry(name: str, value: object) -> TensorEntry:
    """A tensor table entry from an array, ``Tensor``, ``TensorSpec`` or ``UninitializedTensor``."""
    if isinstance(value, UninitializedTensor):
        dtype, shape, data = dtype_of(value.dtype), _shape(name, value.shape), None
        name, quant = value.name or name, value.quant
    else:
        spec = value if isinstance(value, TensorSpec) else TensorSpec(typing.cast("npt.ArrayLike", value))
        tensor = _tensor(name, spec)
        dtype, shape, data = tensor.dtype, tensor.shape, Held(tensor.raw())
        name, quant = spec.name or name, spec.quant
    if quant is not None:
        quant.require_fit(name, shape)
        if dtype.kind in ("float", "bool"):
            message = f"tensor {name!r} is {dtype.name}; quantization parameters belong to integer tensors"
            raise OinfError(Diagnostic(Code.BAD_QUANTIZATION, message, help="give the tensor an integer dtype"))
    if quant is None:
        return TensorEntry(name, dtype, shape, data)
    return TensorEntry(name, dtype, shape, data, Held(quant.encode()), quant.scale.group is not None)


def _tensor(name: str, spec: TensorSpec) -> Tensor:
    if isinstance(spec.values, Tensor) and (spec.dtype is None or dtype_of(spec.dtype) is spec.values.dtype):
        return spec.values
    values = spec.values.to_numpy() if isinstance(spec.values, Tensor) else spec.values
    try:
        return Tensor.from_numpy(values, spec.dtype)
    except TensorError as error:
        raise in_field(name, error) from error


def in_field(name: str, error: Any) -> Any:
    """The same error, naming the field that it is about."""
    (found,) = error.diagnostics
    return type(error)(dataclasses.replace(found, message=f"{name!r}: {found.message}"))
