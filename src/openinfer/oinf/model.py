"""``ModelLoader``: an open model file. Tables are checked when it is opened, tensors are read on demand."""

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from openinfer.errors import Code, Diagnostic, FileSpan, OinfError, nearest
from openinfer.oinf.file import AnyPath, CopiedFile, byte_span, open_model_file
from openinfer.oinf.metadata import MetadataValue
from openinfer.oinf.parse import MetadataInfo, TensorInfo, parse
from openinfer.oinf.payloads import PayloadValue, decode_metadata, first_bad_element
from openinfer.tensor import Tensor


class ModelLoader:
    """A model file, open for reading.

    >>> import tempfile, os
    >>> from openinfer.oinf import save_file
    >>> path = os.path.join(tempfile.mkdtemp(), "m.oinf")
    >>> save_file(path, {"w": np.eye(2, dtype=np.float32)}, sizevars={"D": 2}, metadata={"mode": "fast"})
    >>> with ModelLoader.open(path) as model:
    ...     model.size_of("D"), model.metadata["mode"], model.load("w").to_numpy().tolist()
    (2, 'fast', [[1.0, 0.0], [0.0, 1.0]])
    """

    def __init__(self, file: CopiedFile) -> None:
        given: object = file
        if not isinstance(given, CopiedFile):
            message = f"ModelLoader takes an open file, not {type(given).__name__}"
            raise OinfError(Diagnostic(Code.NOT_A_MODEL_FILE, message, help="ModelLoader.open(path) opens a model"))
        self._file = file
        self._closed = False
        self._index = parse(file)
        self._loaded: dict[str, Tensor] = {}
        self.path = file.path
        self.version = self._index.version
        self.file_size = file.size
        self.sizevars: Mapping[str, int] = MappingProxyType(self._index.sizevars)
        self.metadata_info: Mapping[str, MetadataInfo] = MappingProxyType(self._index.metadata)
        self.metadata: Mapping[str, PayloadValue] = _MetadataValues(self)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(self._index.tensors)

    @classmethod
    def open(cls, path: AnyPath, copy: bool = False) -> Self:  # noqa: FBT001, FBT002  (documented)
        """Open and check a model file.

        The file is mapped and tensors are views of it. With ``copy=True`` nothing is mapped and every tensor is
        copied when it is first loaded: slower, but safe when another program may truncate the file.
        """
        file = open_model_file(os.fsdecode(path), copy=copy)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def size_of(self, name: str) -> int:
        """The value of a size variable."""
        try:
            return self.sizevars[name]
        except KeyError:
            raise self._unknown("size variable", name, self.sizevars) from None

    def load(self, name: str) -> Tensor:
        """The tensor with this name, read on first use and kept."""
        tensor = self._loaded.get(name)
        if tensor is None:
            tensor = self._loaded[name] = self._read(name)
        return tensor

    def _read(self, name: str) -> Tensor:
        info = self.info(name)
        if info.offset is None:
            raise OinfError(
                Diagnostic(
                    Code.NO_DATA,
                    f"tensor {name!r} is declared as {info.type_text} but has no data",
                    FileSpan(self.path),
                    help="give it values when writing the model, or fill it in the graph",
                )
            )
        stored = self.payload(info.offset, info.nbytes)
        tensor = Tensor(info.dtype, info.shape, stored)
        if info.dtype.is_packed or info.dtype.kind == "bool":
            self._require_valid(info, info.offset, tensor)
        return tensor

    def _require_valid(self, info: TensorInfo, offset: int, tensor: Tensor) -> None:
        bad = first_bad_element(tensor.storage, info.dtype, tensor.size)
        if bad is None:
            return
        raise OinfError(
            Diagnostic(
                Code.BAD_TENSOR_DATA,
                f"tensor {info.name!r}: the byte 0x{tensor.storage[bad]:02x} is not part of a {info.dtype.name} value",
                byte_span(self._file, "data", offset + bad, 1, info.name),
            )
        )

    def info(self, name: str) -> TensorInfo:
        """The table entry of a tensor; a misspelt name is an error that names the nearest ones."""
        try:
            return self.tensors[name]
        except KeyError:
            raise self._unknown("tensor", name, self.tensors) from None

    def payload(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """The raw bytes of a blob in the index."""
        if self._closed:
            raise OinfError(Diagnostic(Code.MODEL_CLOSED, f"the model {self.path!r} is closed", FileSpan(self.path)))
        self._file.require_unchanged()
        return self._file.view(offset, nbytes)

    def stored_metadata(self) -> dict[str, MetadataValue]:
        """Metadata in stored form, ready to be written again."""
        return {
            info.name: MetadataValue(info.tag, info.type_name, self.payload(info.offset, info.nbytes).tobytes())
            for info in self.metadata_info.values()
        }

    def _unknown(self, what: str, name: str, known: Mapping[str, Any]) -> OinfError:
        return OinfError(
            Diagnostic(
                Code.NO_SUCH_ENTRY,
                f"the model has no {what} {name!r}",
                FileSpan(self.path),
                help=nearest(str(name), known),
            )
        )

    def close(self) -> None:
        """Release the file. Arrays already taken from it stay valid."""
        self._closed = True
        self._loaded.clear()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<model {self.path!r}: {len(self.sizevars)} size variable{'s' * (len(self.sizevars) != 1)}, "
            f"{len(self.metadata_info)} metadata, {len(self.tensors)} tensor{'s' * (len(self.tensors) != 1)}>"
        )


class _MetadataValues(Mapping[str, PayloadValue]):
    """Metadata as plain Python values, decoded on access."""

    def __init__(self, model: ModelLoader) -> None:
        self._model = model
        self._decoded: dict[str, PayloadValue] = {}

    def __getitem__(self, name: str) -> PayloadValue:
        if name not in self._decoded:
            info = self._model.metadata_info[name]
            self._decoded[name] = decode_metadata(info.tag, self._model.payload(info.offset, info.nbytes))
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.metadata_info)

    def __len__(self) -> int:
        return len(self._model.metadata_info)

    def __repr__(self) -> str:
        return repr(dict(self))
