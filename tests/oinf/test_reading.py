"""What readers accept, and what opening, closing and losing a file does."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from tests.oinf.corpus import documents, seeds, tensor, text
from tests.oinf.layout_model import TAG, Document, Image, MetadataRow, SizeVarRow, TensorRow, quant

from openinfer import Code, ModelLoader, OinfError

BOTH = pytest.mark.parametrize("copy", [False, True], ids=["mapped", "copied"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.oinf"


@contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    """Turn a hang into a failure."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError("hung")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _refusal(path: Path | str, *, copy: bool = False) -> OinfError:
    with _no_longer_than(5), pytest.raises(OinfError) as caught:
        ModelLoader.open(path, copy=copy)
    return caught.value


# --- accepted -------------------------------------------------------------------------------------------------------


@BOTH
def test_unsorted_tables_are_accepted_in_their_order(path: Path, copy: bool) -> None:
    names = [b"b", b"a", b"c"]
    document = Document(
        2,
        [SizeVarRow(name, at) for at, name in enumerate(names)],
        [MetadataRow(name, TAG["u8"], bytes([at])) for at, name in enumerate(names)],
        [TensorRow(name, TAG["u8"], [1], bytes([at + 10])) for at, name in enumerate(names)],
    )
    path.write_bytes(document.to_bytes())
    with ModelLoader.open(path, copy=copy) as model:
        assert dict(model.sizevars) == {"b": 0, "a": 1, "c": 2}
        assert dict(model.metadata) == {"b": 0, "a": 1, "c": 2}
        assert {name: model.load(name).to_numpy().tolist() for name in model.tensors} == {
            "b": [10],
            "a": [11],
            "c": [12],
        }


def test_empty_tables_share_one_offset(path: Path) -> None:
    image = Image(seeds()["empty"])
    offsets = {image.number(f"offset_{table}") for table in ("sizevars", "metadata", "tensors", "data")}
    path.write_bytes(image.data)
    with ModelLoader.open(path) as model:
        assert offsets == {72}
        assert (len(model.sizevars), len(model.metadata), len(model.tensors)) == (0, 0, 0)


@BOTH
def test_a_zero_size_blob_may_sit_at_the_end_of_the_file(path: Path, copy: bool) -> None:
    image = Image(Document(2, [], [], [tensor("w", "f32", [0, 3])]).to_bytes())
    assert image.number("tensors[0].data_offset") == len(image.data)
    path.write_bytes(image.data)
    with ModelLoader.open(path, copy=copy) as model:
        assert model.load("w").to_numpy().shape == (0, 3)


def test_the_same_name_may_occur_in_different_tables(path: Path) -> None:
    row = TensorRow(b"x", TAG["u8"], [], b"\7")
    path.write_bytes(Document(2, [SizeVarRow(b"x", 5)], [text("x", "six")], [row]).to_bytes())
    with ModelLoader.open(path) as model:
        assert (model.size_of("x"), model.metadata["x"], model.load("x").to_numpy().item()) == (5, "six", 7)


@BOTH
def test_an_uninitialized_tensor_may_carry_quantization_but_has_no_data(path: Path, copy: bool) -> None:
    row = TensorRow(b"w", TAG["i8"], [2, 3], None, quant(2, [0.5, 1.0], [1, -2], axis=0))
    path.write_bytes(Document(2, [], [], [row]).to_bytes())
    with ModelLoader.open(path, copy=copy) as model:
        found = model.info("w").quant
        assert found is not None
        assert found.zero_point is not None
        assert (found.scheme, found.scale.axis) == ("asymmetric", 0)
        assert (found.scale.values.tolist(), found.zero_point.values.tolist()) == ([0.5, 1.0], [1, -2])
        with pytest.raises(OinfError) as caught:
            model.load("w")
    assert caught.value.code is Code.NO_DATA


def test_symbolic_links_are_followed(path: Path, tmp_path: Path) -> None:
    path.write_bytes(seeds()["mixed"])
    (tmp_path / "link").symlink_to(path.name)
    (tmp_path / "chain").symlink_to(tmp_path / "link")
    with ModelLoader.open(tmp_path / "chain") as model:
        assert model.size_of("B") == 4


@pytest.mark.parametrize("name", sorted(documents()))
def test_what_the_file_says_about_sizes_is_what_the_model_says(name: str, path: Path) -> None:
    path.write_bytes(seeds()[name])
    with ModelLoader.open(path) as model:
        assert model.version == documents()[name].version
        assert model.file_size == len(seeds()[name])


# --- not a model file -----------------------------------------------------------------------------------------------


@BOTH
def test_a_missing_path_is_a_typed_error(tmp_path: Path, copy: bool) -> None:
    assert _refusal(tmp_path / "missing.oinf", copy=copy).code is Code.NOT_A_MODEL_FILE


