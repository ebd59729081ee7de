"""Weights of every format arrive unchanged, judged by the packages that define those formats."""

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from openinfer import Code, ModelLoader, OpenInferError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, UninitializedTensor, save_file
from openinfer.oinf.pack import PackOptions, pack

Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture
def arrays() -> Arrays:
    rng = np.random.default_rng(5)
    kinds = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.uint16, np.uint32]
    found: Arrays = {np.dtype(kind).name: (rng.normal(size=(3, 5)) * 50).clip(0).astype(kind) for kind in kinds}
    return found | {
        "uint64": np.array([2**64 - 1, 0], np.uint64),
        "bool": np.array([True, False, True]),
        "scalar": np.array(2.5, np.float32),
        "empty": np.empty((0, 4), np.float32),
    }


def packed(folder: Path, source: Path, **options: Any) -> Arrays:
    """Pack a source and read everything back."""
    pack([source], folder / "out.oinf", PackOptions(**options))
    with ModelLoader.open(folder / "out.oinf", copy=True) as model:
        return {name: model.load(name).to_numpy() for name in model.tensors}


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array)


def test_safetensors_files_are_taken_over_exactly(tmp_path: Path, arrays: Arrays) -> None:
    safetensors.numpy.save_file(arrays, tmp_path / "w.safetensors", {"format": "np"})
    assert_same(packed(tmp_path, tmp_path / "w.safetensors"), arrays)


def test_safetensors_bf16_and_f8_keep_their_bits(tmp_path: Path) -> None:
    values = torch.linspace(-3, 3, 17)
    safetensors.torch.save_file(
        {"b": values.bfloat16(), "e": values.to(torch.float8_e5m2)}, str(tmp_path / "w.safetensors")
    )
    found = packed(tmp_path, tmp_path / "w.safetensors")
    np.testing.assert_array_equal(found["b"], values.numpy().astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found["e"], values.numpy().astype(ml_dtypes.float8_e5m2))


def test_a_foreign_float_type_must_be_cast_and_then_is_exact(tmp_path: Path) -> None:
    values = torch.linspace(-3, 3, 17).to(torch.float8_e4m3fn)
    safetensors.torch.save_file({"w": values}, str(tmp_path / "w.safetensors"))
    with pytest.raises(OpenInferError) as caught:
        packed(tmp_path, tmp_path / "w.safetensors")
    assert caught.value.code == Code.UNSUPPORTED_WEIGHTS_DTYPE
    assert "--cast 'w=bf16'" in str(caught.value)
    found = packed(tmp_path, tmp_path / "w.safetensors", cast=["w=bf16"])
    np.testing.assert_array_equal(found["w"].astype(np.float32), values.float().numpy())


def test_sharded_safetensors_are_put_together(tmp_path: Path, arrays: Arrays) -> None:
    names = sorted(arrays)
    weight_map: dict[str, str] = {}
    for shard, part in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        safetensors.numpy.save_file({name: arrays[name] for name in part}, tmp_path / shard)
        weight_map |= dict.fromkeys(part, shard)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    assert_same(packed(tmp_path, index), arrays)


@pytest.mark.parametrize("shard", ["../a.safetensors", "/etc/passwd", "..", "x/y", ""])
def test_a_shard_outside_the_folder_is_refused(tmp_path: Path, shard: str) -> None:
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": shard}}))
    with pytest.raises(OpenInferError):
        pack([index], tmp_path / "out.oinf")


def test_a_tensor_missing_from_its_shard_is_refused(tmp_path: Path, arrays: Arrays) -> None:
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"missing": "a.safetensors"}}))
    with pytest.raises(OpenInferError, match=r"'missing' is not in 'a\.safetensors'"):
        pack([index], tmp_path / "out.oinf")


