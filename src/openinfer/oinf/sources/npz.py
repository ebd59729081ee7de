"""NumPy ``.npz`` archives, compressed or not, read as streams. Pickled objects are refused."""

import os
import tokenize
import warnings
import zipfile
import zlib
from contextlib import ExitStack
from math import prod
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from openinfer.dtypes import from_numpy_dtype
from openinfer.errors import counted
from openinfer.oinf.quantize import ReadElements
from openinfer.oinf.sources.tensor import SourceTensor, TensorSource, bad_weights, open_weights, read_whole

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, OSError)
"""The exceptions of zipfile and NumPy for a malformed, encrypted or unsupported archive."""
_BAD_HEADER = (SyntaxError, tokenize.TokenError, TypeError, OverflowError, MemoryError, RecursionError)
"""The exceptions of NumPy for an invalid header: it reads headers with Python's own tokenizer and parser."""


def open_npz(path: str, resources: ExitStack) -> TensorSource:
    """The arrays of an archive."""
    descriptor, _ = open_weights(path, resources)
    try:
        file = resources.enter_context(os.fdopen(os.dup(descriptor), "rb"))
        archive = resources.enter_context(zipfile.ZipFile(file))
        members = archive.infolist()
        tensors = [_tensor(path, archive, member) for member in members if member.filename.endswith(".npy")]
    except _BROKEN as error:
        raise bad_weights(path, str(error)) from error
    return TensorSource(path, tensors, skipped=[m.filename for m in members if not m.filename.endswith(".npy")])


def _tensor(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> SourceTensor:
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as stream:
        shape, fortran, array_dtype = npy_header(stream)
        start = stream.tell()
    dtype = from_numpy_dtype(array_dtype)
    if dtype is None:
        return SourceTensor(name, str(array_dtype), None, shape, None)
    nbytes = prod(shape) * array_dtype.itemsize
    if member.file_size != start + nbytes:
        raise bad_weights(path, f"array {name!r} needs {counted(start + nbytes, 'byte')}, but has {member.file_size}")
    read = _stream_reader(path, archive, member, start, array_dtype)
    if fortran and len(shape) > 1:
        rows = read_whole(lambda: read(0, prod(shape)).reshape(shape[::-1]).T)
        return SourceTensor(name, dtype.name, dtype, shape, rows)
    return SourceTensor(name, dtype.name, dtype, shape, read)


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    """Shape, Fortran order and element type of an ``.npy`` stream; ValueError for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from Python's parser, about the contents of a hostile header
            version = npy.read_magic(stream)
            read_header: Any = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
            if read_header is None:
                message = f"unknown .npy version {version}"
                raise ValueError(message)
            shape, fortran, dtype = read_header(stream)
    except _BAD_HEADER as error:
        message = f"its header cannot be read: {error or type(error).__name__}"
        raise ValueError(message) from error
    if any(extent < 0 for extent in shape):
        message = f"negative extent in {shape}"
        raise ValueError(message)
    return shape, fortran, dtype


def _stream_reader(
    path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo, start: int, dtype: "np.dtype[Any]"
) -> ReadElements:
    """Reads forward through the member; going back (for a second pass) reopens it."""
    stream: IO[bytes] | None = None

    def read(first: int, count: int) -> npt.NDArray[Any]:
        nonlocal stream
        try:
            if stream is None or stream.tell() > start + first * dtype.itemsize:
                stream = archive.open(member)
            stream.seek(start + first * dtype.itemsize)
            data = stream.read(count * dtype.itemsize)
        except _BROKEN as error:
            raise bad_weights(path, str(error)) from error
        if len(data) != count * dtype.itemsize:
            raise bad_weights(path, f"array {member.filename!r} ends early")
        return np.frombuffer(data, dtype)

    return read
