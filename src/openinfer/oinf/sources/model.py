"""Another ``.oinf`` file as a source; everything in it is taken over."""

from contextlib import ExitStack
from typing import Any

import numpy.typing as npt

from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import TensorInfo
from openinfer.oinf.quantize import ReadElements
from openinfer.oinf.sources.tensor import SourceTensor, TensorSource, open_weights, read_elements
from openinfer.oinf.writer import FileSlice


def open_model(path: str, resources: ExitStack) -> TensorSource:
    """The tensors, size variables and metadata of a model file."""
    model = resources.enter_context(ModelLoader.open(path))
    descriptor, _ = open_weights(path, resources)
    tensors = [_tensor(path, model, descriptor, info) for info in model.tensors.values()]
    return TensorSource(path, tensors, model.sizevars, model.stored_metadata())


def _tensor(path: str, model: ModelLoader, descriptor: int, info: TensorInfo) -> SourceTensor:
    if info.offset is None:
        return SourceTensor(info.name, info.dtype.name, info.dtype, info.shape, None, None, info.quant)
    needs_check = info.dtype.is_packed or info.dtype.kind == "bool"
    read = (
        _checked_reader(model, info.name)
        if needs_check
        else read_elements(descriptor, path, info.offset, info.dtype.array)
    )
    stored = None if needs_check else FileSlice(descriptor, path, info.offset, info.nbytes)
    return SourceTensor(info.name, info.dtype.name, info.dtype, info.shape, read, stored, info.quant)


def _checked_reader(model: ModelLoader, name: str) -> ReadElements:
    """Reads through the model, which checks the values of packed and bool tensors."""

    def read(start: int, count: int) -> npt.NDArray[Any]:
        tensor = model.load(name)
        flat = type(tensor)(tensor.dtype, (tensor.size,), tensor.storage)
        return flat[start : start + count].to_numpy()

    return read
