"""Writes model files: all at once, or one tensor at a time for models larger than memory."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, BinaryIO, Self

from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, OinfError
from openinfer.oinf.atomic import atomic_file, require_replaceable, write_failed
from openinfer.oinf.authoring import TensorSpec, UninitializedTensor, named_metadata, tensor_entry
from openinfer.oinf.file import AnyPath
from openinfer.oinf.metadata import MetadataValue
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.package import Blob, Held, Package, ProgressCallback, TensorEntry, duplicate_name, require_name
from openinfer.oinf.quant import QuantParams

_CHUNK = 8 << 20


def write_package(path: AnyPath, package: Package, progress: ProgressCallback | None = None) -> None:
    """Write a model file; it appears under its name only when it is complete."""
    with atomic_file(os.fsdecode(path)) as sink:
        package.write(sink.write, progress)


def save_file(
    path: AnyPath,
    tensors: Mapping[str, Any],
    sizevars: Mapping[str, int] | None = None,
    metadata: Mapping[str, Any] | None = None,
    version: int = 2,
) -> None:
    """Write a model from plain dicts: the entry point for pipelines.

    Tensors are arrays, ``Tensor``, ``TensorSpec`` or ``UninitializedTensor``.
    """
    given: object = tensors
    if not isinstance(given, Mapping):
        message = f"tensors are given by name, not as {type(given).__name__}"
        raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, message, help='write {"w": array}'))
    entries = [tensor_entry(name, value) for name, value in tensors.items()]
    values = {key: named_metadata(key, value) for key, value in (metadata or {}).items()}
    write_package(path, Package.of(sizevars or {}, values, entries, version))


def rewrite(model: ModelLoader, path: AnyPath, version: int = 2) -> None:
    """Rewrite an open model in canonical form: sorted tables, blobs in order, nothing else."""
    write_package(path, package_of(model, version))


def package_of(model: ModelLoader, version: int = 2, only: Collection[str] | None = None) -> Package:
    """The entries of an open model with their payloads, ready to be written; of tensors all, or only some."""
    tensors = [
        TensorEntry(
            info.name,
            info.dtype,
            info.shape,
            None if info.offset is None else Held(model.load(info.name).storage),
            None if info.quant is None else Held(info.quant.encode()),
            info.quant is not None and info.quant.scale.group is not None,
        )
        for info in model.tensors.values()
        if only is None or info.name in only
    ]
    return Package.of(model.sizevars, model.stored_metadata(), tensors, version)


class Writer:
    """Takes size variables, metadata and tensors one at a time; holds at most one tensor in memory.

    Tensors are spooled to a temporary file beside the target until the ``with`` block ends, because the tables come
    first in the file and are sorted. If the block raises, nothing is left behind.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "big.oinf")
    >>> with Writer(path) as writer:
    ...     writer.add_sizevar("D", 4)
    ...     for layer in range(3):
    ...         writer.add_tensor(f"W.{layer}", [[float(layer)] * 4] * 4)
    >>> with ModelLoader.open(path) as model:
    ...     list(model.tensors)
    ['W.0', 'W.1', 'W.2']
    """

    def __init__(self, path: AnyPath, version: int = 2) -> None:
        self._path = os.fsdecode(path)
        self._version = version
        self._sizevars: dict[str, int] = {}
        self._metadata: dict[str, MetadataValue] = {}
        self._tensors: dict[str, TensorEntry] = {}
        self._resources = ExitStack()
        self._spool: BinaryIO | None = None
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise _misuse("a writer writes one file", "make a new Writer for each 'with' block")
        try:
            target = os.path.realpath(self._path)
            require_replaceable(target)
            spool = TemporaryFile(dir=os.path.dirname(target), buffering=0)
            self._spool = self._resources.enter_context(spool)
            self._entered = True
        except (OSError, ValueError) as error:
            raise write_failed(self._path, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._spool = None
        with self._resources:
            if kind is None:
                package = Package.of(self._sizevars, self._metadata, self._tensors.values(), self._version)
                write_package(self._path, package)

    def add_sizevar(self, name: str, value: int) -> None:
        """Add a size variable."""
        self._open_spool()
        require_name(name)
        if name in self._sizevars:
            raise duplicate_name("size variable", name)
        self._sizevars[name] = value

    def add_metadata(self, name: str, value: object) -> None:
        """Add a metadata value (anything ``metadata_value`` knows)."""
        self._open_spool()
        require_name(name)
        if name in self._metadata:
            raise duplicate_name("metadata", name)
        self._metadata[name] = named_metadata(name, value)

    def add_tensor(
        self, name: str, values: Any, dtype: str | DType | None = None, quant: QuantParams | None = None
    ) -> None:
        """Add a tensor; its values are not needed afterwards."""
        spool = self._open_spool()
        require_name(name)
        if name in self._tensors:
            raise duplicate_name("tensor", name)
        if not isinstance(values, TensorSpec | UninitializedTensor):
            values = TensorSpec(values, dtype, quant=quant)
        elif dtype is not None or quant is not None:
            advice = f"put them into the {type(values).__name__}"
            raise _misuse(f"tensor {name!r} has a dtype or quantization besides its specification", advice)
        entry = tensor_entry(name, values)
        if entry.data is not None:
            data = self._spooled(spool.fileno(), entry.data)
            entry = replace(entry, data=data)
        self._tensors[name] = entry

    def _open_spool(self) -> BinaryIO:
        if self._spool is None:
            raise _misuse("a writer takes entries only inside its 'with' block", "write 'with Writer(path) as writer:'")
        return self._spool

    def _spooled(self, descriptor: int, data: Blob) -> "FileSlice":
        start = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            for chunk in data.chunks():
                rest = memoryview(chunk).cast("B")
                while rest:
                    rest = rest[os.write(descriptor, rest[: 1 << 30]) :]
        except OSError as error:
            raise write_failed(self._path, error) from error
        return FileSlice(descriptor, self._path, start, data.nbytes)


def _misuse(message: str, advice: str) -> OinfError:
    return OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, message, help=advice))


@dataclass(frozen=True)
class FileSlice:
    """A payload in an open file."""

    descriptor: int
    path: str
    offset: int
    nbytes: int

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a few megabytes at a time, without mapping them."""
        done = 0
        while done < self.nbytes:
            chunk = os.pread(self.descriptor, min(_CHUNK, self.nbytes - done), self.offset + done)
            if not chunk:
                message = f"{self.path!r} was cut off while it was being read"
                raise OinfError(Diagnostic(Code.BAD_WEIGHTS_FILE, message))
            done += len(chunk)
            yield chunk
