"""Recognises files that are given as models but are something else: what they are, and what to do with them.

A file is identified by its first bytes; its name only settles what those leave open.
"""

import os
import shlex
from dataclasses import dataclass

LOOKED_AT = 256
"""How many bytes from the start of a file are needed."""

_CONVERT = "its tensors can be packed from a safetensors, npz or PyTorch file: openinfer pack WEIGHTS -o model.oinf"
_NAMED = "give it a name, numpy.savez('w.npz', w=array), and pack that: openinfer pack w.npz -o model.oinf"
_IMPORT = "import it: openinfer import FILE -o DIR writes a graph and its model"
_GRAPH = "a graph comes first on the command line, and the model is --model FILE.oinf"
_SECTIONS = (b"dynamic", b"volatile", b"constant", b"persistent", b"sizes", b"graph", b"block", b"inputs", b"//")
_TORCH = (".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True)
class Foreign:
    """What a file is, and advice."""

    name: str
    advice: str
    is_graph: bool = False
    """Whether it may be a graph, which is foreign only where a model is expected."""


_MAGIC = (
    (b"GGUF", Foreign("a GGUF file", _IMPORT)),
    (b"\x93NUMPY", Foreign("a NumPy array", _NAMED)),
    (b"\x89HDF", Foreign("an HDF5 file", _CONVERT)),
    (b"\x1f\x8b", Foreign("a gzip file", "decompress it first")),
    (b"\x28\xb5\x2f\xfd", Foreign("a zstd file", "decompress it first")),
    (b"version https://git-lfs", Foreign("a Git LFS pointer", "fetch the file itself: git lfs pull")),
)


def recognised(path: str, start: bytes) -> Foreign | None:
    """The format of a file that is not an ``.oinf`` model, by its first bytes.

    >>> recognised("net.gguf", b"GGUF").name
    'a GGUF file'
    """
    ending = os.path.splitext(path)[1].lower()
    if start.startswith(b"PK\3\4"):
        return _archive(path, ending, start)
    for magic, found in _MAGIC:
        if start.startswith(magic):
            return found
    if start[4:8] == b"TFL3":
        return Foreign("a TensorFlow Lite model", _CONVERT)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 40:
        return Foreign("a safetensors file", _pack(path, ".safetensors"))
    if start.startswith(b"\x80") and start[1:2] <= b"\x05":
        return Foreign("a Python pickle", _pack(path, *_TORCH) if ending in _TORCH else _CONVERT)
    return _text(ending, start)


def _pack(path: str, *endings: str) -> str:
    """How to make a model from a file; the packer knows formats by the file's ending."""
    stem, ending = os.path.splitext(path)
    model = shlex.quote(stem + ".oinf")
    if ending.lower() in endings:
        return f"pack it first: openinfer pack {shlex.quote(path)} -o {model}"
    source = shlex.quote(stem + endings[0])
    return f"rename it to {source}, then: openinfer pack {source} -o {model}"


def _archive(path: str, ending: str, start: bytes) -> Foreign:
    """A zip archive, as NumPy and PyTorch write them."""
    name = start[30 : 30 + int.from_bytes(start[26:28], "little")]
    if name.endswith(b".npy"):
        return Foreign("an .npz file", _pack(path, ".npz"))
    if name.endswith((b"/data.pkl", b"/version", b"/byteorder", b"/.format_version")) or ending in _TORCH:
        return Foreign("a PyTorch file", _pack(path, *_TORCH))
    return Foreign("a zip archive", "unpack it; " + _CONVERT)


def _text(ending: str, start: bytes) -> Foreign | None:
    head = start.lstrip().lower()
    if head.startswith((b"<!doctype", b"<html")):
        return Foreign("a web page", "the download was probably refused: fetch the file again")
    if head.startswith(b"{"):
        return Foreign("JSON", _GRAPH, is_graph=True)
    if head.startswith(_SECTIONS):
        return Foreign("the text of a graph", _GRAPH, is_graph=True)
    if ending == ".onnx" or (start[:1] == b"\x08" and start[2:3] == b"\x12"):
        return Foreign("an ONNX model", _IMPORT)
    return None