def header(document: Any, data: bytes = b"") -> bytes:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD_SAFETENSORS: dict[str, bytes] = {
    "empty": b"",
    "short length": b"\1\0\0",
    "header longer than the file": struct.pack("<Q", 1 << 60) + b"{}",
    "not JSON": header(b"nonsense"),
    "not UTF-8": header(b'{"\xff": 1}'),
    "not an object": header([1]),
    "deep nesting": header(b'{"a":' * 100_000),
    "a number of many digits": header(b'{"a": ' + b"9" * 10_000 + b"}"),
    "duplicate key": header(b'{"a": 1, "a": 2}'),
    "missing field": header({"w": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "extra field": header({"w": GOOD | {"x": 1}}, bytes(8)),
    "negative extent": header({"w": GOOD | {"shape": [-2]}}, bytes(8)),
    "shape and size disagree": header({"w": GOOD | {"shape": [3]}}, bytes(8)),
    "bytes past the end": header({"w": GOOD}, bytes(4)),
    "bytes left over": header({"w": GOOD}, bytes(12)),
    "overlap": header({"w": GOOD, "v": GOOD}, bytes(8)),
    "huge shape": header({"w": GOOD | {"shape": [2**40, 2**40]}}, bytes(8)),
    "offsets reversed": header({"w": GOOD | {"data_offsets": [8, 0]}}, bytes(8)),
}


@pytest.mark.parametrize("data", BAD_SAFETENSORS.values(), ids=BAD_SAFETENSORS.keys())
def test_a_malformed_safetensors_file_is_a_typed_error_and_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(OpenInferError) as caught:
        pack([tmp_path / "w.safetensors"], tmp_path / "out.oinf")
    assert caught.value.code == Code.BAD_WEIGHTS_FILE
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_safetensors_mutants_are_accepted_like_the_package_does_or_refused(tmp_path: Path, arrays: Arrays) -> None:
    original = safetensors.numpy.save(arrays)
    rng = np.random.default_rng(9)
    path = tmp_path / "w.safetensors"
    for _ in range(400):
        mutant = bytearray(original)
        for at in rng.integers(0, len(mutant), 3):
            mutant[at] = rng.integers(0, 256)
        path.write_bytes(mutant[: rng.integers(0, len(mutant) + 1)] if rng.random() < 0.3 else mutant)
        try:
            pack([path], tmp_path / "out.oinf")
        except OpenInferError:
            continue
        safetensors.numpy.load(path.read_bytes())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_archives_are_taken_over_exactly(tmp_path: Path, arrays: Arrays, save: Any) -> None:
    big_endian = np.arange(6, dtype=">i4").reshape(2, 3)
    save(tmp_path / "w.npz", **arrays, fortran=np.asfortranarray(arrays["float32"]), big=big_endian)
    expected = arrays | {"fortran": arrays["float32"], "big": big_endian.astype(np.int32)}
    assert_same(packed(tmp_path, tmp_path / "w.npz"), expected)


def test_an_npz_larger_than_a_chunk_is_read_in_pieces(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(3, 1_000_003)).astype(np.float32)
    np.savez_compressed(tmp_path / "w.npz", w=values)
    found = packed(tmp_path, tmp_path / "w.npz", quantize=["w=i8:symmetric:per_channel:axis=0"])
    assert found["w"].shape == values.shape
    assert_same(packed(tmp_path, tmp_path / "w.npz"), {"w": values})


def test_an_array_that_no_tensor_can_hold_is_refused_unless_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", c=np.array([1j]), good=np.ones(2, np.float32))
    with pytest.raises(OpenInferError) as caught:
        packed(tmp_path, tmp_path / "w.npz")
    assert caught.value.code == Code.UNSUPPORTED_WEIGHTS_DTYPE
    assert list(packed(tmp_path, tmp_path / "w.npz", exclude=["c"])) == ["good"]


def test_npz_members_with_pickled_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", evil=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(OpenInferError):
        packed(tmp_path, tmp_path / "w.npz", include=["evil"])


def test_malformed_npz_archives_are_typed_errors(tmp_path: Path, arrays: Arrays) -> None:
    path = tmp_path / "w.npz"
    save: Any = np.savez_compressed
    save(path, **arrays)
    original = path.read_bytes()
    rng = np.random.default_rng(2)
    for _ in range(300):
        mutant = bytearray(original)
        for at in rng.integers(0, len(mutant), 2):
            mutant[at] = rng.integers(0, 256)
        path.write_bytes(mutant[: rng.integers(1, len(mutant))] if rng.random() < 0.3 else mutant)
        try:
            pack([path], tmp_path / "out.oinf")
        except OpenInferError:
            continue


def test_an_npz_header_that_claims_more_than_the_member_holds_is_refused(tmp_path: Path) -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117) + b"\n"
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(8)
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("w.npy", member)
    with pytest.raises(OpenInferError) as caught:
        pack([tmp_path / "w.npz"], tmp_path / "out.oinf")
    assert caught.value.code == Code.BAD_WEIGHTS_FILE


@pytest.mark.parametrize("legacy", [False, True])
def test_torch_state_dicts_are_taken_over_exactly(tmp_path: Path, legacy: bool) -> None:
    values = torch.linspace(-2, 2, 12).reshape(3, 4)
    state = {"layer": {"weight": values, "t": values.T, "half": values.half()}, "n": torch.tensor(3), "epoch": 7}
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
    report = pack([tmp_path / "w.pt"], tmp_path / "out.oinf")
    assert report.skipped == ("epoch",)
    expected = {
        "layer.weight": values.numpy(),
        "layer.t": np.ascontiguousarray(values.numpy().T),
        "layer.half": values.half().numpy(),
        "n": np.array(3, np.int64),
    }
    assert_same(packed(tmp_path, tmp_path / "w.pt"), expected)


class _Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch owned",)


def test_a_torch_file_that_wants_to_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(2), "evil": _Evil()}, "w.pt")
    Path("raw.pt").write_bytes(pickle.dumps(_Evil()))
    for name in ("w.pt", "raw.pt"):
        with pytest.raises(OpenInferError) as caught:
            pack([name], "out.oinf")
        assert caught.value.code == Code.BAD_WEIGHTS_FILE
    assert sorted(os.listdir()) == ["raw.pt", "w.pt"]


def test_what_torch_says_in_colours_is_shown_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("\x1b[1mthe \x1b[31marchive\x1b[0m is odd\x1b[0m\nand more of it")

    monkeypatch.setattr(torch, "load", fails)
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(OpenInferError) as caught:
        pack([tmp_path / "w.pt"], tmp_path / "out.oinf")
    assert "the archive is odd" in caught.value.message
    assert "x1b" not in str(caught.value)


