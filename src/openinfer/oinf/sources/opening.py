"""Chooses the reader for a weights file by its name."""

import os
from contextlib import ExitStack

from openinfer.errors import Code, Diagnostic, FileSpan, OinfError
from openinfer.oinf.foreign import LOOKED_AT, recognised
from openinfer.oinf.sources.tensor import TensorSource

FORMATS = (".safetensors", ".safetensors.index.json", ".npz", ".oinf", ".pt", ".pth", ".bin", ".ckpt")


def open_source(path: str, resources: ExitStack) -> TensorSource:
    """Open a weights file and list its tensors; the file is closed with the resources."""
    if path.endswith(".safetensors"):
        from openinfer.oinf.sources.safetensors import open_safetensors

        return open_safetensors(path, resources)
    if path.endswith(".safetensors.index.json"):
        from openinfer.oinf.sources.safetensors import open_index

        return open_index(path, resources)
    if path.endswith(".npz"):
        from openinfer.oinf.sources.npz import open_npz

        return open_npz(path, resources)
    if path.endswith(".oinf"):
        from openinfer.oinf.sources.model import open_model

        return open_model(path, resources)
    if path.endswith((".pt", ".pth", ".bin", ".ckpt")):
        from openinfer.oinf.sources.torch import open_torch

        return open_torch(path, resources)
    foreign = recognised(path, _start(path))
    what = f": it is {foreign.name}" if foreign is not None else ""
    raise OinfError(
        Diagnostic(
            Code.UNKNOWN_WEIGHTS_FORMAT,
            f"cannot read weights from {path!r}{what}",
            FileSpan(path),
            help=f"weights come from files that end in {', '.join(FORMATS)}",
        )
    )


def _start(path: str) -> bytes:
    """The first bytes of a file, or none if it cannot be read."""
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            return file.read(LOOKED_AT)
    except OSError:
        return b""
