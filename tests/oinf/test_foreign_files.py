"""A file of another format, given as a model or as a graph, is called by its name, with the command that packs it."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from openinfer import Code, ModelLoader, OinfError, load_graph
from openinfer.errors import GraphError, without_colours
from openinfer.oinf import save_file


def npz() -> bytes:
    sink = io.BytesIO()
    np.savez(sink, w=np.ones(3))
    return sink.getvalue()


def archive(*names: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return sink.getvalue()


FILES = [
    (
        "m.safetensors",
        save({"w": np.ones(2, np.float32)}),
        "a safetensors file",
        "openinfer pack m.safetensors -o m.oinf",
    ),
    ("m.oinf", save({"w": np.ones(2, np.float32)}), "a safetensors file", "rename it to m.safetensors"),
    ("m.npz", npz(), "an .npz file", "openinfer pack m.npz -o m.oinf"),
    ("m.pt", archive("m/data.pkl", "m/version"), "a PyTorch file", "openinfer pack m.pt -o m.oinf"),
    ("my model.pth", archive("archive/data.pkl"), "a PyTorch file", "openinfer pack 'my model.pth' -o 'my model.oinf'"),
    ("m.bin", b"\x80\x02}q\x00.", "a Python pickle", "openinfer pack m.bin -o m.oinf"),
    ("m.onnx", b"\x08\x07\x12\x07pytorch", "an ONNX model", "openinfer import FILE -o DIR"),
    ("m.gguf", b"GGUF\3\0\0\0", "a GGUF file", "openinfer import FILE -o DIR"),
    ("m.zip", archive("a.txt"), "a zip archive", "unpack it"),
    ("m.npy", b"\x93NUMPY\1\0", "a NumPy array", "numpy.savez"),
    ("m.tflite", b"\x1c\0\0\0TFL3", "a TensorFlow Lite model", "openinfer pack"),
    ("m.oinf", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"),
    ("m.oinf", b"<!DOCTYPE html><html>", "a web page", "fetch the file again"),
    ("g.oig", b"dynamic { x: f32; }", "the text of a graph", "--model FILE.oinf"),
]


@pytest.mark.parametrize(
    ("name", "data", "what", "advice"), FILES, ids=[f"{name}: {what}" for name, _, what, _ in FILES]
)
def test_another_format_is_named_with_a_way_out(
    name: str, data: bytes, what: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    with pytest.raises(OinfError) as caught:
        ModelLoader.open(name)
    assert caught.value.code is Code.BAD_MAGIC
    assert caught.value.message == f"this is {what}, not an .oinf model"
    assert advice in (caught.value.diagnostics[0].help or "")


def test_unknown_bytes_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "m.oinf").write_bytes(b"\xde\xad\xbe\xef")
    with pytest.raises(OinfError, match="the file starts with de ad be ef"):
        ModelLoader.open(tmp_path / "m.oinf")


def test_a_model_given_as_a_graph_is_named(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.ones(2, np.float32)})
    (tmp_path / "w.npz").write_bytes(npz())
    with pytest.raises(GraphError, match="it is a model, not a graph"):
        load_graph(tmp_path / "m.oinf")
    with pytest.raises(GraphError, match=r"it is an \.npz file, not a graph"):
        load_graph(tmp_path / "w.npz")


def test_colours_of_other_programs_are_left_out() -> None:
    assert without_colours("\x1b[01m\x1b[Kx.c:1:\x1b[m \x1b]8;;url\x07error\x1b(B") == "x.c:1: error\x1b(B"
