"""Arrays in ``.npy`` and ``.npz`` files: opened without trusting them, written whole or not at all.

NumPy's formats have no bf16, no f8 and no type narrower than a byte. Such values are written as f32, int8 or uint8,
which hold them exactly, and ``--input`` reads them back exactly.
"""

import io
import os
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from math import prod

import numpy as np
from numpy.lib import format as npy

from openinfer.dtypes import Array, from_numpy_dtype
from openinfer.errors import Code, Diagnostic, FileSpan, OinfError, counted, nearest
from openinfer.oinf.atomic import atomic_file, require_replaceable, write_failed
from openinfer.oinf.quantize import ReadElements
from openinfer.oinf.sources.npz import npy_header, open_npz
from openinfer.oinf.sources.tensor import SourceTensor, bad_weights, open_weights, read_elements, read_whole

_NPZ = ".npz"


def split_place(text: str) -> tuple[str, str | None]:
    """A path and, if it is that of an archive, the name of an array in it.

    >>> split_place("runs/a.npz:x"), split_place("x.npy")
    (('runs/a.npz', 'x'), ('x.npy', None))
    """
    head, separator, key = text.partition(_NPZ + ":")
    return (head + _NPZ, key) if separator else (text, None)


def is_archive(path: str) -> bool:
    """Whether a file is an archive of several arrays, by its name."""
    return path.lower().endswith(_NPZ)


# --- reading ----------------------------------------------------------------------------------------------------------


def open_array(path: str, key: str | None, default_key: str, resources: ExitStack) -> SourceTensor:
    """Open an array without reading it; of an archive the one called ``key``, else ``default_key``, else the only one.

    Only the header is read, and the file must be exactly as long as it says.
    """
    found = _member(path, key, default_key, resources) if is_archive(path) else _open_npy(path, resources)
    if found.read is None:
        advice = "save it as another type, for example array.astype(numpy.float32)"
        message = f"{path!r} holds an array of NumPy type {found.type_name} without a corresponding dtype"
        raise OinfError(Diagnostic(Code.UNSUPPORTED_ARRAY, message, FileSpan(path), advice))
    return found


def _member(path: str, key: str | None, default_key: str, resources: ExitStack) -> SourceTensor:
    found = {tensor.name: tensor for tensor in open_npz(path, resources).tensors}
    if key is None:
        key = next(iter(found)) if len(found) == 1 else default_key
    if key not in found:
        names = ", ".join(map(repr, list(found)[:10])) or "nothing"
        advice = nearest(key, found) or f"it has {names}"
        raise OinfError(Diagnostic(Code.NO_SUCH_ENTRY, f"{path!r} has no array {key!r}", FileSpan(path), advice))
    return found[key]


def _open_npy(path: str, resources: ExitStack) -> SourceTensor:
    descriptor, size = open_weights(path, resources)
    try:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            shape, fortran, array_dtype = npy_header(file)
            start = file.tell()
    except (OSError, ValueError) as error:
        raise bad_weights(path, str(error)) from error
    dtype = from_numpy_dtype(array_dtype)
    if dtype is None:
        return SourceTensor(path, str(array_dtype), None, shape, None)
    needed = start + prod(shape) * array_dtype.itemsize
    if size != needed:
        raise bad_weights(path, f"its header asks for {counted(needed, 'byte')}, but it has {size}")
    read = read_elements(descriptor, path, start, array_dtype)
    if fortran and len(shape) > 1:
        read = _row_major(read, shape)
    return SourceTensor(path, dtype.name, dtype, shape, read)


def _row_major(read: ReadElements, shape: tuple[int, ...]) -> ReadElements:
    return read_whole(lambda: read(0, prod(shape)).reshape(shape[::-1]).T)


# --- writing ----------------------------------------------------------------------------------------------------------


def storable(array: Array) -> Array:
    """The same values in a type that NumPy's formats have.

    >>> import ml_dtypes
    >>> storable(np.array([1.5, 2], ml_dtypes.bfloat16)).dtype, storable(np.array([1], ml_dtypes.int4)).dtype
    (dtype('float32'), dtype('int8'))
    """
    dtype = from_numpy_dtype(array.dtype)
    if dtype is None or not array.dtype.type.__module__.startswith("ml_dtypes"):
        return array
    return array.astype(dtype.compute.array)


def require_writable(path: str) -> None:
    """Reject a path that cannot be written, before the work whose result goes there."""
    try:
        target = os.path.realpath(path)
        require_replaceable(target)
        if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            reason = "its folder does not exist or cannot be written"
            raise OSError(0, reason)
    except (OSError, ValueError) as error:
        raise write_failed(path, error) from error


def write_array(path: str, array: Array) -> None:
    """Write an array to an ``.npy`` file."""
    stored = np.ascontiguousarray(storable(array)).reshape(array.shape)
    with atomic_file(path) as sink:
        sink.write(_npy_header(stored))
        sink.write(stored.reshape(-1).view(np.uint8).data)


def write_archive(path: str, arrays: Mapping[str, Array]) -> None:
    """Write named arrays to an ``.npz`` file; the same arrays always give the same bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            stored = np.ascontiguousarray(storable(array)).reshape(array.shape)
            member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, whatever the clock says
            with archive.open(member, "w", force_zip64=True) as stream:
                stream.write(_npy_header(stored))
                stream.write(stored.reshape(-1).view(np.uint8).data)
    with atomic_file(path) as file:
        file.write(sink.getbuffer())


def _npy_header(array: Array) -> bytes:
    header = io.BytesIO()
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
    return header.getvalue()
