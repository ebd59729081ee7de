"""After any failure or kill the name holds the old file or the new one, and nothing else is left in the folder."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.oinf.corpus import seeds
from tests.oinf.faulty_os import FaultyOs

from openinfer import Code, ModelLoader, OinfError, OpenInferError
from openinfer.oinf import TensorSpec, Writer, rewrite, save_file, write_oinf

OLD = b"the old file"
VALUES: dict[str, npt.NDArray[Any]] = {
    "a": np.arange(5, dtype=np.float32),
    "b": np.ones((3, 2), np.int8),
    "empty": np.empty((0, 4), np.float64),
}


@dataclass
class Model:
    """The same content as ``VALUES``, for the dataclass entry point."""

    tensors: dict[str, TensorSpec] = field(default_factory=lambda: {n: TensorSpec(v) for n, v in VALUES.items()})


def _save_file(path: Path) -> None:
    save_file(path, VALUES)


def _write_oinf(path: Path) -> None:
    write_oinf(Model(), path)


def _writer(path: Path) -> None:
    with Writer(path) as writer:
        for name, values in VALUES.items():
            writer.add_tensor(name, values)


Write = Callable[[Path], None]
WRITERS: dict[str, Write] = {"save_file": _save_file, "write_oinf": _write_oinf, "Writer": _writer}
ALL_WRITERS = pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder / "model.oinf"


@pytest.fixture
def new(tmp_path: Path) -> bytes:
    """What a successful write of ``VALUES`` gives."""
    save_file(tmp_path / "expected.oinf", VALUES)
    return (tmp_path / "expected.oinf").read_bytes()


def _use(monkeypatch: pytest.MonkeyPatch, faulty: FaultyOs) -> None:
    monkeypatch.setattr("openinfer.oinf.atomic.os", faulty)
    monkeypatch.setattr("openinfer.oinf.writer.os", faulty)


def _calls(write: Write, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The watched calls of a write that succeeds."""
    watcher = FaultyOs()
    with monkeypatch.context() as patch:
        _use(patch, watcher)
        write(path)
    return watcher.calls


def _only_file(path: Path) -> bytes:
    assert os.listdir(path.parent) == [path.name], "something was left behind"
    return path.read_bytes()


def _write_error(write: Write, path: Path) -> OinfError:
    with pytest.raises(OinfError) as caught:
        write(path)
    assert caught.value.code is Code.WRITE_FAILED
    return caught.value


# --- what a write does ----------------------------------------------------------------------------------------------


@ALL_WRITERS
def test_all_entry_points_write_the_same_bytes(write: Write, path: Path, new: bytes) -> None:
    write(path)
    assert _only_file(path) == new


