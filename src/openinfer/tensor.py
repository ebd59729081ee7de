"""``Tensor``: a dtype, a shape, strides and storage. Packed types stay packed in storage."""

from collections.abc import Iterator
from math import prod
from types import EllipsisType
from typing import Any, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Array, DType, convert, dtype_of, from_numpy_dtype, pack, unpack
from openinfer.errors import Code, Diagnostic, TensorError, counted

TensorIndex = int | np.integer[Any] | slice | EllipsisType
MAX_DIMS = 16
MAX_BYTES = 1 << 47
"""The maximum size of a tensor: more than a process on any current 64-bit machine can address."""


class Tensor:
    """A typed, strided view of raw bytes. Elements of packed types stay packed.

    ``strides`` and ``offset`` count elements, not bytes, because an element of a packed type need not start on a byte
    boundary. Indexing returns views that share storage; ``to_numpy`` returns the elements as an array.

    >>> tensor = Tensor.from_numpy(np.arange(-3, 3).reshape(2, 3), "i4")
    >>> tensor
    Tensor(i4[2, 3], [-3, -2, -1, 0, 1, 2])
    >>> tensor.nbytes, tensor.strides
    (3, (3, 1))
    >>> tensor[1].to_numpy()
    array([0, 1, 2], dtype=int4)
    """

    __slots__ = ("_strides", "dtype", "offset", "shape", "storage")

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        storage: npt.NDArray[np.uint8],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.storage = storage
        self.offset = offset
        self._strides = strides

    @classmethod
    def from_numpy(cls, values: npt.ArrayLike, dtype: str | DType | None = None) -> Self:
        """Create a tensor from array-like values.

        Without a dtype, the array's own type decides (floats in plain Python lists become f32). With one, floats are
        rounded to nearest even, and integers must fit. An array that already has the right type and layout is not
        copied.
        """
        array = as_array(values) if dtype is None else any_array(values)
        wanted = from_numpy_dtype(array.dtype) if dtype is None else dtype_of(dtype)
        if wanted is None:
            raise TensorError(
                Diagnostic(
                    Code.UNSUPPORTED_ARRAY,
                    f"no dtype corresponds to NumPy type {array.dtype}",
                    help="use booleans, integers or real floating-point numbers",
                )
            )
        if array.ndim > MAX_DIMS:
            raise TensorError(
                Diagnostic(
                    Code.BAD_SHAPE, f"{counted(array.ndim, 'dimension')} are more than the {MAX_DIMS} a tensor may have"
                )
            )
        elements = convert(array, wanted)
        storage = pack(elements, wanted) if wanted.is_packed else elements.reshape(-1).view(np.uint8)
        return cls(wanted, array.shape, storage)

    @classmethod
    def zeros(cls, dtype: str | DType, shape: tuple[int, ...]) -> Self:
        """A tensor whose stored bits are all zero; t1, which has no zero, then holds -1.

        >>> Tensor.zeros("u2", (3,))
        Tensor(u2[3], [0, 0, 0])
        """
        wanted = dtype_of(dtype)
        _require_shape(wanted, shape)
        return cls(wanted, shape, np.zeros(wanted.nbytes(prod(shape)), np.uint8))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the elements occupy when stored without gaps."""
        return self.dtype.nbytes(self.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """For each axis, the distance between adjacent elements, counted in elements."""
        return row_major(self.shape) if self._strides is None else self._strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous in row-major order."""
        return (
            self._strides is None
            or self.size == 0
            or all(
                stride == dense or extent == 1
                for stride, dense, extent in zip(self._strides, row_major(self.shape), self.shape, strict=True)
            )
        )

    def to_numpy(self) -> Array:
        """The elements as an array of ``dtype.array``: a view of storage, or an unpacked copy if the type is packed."""
        if self.dtype.is_packed:
            return self._unpacked()
        itemsize = self.dtype.array.itemsize
        if self._strides is None:
            return np.ndarray(self.shape, self.dtype.array, self.storage, self.offset * itemsize)
        if self.size == 0:  # an empty view may start past the end of its storage
            return np.empty(self.shape, self.dtype.array)
        steps = tuple(stride * itemsize for stride in self._strides)
        return np.ndarray(self.shape, self.dtype.array, self.storage, self.offset * itemsize, steps)

    def _unpacked(self) -> Array:
        if self.is_contiguous:
            return unpack(self.storage, self.dtype, self.offset, self.size).reshape(self.shape)
        reach = [stride * (extent - 1) for stride, extent in zip(self.strides, self.shape, strict=True)]
        first = self.offset + sum(step for step in reach if step < 0)
        count = sum(abs(step) for step in reach) + 1
        elements = unpack(self.storage, self.dtype, first, count)
        steps = tuple(stride * elements.itemsize for stride in self.strides)
        return np.ndarray(self.shape, elements.dtype, elements, (self.offset - first) * elements.itemsize, steps)

    def raw(self) -> npt.NDArray[np.uint8]:
        """The stored bytes of the elements in row-major order, as in a file."""
        if self.is_contiguous and self.offset * self.dtype.bits % 8 == 0:
            start = self.offset * self.dtype.bits // 8
            stored = self.storage[start : start + self.nbytes]
            used = self.size * self.dtype.bits % 8
            if not used or not int(stored[-1]) >> used:  # else adjacent elements have bits in the last byte
                return stored
        elements = np.ascontiguousarray(self.to_numpy())
        return pack(elements, self.dtype) if self.dtype.is_packed else elements.reshape(-1).view(np.uint8)

    def __getitem__(self, key: TensorIndex | tuple[TensorIndex, ...]) -> "Tensor":
        """A view that shares storage, selected by integers, slices and ``...`` as in NumPy."""
        keys = list(key) if isinstance(key, tuple) else [key]
        at = next((at for at, index in enumerate(keys) if index is Ellipsis), None)
        if at is not None:
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        if len(keys) > self.ndim:
            raise TensorError(Diagnostic(Code.BAD_SHAPE, f"{counted(len(keys), 'index')} for {self.type_text()}"))
        offset, shape, strides = self.offset, [], []
        for axis, extent in enumerate(self.shape):
            index = keys[axis] if axis < len(keys) else slice(None)
            if isinstance(index, slice):
                start, stop, step = self._slice(index, axis)
                count = len(range(start, stop, step))
                shape.append(count)
                strides.append(self.strides[axis] * step)
                offset += start * self.strides[axis] if count else 0
            elif _is_integer(index) and -extent <= int(index) < extent:
                offset += (int(index) % extent) * self.strides[axis]
            else:
                problem = "is outside" if _is_integer(index) else "cannot index"
                raise TensorError(
                    Diagnostic(Code.BAD_SHAPE, f"{index!r:.100} {problem} axis {axis} of {self.type_text()}")
                )
        return Tensor(self.dtype, tuple(shape), self.storage, tuple(strides), offset)

    def _slice(self, index: slice, axis: int) -> tuple[int, int, int]:
        try:
            return index.indices(self.shape[axis])
        except (TypeError, ValueError) as error:
            message = f"{index!r:.100} cannot index axis {axis} of {self.type_text()}: {error}"
            raise TensorError(Diagnostic(Code.BAD_SHAPE, message)) from error

    def __iter__(self) -> "Iterator[Tensor]":
        return (self[row] for row in range(len(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise TensorError(Diagnostic(Code.BAD_SHAPE, "a scalar has no length"))
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:  # noqa: FBT001  (NumPy's protocol)
        if copy is False and self.dtype.is_packed:
            raise TensorError(
                Diagnostic(
                    Code.NO_EXCHANGE,
                    f"{self.type_text()} is packed and cannot become an array without a copy",
                )
            )
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """Share the elements through DLPack; NumPy has no DLPack form of packed types, bf16 and f8."""
        if self.dtype.is_packed:
            raise self._no_dlpack("its elements have no bytes of their own")
        if any(stride < 0 and extent > 1 for stride, extent in zip(self.strides, self.shape, strict=True)):
            # PyTorch aborts the process on negative strides.
            raise self._no_dlpack("its strides are negative")
        try:
            return self.to_numpy().__dlpack__(**options)
        except (BufferError, TypeError) as error:
            raise self._no_dlpack(str(error)) from error

    def _no_dlpack(self, reason: str) -> TensorError:
        return TensorError(
            Diagnostic(
                Code.NO_EXCHANGE,
                f"{self.type_text()} cannot be shared through DLPack: {reason}",
                help="to_numpy() gives an array that can be converted first",
            )
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def type_text(self) -> str:
        """The type in the syntax of the graph language.

        >>> Tensor.zeros("f32", (2, 3)).type_text()
        'f32[2, 3]'
        """
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    def _head(self, count: int) -> Array:
        """The first elements in row-major order, unpacking only those."""
        needed = [
            min(extent, -(-count // max(1, prod(self.shape[axis + 1 :])))) for axis, extent in enumerate(self.shape)
        ]
        return self[tuple(slice(extent) for extent in needed)].to_numpy().reshape(-1)[:count]

    def __repr__(self) -> str:
        shown = [str(value) for value in self._head(6)] + (["..."] if self.size > 6 else [])
        return f"Tensor({self.type_text()}, [{', '.join(shown)}])"


def _is_integer(index: object) -> TypeGuard[int | np.integer[Any]]:
    return isinstance(index, int | np.integer) and not isinstance(index, bool)


def _require_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_DIMS or any(extent < 0 for extent in shape):
        message = f"a tensor has up to {MAX_DIMS} extents, none of them negative, not {list(shape)}"
        raise TensorError(Diagnostic(Code.BAD_SHAPE, message))
    if storage_bytes(dtype, shape) is None:
        message = f"{dtype.name}{list(shape)} is larger than any machine can hold"
        raise TensorError(Diagnostic(Code.BAD_SHAPE, message))


def storage_bytes(dtype: DType, shape: tuple[int, ...]) -> int | None:
    """The storage size of a tensor in bytes; None if no machine could hold a tensor of this shape.

    A zero extent does not hide the others: ``[2**40, 2**40, 0]`` is refused too.

    >>> storage_bytes(dtype_of("i4"), (3, 5))
    8
    """
    count, most = prod(shape), 8 * MAX_BYTES
    # Check small shapes first, so that symbolic extents need not be tested for zero.
    is_large = prod(extent + 1 for extent in shape) * dtype.bits > most
    if is_large and (count or prod(extent or 1 for extent in shape)) * dtype.bits > most:
        return None
    return count * dtype.bits + 7 >> 3


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The row-major strides of a contiguous array, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    if len(shape) < 2:
        return (1,) * len(shape)
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def as_array(values: npt.ArrayLike) -> Array:
    """Convert anything array-like to an array; floats in plain Python data become f32.

    >>> as_array([1.5, 2]).dtype
    dtype('float32')
    """
    array = any_array(values)
    if array is values:
        return array
    if array.dtype == np.float64 and not isinstance(values, np.generic) and not hasattr(values, "__array__"):
        return _python_floats(array)
    return array


def any_array(values: npt.ArrayLike) -> Array:
    """Convert anything array-like to an array as NumPy does, but keep unsigned 64-bit integers as integers."""
    if isinstance(values, np.ma.MaskedArray):
        raise TensorError(
            Diagnostic(
                Code.UNSUPPORTED_ARRAY, "a masked array has no tensor form", help="fill it first: array.filled(0)"
            )
        )
    if isinstance(values, np.ndarray):
        return values
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        # PyTorch raises RuntimeError for tensors that require a gradient.
        raise TensorError(Diagnostic(Code.BAD_SHAPE, f"these values do not form an array: {error}")) from error
    is_large = array.dtype == np.float64 and np.any(np.abs(array) >= 2.0**63)
    return _large_integers(values, array) if is_large and not hasattr(values, "__array__") else array


def _large_integers(values: npt.ArrayLike, array: Array) -> Array:
    """Convert plain Python integers to u64 if NumPy made them f64 because some need 64 unsigned bits."""
    leaves = np.asarray(values, dtype=object)
    if not all(isinstance(leaf, int) for leaf in leaves.reshape(-1)):
        return array
    if leaves.min() < 0 or leaves.max() >= 1 << 64:
        raise TensorError(Diagnostic(Code.VALUE_OUT_OF_RANGE, "no integer dtype holds all of these integers"))
    return leaves.astype(np.uint64)


def _python_floats(array: Array) -> npt.NDArray[np.float32]:
    """Convert plain Python numbers that NumPy made f64 to f32, refusing values that would overflow."""
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    lost = np.isinf(single) & np.isfinite(array)
    if np.any(lost):
        raise TensorError(
            Diagnostic(
                Code.VALUE_OUT_OF_RANGE,
                f"the value {array[lost][0]} is too large for f32",
                help='give dtype="f64", or a NumPy array of the type you want',
            )
        )
    return single