@BOTH
def test_a_directory_is_refused(tmp_path: Path, copy: bool) -> None:
    assert _refusal(tmp_path, copy=copy).code is Code.NOT_A_MODEL_FILE


@BOTH
def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path, copy: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert _refusal(fifo, copy=copy).code is Code.NOT_A_MODEL_FILE


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert _refusal("socket").code is Code.NOT_A_MODEL_FILE


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/full"])
def test_a_device_is_refused(device: str) -> None:
    assert _refusal(device).code is Code.NOT_A_MODEL_FILE


@pytest.mark.parametrize("name", ["", "nul\0byte", "x" * 300, "missing/folder/model.oinf"])
def test_a_path_that_cannot_exist_is_a_typed_error(name: str, tmp_path: Path) -> None:
    assert _refusal(f"{tmp_path}/{name}" if name else "").code is Code.NOT_A_MODEL_FILE


def test_dangling_and_circular_links_are_typed_errors(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    assert _refusal(tmp_path / "dangling").code is Code.NOT_A_MODEL_FILE
    assert _refusal(tmp_path / "circle").code is Code.NOT_A_MODEL_FILE


@BOTH
def test_an_empty_file_is_short(path: Path, copy: bool) -> None:
    path.touch()
    found = _refusal(path, copy=copy)
    assert (found.code, found.field, found.offset) == (Code.SHORT_FILE, "header", 0)


@BOTH
def test_a_refused_file_leaves_no_descriptor_open(path: Path, copy: bool) -> None:
    path.write_bytes(seeds()["mixed"][:-1])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        _refusal(path, copy=copy)
    assert len(os.listdir("/proc/self/fd")) == before


# --- open, loaded, closed, lost -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 60, 400])
@BOTH
def test_a_file_truncated_while_open_is_a_typed_error_on_load(path: Path, copy: bool, keep: int) -> None:
    path.write_bytes(seeds()["mlp"])
    with ModelLoader.open(path, copy=copy) as model:
        os.truncate(path, keep)
        with pytest.raises(OinfError) as caught:
            model.load("w1")
    assert (caught.value.code, caught.value.field) == (Code.FILE_SIZE_MISMATCH, "file_size")
    assert caught.value.offset == keep


@BOTH
def test_a_file_truncated_while_open_is_a_typed_error_when_metadata_is_read(path: Path, copy: bool) -> None:
    path.write_bytes(seeds()["mixed"])
    with ModelLoader.open(path, copy=copy) as model:
        os.truncate(path, 100)
        with pytest.raises(OinfError) as caught:
            model.metadata["mode"]
    assert caught.value.code is Code.FILE_SIZE_MISMATCH


def test_what_was_loaded_in_copying_mode_survives_the_truncation(path: Path) -> None:
    path.write_bytes(seeds()["mlp"])
    with ModelLoader.open(path, copy=True) as model:
        before = model.load("w1").to_numpy().copy()
        os.truncate(path, 0)
        assert np.array_equal(model.load("w1").to_numpy(), before)


@BOTH
def test_loading_after_close_is_a_typed_error(path: Path, copy: bool) -> None:
    path.write_bytes(seeds()["mixed"])
    with ModelLoader.open(path, copy=copy) as model:
        kept = model.load("W.0").to_numpy()
        expected = kept.tolist()
    for name in ("W.0", "W.1"):
        with pytest.raises(OinfError) as caught:
            model.load(name)
        assert caught.value.code is Code.MODEL_CLOSED
    with pytest.raises(OinfError) as caught:
        model.metadata["mode"]
    assert caught.value.code is Code.MODEL_CLOSED
    model.close()
    assert kept.tolist() == expected


def test_an_unknown_name_suggests_the_nearest(path: Path) -> None:
    path.write_bytes(Document(2, [SizeVarRow(b"batch", 1)], [], [tensor("weight", "u8", [1])]).to_bytes())
    with ModelLoader.open(path) as model:
        for ask, right in ((lambda: model.load("wieght"), "weight"), (lambda: model.size_of("bacth"), "batch")):
            with pytest.raises(OinfError) as caught:
                ask()
            assert caught.value.code is Code.NO_SUCH_ENTRY
            assert caught.value.diagnostics[0].help == f"did you mean {right!r}?"


def test_a_mapped_tensor_is_a_read_only_view_that_is_made_once(path: Path) -> None:
    path.write_bytes(seeds()["mlp"])
    with ModelLoader.open(path) as model:
        first, second = model.load("w1"), model.load("w1")
        assert first is second
        assert np.shares_memory(first.to_numpy(), second.to_numpy())
        assert not first.to_numpy().flags.owndata
        assert not first.to_numpy().flags.writeable


def test_a_copied_tensor_is_read_only_too(path: Path) -> None:
    path.write_bytes(seeds()["mlp"])
    with ModelLoader.open(path, copy=True) as model:
        assert not model.load("w1").to_numpy().flags.writeable