def test_malformed_torch_files_are_typed_errors(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save({"w": torch.ones(3), "v": torch.zeros(2, 2)}, path)
    original = path.read_bytes()
    rng = np.random.default_rng(4)
    for _ in range(200):
        mutant = bytearray(original)
        for at in rng.integers(0, len(mutant), 4):
            mutant[at] = rng.integers(0, 256)
        path.write_bytes(mutant[: rng.integers(0, len(mutant))] if rng.random() < 0.3 else mutant)
        try:
            pack([path], tmp_path / "out.oinf")
        except OpenInferError:
            continue


def _nested(depth: int) -> dict[str, Any]:
    state: dict[str, Any] = {"w": torch.ones(1)}
    for _ in range(depth - 1):
        state = {"x": state}
    return state


def _cyclic() -> dict[str, Any]:
    state: dict[str, Any] = {"w": torch.ones(1)}
    state["self"] = state
    return state


def _doubling() -> dict[str, Any]:
    state: dict[str, Any] = {"w": torch.ones(1)}
    for _ in range(100):
        state = {"a": state, "b": state}
    return state


@pytest.mark.parametrize("make", [lambda: _nested(5000), _cyclic, _doubling], ids=["deep", "cyclic", "doubling"])
def test_endless_torch_dicts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    monkeypatch.setattr(torch, "load", lambda *_, **__: make())  # torch.save cannot pickle the deep one
    monkeypatch.setattr("openinfer.oinf.sources.torch._MAX_ENTRIES", 10_000)
    (tmp_path / "w.pt").touch()
    with pytest.raises(OpenInferError, match="its dicts") as caught:
        pack([tmp_path / "w.pt"], tmp_path / "out.oinf")
    assert caught.value.code == Code.BAD_WEIGHTS_FILE


def test_torch_dicts_of_ordinary_depth_are_read(tmp_path: Path) -> None:
    torch.save(_nested(60), tmp_path / "w.pt")
    assert list(packed(tmp_path, tmp_path / "w.pt")) == ["x." * 59 + "w"]


def test_torch_tensors_without_values_of_their_own_are_refused_unless_left_out(tmp_path: Path) -> None:
    bad = {"big": torch.ones(1).expand(1 << 40), "meta": torch.empty(3, device="meta")}
    for name, reason in (("big", "float32 expanded from fewer"), ("meta", "float32 on device meta")):
        torch.save({name: bad[name], "good": torch.ones(2)}, tmp_path / "w.pt")
        with pytest.raises(OpenInferError, match=reason) as caught:
            pack([tmp_path / "w.pt"], tmp_path / "out.oinf")
        assert caught.value.code == Code.UNSUPPORTED_WEIGHTS_DTYPE
        assert list(packed(tmp_path, tmp_path / "w.pt", exclude=[name])) == ["good"]


def test_a_torch_tensor_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")

    def fail(*_: Any) -> None:
        message = "no such view"
        raise RuntimeError(message)

    monkeypatch.setattr(torch.Tensor, "numpy", fail)
    with pytest.raises(OpenInferError, match="tensor 'w': no such view") as caught:
        pack([tmp_path / "w.pt"], tmp_path / "out.oinf")
    assert caught.value.code == Code.BAD_WEIGHTS_FILE


def test_another_model_is_taken_over_whole(tmp_path: Path) -> None:
    quant = QuantParams("symmetric", QuantScale.per_channel(1, [0.5, 0.25, 1.0]))
    tensors = {
        "q": TensorSpec([[1, -2, 3], [0, 1, -1]], "i4", quant=quant),
        "t": TensorSpec([1, -1, 1], "t1"),
        "u": UninitializedTensor("f32", (2, 2)),
        "b": np.array([True, False]),
    }
    save_file(tmp_path / "a.oinf", tensors, {"D": 3}, {"mode": "fast", "nan": float("nan")})
    pack([tmp_path / "a.oinf"], tmp_path / "b.oinf")
    assert (tmp_path / "b.oinf").read_bytes() == (tmp_path / "a.oinf").read_bytes()


def test_a_file_can_be_packed_onto_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.oinf"
    save_file(path, {"w": np.ones((4, 4), np.float32)})
    pack([path], path, PackOptions(cast=["w=f16"]))
    with ModelLoader.open(path) as model:
        assert model.tensors["w"].dtype.name == "f16"


@pytest.mark.parametrize("name", ["w.onnx", "w", "w.gguf"])
def test_an_unknown_format_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OpenInferError) as caught:
        pack([tmp_path / name], tmp_path / "out.oinf")
    assert caught.value.code == Code.UNKNOWN_WEIGHTS_FORMAT


@pytest.mark.parametrize("suffix", ["safetensors", "safetensors.index.json", "npz", "pt", "oinf"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(OpenInferError) as caught:
        pack([tmp_path / f"missing.{suffix}"], tmp_path / "out.oinf")
    assert caught.value.code == Code.NOT_A_MODEL_FILE