@ALL_WRITERS
def test_the_file_is_on_disk_before_the_rename_and_the_folder_after(
    write: Write, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _calls(write, path, monkeypatch)
    tail = ["write file", "fsync file", "close file", "rename", "open folder", "fsync folder", "close folder"]
    assert calls[-len(tail) :] == tail
    assert calls.count("rename") == 1
    assert calls.count("open file") == 1


@pytest.mark.parametrize("most", [1, 7])
@ALL_WRITERS
def test_short_writes_are_continued(
    write: Write, path: Path, new: bytes, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _use(patch, FaultyOs(most_written=most))
        write(path)
    assert _only_file(path) == new


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("existing", [True, False], ids=["replacing", "fresh"])
@ALL_WRITERS
def test_a_failure_of_any_system_call_leaves_the_old_file_or_the_complete_new_one(
    write: Write, path: Path, new: bytes, error: int, existing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _calls(write, path, monkeypatch)
    assert len(calls) >= 10
    for number, call in enumerate(calls):
        path.unlink()
        if existing:
            path.write_bytes(OLD)
        with monkeypatch.context() as patch:
            _use(patch, FaultyOs(number, error))
            found = _write_error(write, path)
        assert os.strerror(error) in found.message
        renamed = "rename" in calls[:number]
        if renamed or existing:
            assert _only_file(path) == (new if renamed else OLD), f"after a failure of {call} ({number})"
        else:
            assert os.listdir(path.parent) == [], f"after a failure of {call} ({number})"
            path.touch()


@pytest.mark.parametrize("call", ["open", "fchmod", "write", "fsync", "close"])
@ALL_WRITERS
def test_an_interrupt_leaves_nothing_behind(
    write: Write, call: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals that arrive during a system call become exceptions when it returns, with its work done."""

    def interrupted(*arguments: Any) -> None:
        getattr(os, call)(*arguments)
        raise KeyboardInterrupt

    path.write_bytes(OLD)
    faulty = FaultyOs()
    setattr(faulty, call, interrupted)
    with monkeypatch.context() as patch:
        _use(patch, faulty)
        with pytest.raises(KeyboardInterrupt):
            write(path)
    assert _only_file(path) == OLD


def _fail_while_writing(path: Path, failure: type[BaseException]) -> None:
    with Writer(path) as writer:
        writer.add_tensor("a", VALUES["a"])
        raise failure


@pytest.mark.parametrize("existing", [True, False], ids=["replacing", "fresh"])
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_an_exception_inside_a_writer_block_leaves_nothing_behind(
    path: Path, failure: type[BaseException], existing: bool
) -> None:
    if existing:
        path.write_bytes(OLD)
    with pytest.raises(failure):
        _fail_while_writing(path, failure)
    assert [entry.read_bytes() for entry in path.parent.iterdir()] == ([OLD] if existing else [])


UNWRITABLE: dict[str, dict[Any, Any]] = {
    "a name outside the character set": {"bad name": [1.0]},
    "seventeen dims": {"a": np.zeros((1,) * 17)},
    "text": {"a": np.array(["text"])},
    "names that are not all text": {"a": [1.0], 2: [1.0]},
}


@pytest.mark.parametrize("tensors", UNWRITABLE.values(), ids=list(UNWRITABLE))
def test_tensors_that_the_format_cannot_hold_are_a_typed_error_and_leave_the_old_file(
    tensors: dict[Any, Any], path: Path
) -> None:
    path.write_bytes(OLD)
    with pytest.raises(OpenInferError):
        save_file(path, tensors)
    assert _only_file(path) == OLD


def test_rewriting_a_model_onto_itself_keeps_it_whole(path: Path) -> None:
    path.write_bytes(seeds()["unsorted"])
    with ModelLoader.open(path) as model:
        rewrite(model, path)
    with ModelLoader.open(path) as model:
        assert sorted(model.tensors) == list(model.tensors)
        assert len(model.tensors) == 4


# --- names, permissions, links --------------------------------------------------------------------------------------


@pytest.fixture
def umask() -> Iterator[None]:
    """The usual umask, whatever the caller has."""
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o666, 0o755, 0o444])
@ALL_WRITERS
def test_the_permissions_of_a_replaced_file_are_kept(write: Write, path: Path, mode: int, new: bytes) -> None:
    path.write_bytes(OLD)
    path.chmod(mode)
    write(path)
    assert _only_file(path) == new
    assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(mode)


@pytest.mark.usefixtures("umask")
def test_a_fresh_file_has_the_permissions_the_umask_leaves(path: Path) -> None:
    _save_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@ALL_WRITERS
def test_a_symbolic_link_is_kept_and_its_target_replaced(write: Write, path: Path, tmp_path: Path, new: bytes) -> None:
    link = tmp_path / "link.oinf"
    path.write_bytes(OLD)
    link.symlink_to(path)
    write(link)
    assert link.is_symlink()
    assert _only_file(path) == new
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["expected.oinf", "link.oinf", "models"]


def test_a_dangling_link_gets_its_target(path: Path, tmp_path: Path, new: bytes) -> None:
    link = tmp_path / "link.oinf"
    link.symlink_to(path)
    _save_file(link)
    assert _only_file(path) == new


@ALL_WRITERS
def test_a_directory_is_not_replaced(write: Write, path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(OLD)
    _write_error(write, path)
    assert os.listdir(path.parent) == [path.name]
    assert _only_file(path / "inside") == OLD


@ALL_WRITERS
def test_a_fifo_is_not_replaced(write: Write, path: Path) -> None:
    os.mkfifo(path)
    _write_error(write, path)
    assert os.listdir(path.parent) == [path.name]
    assert path.is_fifo()


@ALL_WRITERS
def test_a_missing_folder_is_a_typed_error(write: Write, path: Path) -> None:
    _write_error(write, path.parent / "missing" / "model.oinf")
    assert os.listdir(path.parent) == []


@ALL_WRITERS
def test_a_path_with_a_nul_is_a_typed_error(write: Write, path: Path) -> None:
    _write_error(write, Path(f"{path}\0"))
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "模" * 85, "🙂" * 63], ids=["ascii", "two", "three", "four"])
@ALL_WRITERS
def test_a_name_as_long_as_the_file_system_allows_can_be_written(write: Write, path: Path, name: str) -> None:
    write(path.parent / name)
    assert os.listdir(path.parent) == [name]
