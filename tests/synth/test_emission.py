"""Projects written over others: whatever happens, a folder has the old one, the new one, or one that does not build."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oinf.faulty_os import FaultyOs
from tests.synth.both_ways import planned

from openinfer import Code, OinfError
from openinfer.synth.plan import Plan
from openinfer.synth.run.emission import write_project
from openinfer.synth.targets.project import Golden

WATCHED = ("open", "write", "fsync", "close", "rename", "mkdir", "makedirs", "unlink", "fchmod", "stat")
OLD = {
    "include/old.h": b"/* Made by OpenInfer: old */",
    "src/old.c": b"/* Made by OpenInfer: old */",
    "src/kernels.c": b"/* Made by OpenInfer: old */",
    "src/kernels.h": b"/* Made by OpenInfer: old */",
    "src/weights.c": b"/* Made by OpenInfer: old */",
    "selftest/main.c": b"/* Made by OpenInfer: old */",
    "Makefile": b"old",
    "plan.json": b'{"name": "old"}',
}
NEW = {
    "include/new.h": b"/* Made by OpenInfer: new */",
    "src/new.c": b"/* Made by OpenInfer: new */",
    "src/kernels.c": b"/* Made by OpenInfer: new */",
    "src/kernels.h": b"/* Made by OpenInfer: new */",
    "src/weights.bin": b"\0\1\2",
    "bare/startup.c": b"/* Made by OpenInfer: new */",
    "Makefile": b"new",
    "plan.json": b'{"name": "new"}',
}
OWN = {"notes.txt": b"mine", "src/mine.c": b"mine", "selftest/data.bin": b"mine", ".openinfer/x": b"mine"}
"""Files of the user's."""


def filled(folder: Path, *parts: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for part in parts:
        for path, content in part.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def verdict(folder: Path, old: dict[str, bytes]) -> str:
    """What a folder has now: the user's files always; and the one project, the other, or one that does not build."""
    found = content(folder)
    assert {path: found.pop(path, None) for path in OWN} == OWN
    if found == old:
        return "old"
    if found == NEW:
        return "new"
    gate = found.get("src/kernels.c", b'#error "missing"')
    return "refuses" if gate.startswith(b"#error") else f"a mixture: {sorted(found)}"


# --- failures at every call -------------------------------------------------------------------------------------------


def write_with(faulty: FaultyOs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # takes long, and nothing here is about power failures
        patch.setattr("openinfer.synth.run.emission.os", faulty)
        patch.setattr("openinfer.oinf.atomic.os", faulty)
        write_project(folder, NEW)


@pytest.mark.parametrize("old", [OLD, {}], ids=["over another", "fresh"])
def test_a_failure_of_any_call_leaves_one_project_or_none(
    old: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = FaultyOs(watched=WATCHED)
    folder = filled(tmp_path / "out", old, OWN)
    write_with(watcher, folder, monkeypatch)
    assert verdict(folder, old) == "new"
    found = []
    for number, call in enumerate(watcher.calls):
        for error in (errno.ENOSPC, errno.EIO) if old else (errno.EIO,):
            filled(folder, old, OWN)
            with pytest.raises(OinfError) as caught:
                write_with(FaultyOs(number, error, watched=WATCHED), folder, monkeypatch)
            assert caught.value.code is Code.WRITE_FAILED
            assert os.strerror(error) in caught.value.message
            assert not (folder / ".openinfer-new").exists(), f"after a failure of {call} ({number})"
            found.append(verdict(folder, old))
            assert found[-1] in ("old", "new", "refuses"), f"after a failure of {call} ({number}): {found[-1]}"
            if found[-1] == "refuses":
                assert "until it is written again" in str(caught.value)
                write_with(FaultyOs(), folder, monkeypatch)
                assert verdict(folder, old) == "new"
    order = ["old", "refuses", "new"]
    assert [order.index(one) for one in found] == sorted(order.index(one) for one in found)
    assert set(found) == set(order)
    assert found.count("old") > len(found) / 2, "what can fail for want of room comes before anything is replaced"


KILLS = """
import json, os, signal, sys
from pathlib import Path
from tests.synth import test_emission as own
from openinfer.oinf import atomic
from openinfer.synth.run import emission

os.fsync = lambda _: None

class KillingOs:
    def __init__(self, at):
        self.at, self.count = at, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in own.WATCHED:
            return real
        def call(*arguments, **options):
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return call

def killed(at):
    child = os.fork()
    if child == 0:
        emission.os = atomic.os = KillingOs(at)
        emission.write_project(folder, own.NEW)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

folder, outcomes = Path(sys.argv[1]), []
own.filled(folder, own.OLD, own.OWN)
while killed(len(outcomes) + 1):
    own.shutil.rmtree(folder / ".openinfer-new", ignore_errors=True)
    outcomes.append(own.verdict(folder, own.OLD))
    own.filled(folder, own.OLD, own.OWN)
print(json.dumps(outcomes))
"""


def test_a_writer_killed_before_any_call_leaves_one_project_or_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    ended = subprocess.run(
        [*command, str(tmp_path / "out")], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    outcomes = json.loads(ended.stdout)
    assert set(outcomes) == {"old", "new", "refuses"}


def test_what_a_killed_writer_left_beside_the_project_is_removed(tmp_path: Path) -> None:
    folder = filled(tmp_path / "out", OLD, OWN, {".openinfer-new/0": b"half"})
    write_project(folder, NEW)
    assert verdict(folder, OLD) == "new"


# --- real projects ----------------------------------------------------------------------------------------------------

TEXT = "dynamic {{ x: f32[4]; }} volatile {{ y: f32[4]; }} block entry {{ op {op}(x, x) >> y; return y; }}"
ONES = np.ones(4, np.float32)


def projects() -> tuple[tuple[Plan, list[Golden]], tuple[Plan, list[Golden]]]:
    old, new = (planned(TEXT.format(op=op), device="generic") for op in ("add", "sub"))
    return (old, [Golden({"x": ONES}, {"y": ONES * 2})]), (new, [Golden({"x": ONES}, {"y": ONES * 0})] * 2)


def make(folder: Path, target: str = "selftest") -> subprocess.CompletedProcess[str]:
    command = ["make", "-s", "CFLAGS=-O0", target]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_project_that_was_not_written_to_its_end_does_not_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of the old one are there, and would do for the new one."""
    (old, steps), (new, others) = projects()
    old.emit(tmp_path / "old", steps)
    assert make(tmp_path / "old").returncode == 0
    watcher = FaultyOs(watched=("rename",))
    with monkeypatch.context() as patch:
        patch.setattr("openinfer.synth.run.emission.os", watcher)
        new.emit(tmp_path / "new", others)
    count = len(watcher.calls)
    for number in (1, 2, count // 2, count - 1):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "old", folder)
        with monkeypatch.context() as patch:
            patch.setattr("openinfer.synth.run.emission.os", FaultyOs(number, errno.EIO, watched=("rename",)))
            with pytest.raises(OinfError):
                new.emit(folder, others)
        ended = make(folder)
        assert ended.returncode != 0
        assert "was only partly written" in ended.stderr
    new.emit(folder, others)
    assert make(folder).stdout == "8 of 8 values are right\n"


def test_objects_of_the_project_before_are_not_linked(tmp_path: Path) -> None:
    """A compiler that was still at work when the files were replaced makes objects that look new."""
    (old, steps), (new, others) = projects()
    old.emit(tmp_path, steps)
    assert make(tmp_path).returncode == 0
    new.emit(tmp_path, others)
    for path in (tmp_path / "build").iterdir():
        os.utime(path)
    assert make(tmp_path).stdout == "8 of 8 values are right\n"
    newer = (tmp_path / "build/kernels.o").stat().st_mtime_ns
    assert make(tmp_path).stdout == "8 of 8 values are right\n"
    assert (tmp_path / "build/kernels.o").stat().st_mtime_ns == newer, "compiled though nothing has changed"


def test_a_self_test_that_the_new_project_does_not_have_is_gone(tmp_path: Path) -> None:
    (old, steps), (new, _) = projects()
    old.emit(tmp_path, steps)
    new.emit(tmp_path)
    assert not (tmp_path / "selftest").exists()
    assert make(tmp_path).returncode != 0


# --- hostile folders --------------------------------------------------------------------------------------------------


def refused(folder: Path) -> str:
    before = content(folder) if folder.is_dir() else {}
    with pytest.raises(OinfError) as caught:
        write_project(folder, NEW)
    assert caught.value.code is Code.WRITE_FAILED
    assert (content(folder) if folder.is_dir() else {}) == before
    return caught.value.message


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path / "out", OLD, OWN)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "another process is writing" in refused(folder)
    os.close(descriptor)
    write_project(folder, NEW)
    assert verdict(folder, OLD) == "new"


@pytest.mark.parametrize("path", ["Makefile", "src/new.c", "src/kernels.c", "plan.json", "src/weights.bin"])
def test_a_file_that_is_a_link_is_refused(path: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = filled(tmp_path / "out", OLD, OWN)
    (folder / path).unlink(missing_ok=True)
    (folder / path).symlink_to(victim)
    assert "is a symbolic link" in refused(folder)
    assert victim.read_bytes() == b"precious"
    assert (folder / path).is_symlink()


@pytest.mark.parametrize("name", ["src", "include", "bare", ".openinfer-new"])
def test_a_folder_that_is_a_link_is_refused(name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = filled(tmp_path / "out", OWN)
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).symlink_to(elsewhere)
    assert "symbolic link" in refused(folder)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "dangling link", "file", "pipe", "under a file", "nul"])
def test_a_place_that_is_no_folder_is_refused(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    match kind:
        case "link":
            (tmp_path / "elsewhere").mkdir()
            folder.symlink_to("elsewhere")
            assert "symbolic link" in refused(Path(f"{folder}/"))
        case "dangling link":
            folder.symlink_to("missing")
        case "file":
            folder.touch()
        case "pipe":
            os.mkfifo(folder)
        case "under a file":
            (tmp_path / "file").touch()
            folder = tmp_path / "file" / "out"
        case "nul":
            folder = tmp_path / "a\0b"
    with pytest.raises(OinfError) as caught:
        write_project(folder, NEW)
    assert caught.value.code is Code.WRITE_FAILED
    assert not list(tmp_path.glob("elsewhere/*"))


@pytest.mark.parametrize("kind", ["a folder", "a pipe"])
def test_what_is_no_regular_file_is_not_replaced(kind: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "out", OWN)
    if kind == "a folder":
        (folder / "Makefile").mkdir()
    else:
        os.mkfifo(folder / "Makefile")
    assert "'Makefile' in it is not a regular file" in refused(folder) or kind == "a pipe"
    with pytest.raises(OinfError):
        write_project(folder, NEW)


def test_a_hard_link_elsewhere_keeps_its_content(tmp_path: Path) -> None:
    folder = filled(tmp_path / "out", OLD, OWN)
    os.link(folder / "Makefile", tmp_path / "kept")
    write_project(folder, NEW)
    assert (tmp_path / "kept").read_bytes() == OLD["Makefile"]


def test_permissions_of_replaced_files_are_kept(tmp_path: Path) -> None:
    folder = filled(tmp_path / "out", OLD, OWN)
    (folder / "Makefile").chmod(0o640)
    write_project(folder, NEW)
    assert (folder / "Makefile").stat().st_mode & 0o777 == 0o640


def test_a_folder_made_for_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("openinfer.synth.run.emission.Sink.write", full)
    assert "No space left" in refused(tmp_path / "out")
    assert not (tmp_path / "out").exists()
