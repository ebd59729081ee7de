"""The cache of compiled modules: what is damaged is built again, and what others could have changed is not loaded."""

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openinfer.errors import Code, ExecutionError, MissingExtraError
from openinfer.synth.run.build import library_of
from openinfer.synth.run.cache import LIBRARY, cache_folder

CODE = {"src/seven.c": "int seven(void);\nint seven(void) { return 7; }\n"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPENINFER_CACHE", str(folder))
    return folder


def compiler(folder: Path, script: str) -> str:
    """A program that passes for a compiler."""
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def counting(tmp_path: Path) -> tuple[str, Callable[[], int]]:
    """A compiler, and how often it has made a library."""
    log = tmp_path / "log"
    script = f'case "$*" in --version) ;; *) echo >> {log} ;; esac\nexec gcc "$@"'
    return compiler(tmp_path, script), lambda: len(log.read_text()) if log.exists() else 0


def works(cc: str = "gcc") -> bool:
    return bool(library_of(CODE, ("src/seven.c",), cc, ("-O0",)).seven() == 7)


def only_entry(cache: Path) -> Path:
    (entry,) = cache.iterdir()
    return entry


def flip_a_bit(library: Path) -> None:
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)


def replace_with(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def damage(library: Path) -> None:
        library.unlink()
        make(library)

    return damage


def copy_of_another(library: Path) -> None:
    """A whole library, with its record, under the name of another."""
    other = library.parent.with_name("0" * 40)
    shutil.copytree(library.parent, other)
    shutil.rmtree(library.parent)
    library.parent.mkdir()
    for path in other.iterdir():
        shutil.copy(path, library.parent / path.name)
    record = library.parent / "module.sha256"
    record.write_text(record.read_text().replace(library.parent.name, other.name))
    shutil.rmtree(other)


def replace_entry_with(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def damage(library: Path) -> None:
        shutil.rmtree(library.parent)
        make(library.parent)

    return damage


def leave_a_half(library: Path) -> None:
    library.unlink()
    (library.parent / "building").mkdir()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda library: os.truncate(library, library.stat().st_size // 2),
    "cut by a page": lambda library: os.truncate(library, library.stat().st_size - 4096),
    "one byte longer": lambda library: os.truncate(library, library.stat().st_size + 1),
    "one bit": flip_a_bit,
    "empty": lambda library: os.truncate(library, 0),
    "missing": os.unlink,
    "a folder": replace_with(Path.mkdir),
    "a pipe": replace_with(os.mkfifo),
    "a link": replace_with(lambda library: library.symlink_to("/usr/bin/env")),
    "unreadable": lambda library: library.chmod(0),
    "without a record": lambda library: (library.parent / "module.sha256").unlink(),
    "a record of nothing": lambda library: (library.parent / "module.sha256").write_bytes(b""),
    "a record that is a folder": lambda library: replace_with(Path.mkdir)(library.parent / "module.sha256"),
    "the library of another entry": copy_of_another,
    "an entry that is a file": replace_entry_with(Path.touch),
    "an entry that is a link": replace_entry_with(lambda entry: entry.symlink_to("/tmp")),
    "an entry that others can write to": lambda library: library.parent.chmod(0o777),
    "an entry without permissions": lambda library: library.parent.chmod(0),
    "left by a build that was killed": leave_a_half,
}
WHOLE_FOR_ROOT = ("unreadable", "an entry without permissions")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_built_again_once(
    damage: str, cache: Path, counting: tuple[str, Callable[[], int]]
) -> None:
    cc, builds = counting
    assert works(cc)
    library = only_entry(cache) / LIBRARY
    DAMAGES[damage](library)
    assert works(cc)
    assert builds() == (1 if damage in WHOLE_FOR_ROOT and os.geteuid() == 0 else 2)
    before = builds()
    assert works(cc)
    assert builds() == before, "a library that is whole was built again"
    assert sorted(path.name for path in only_entry(cache).iterdir()) == ["module.sha256", LIBRARY]


@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "rename"])
def test_a_cache_that_fails_is_done_without_and_mended_later(
    call: str, cache: Path, counting: tuple[str, Callable[[], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the calls in turn: the library is there, and the cache holds nothing that is not whole."""
    cc, builds = counting
    for place in range(20):
        failing = Failing(getattr(os, call), str(cache), place, (errno.ENOSPC, errno.EIO)[place % 2])
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            assert works(cc)
        if failing.count <= place:
            break
        assert works(cc)
        assert list(cache.rglob("building")) == []
        shutil.rmtree(cache)
    assert place > 0
    assert builds() > place


class Failing:
    """A function of ``os`` that fails when it is called for the so manyth time on something in a folder."""

    def __init__(self, real: Callable[..., Any], folder: str, place: int, error: int) -> None:
        self.count = 0
        self._real, self._folder, self._place, self._error = real, folder, place, error

    def __call__(self, path: Any, *arguments: Any, **options: Any) -> Any:
        name = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
        if name.startswith(self._folder):
            self.count += 1
            if self.count == self._place + 1:
                raise OSError(self._error, os.strerror(self._error))
        return self._real(path, *arguments, **options)


def test_an_interrupt_ends_the_compiler_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    """The compiler has a child that would go on writing; it interrupts us as Ctrl-C would."""
    script = f"""case "$*" in --version) exit ;; esac
    (sleep 0.3; touch {tmp_path}/late) &
    touch "$TMPDIR/ccXYZ.s"
    kill -INT $PPID
    wait"""
    with pytest.raises(KeyboardInterrupt):
        works(compiler(tmp_path, script))
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "late").exists()
    assert not [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("ccXYZ")]


def test_an_interrupt_while_the_compiler_starts_ends_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anyone has the process: it has begun, and its output has not been waited for."""
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def interrupted(self: Any, *arguments: Any) -> None:
        start(self, *arguments)
        if "--version" not in self.args:
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "_execute_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        works(compiler(tmp_path, f'case "$*" in --version) exit ;; esac; sleep 0.5; touch {tmp_path}/late'))
    time.sleep(0.7)
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "late").exists()


def test_a_command_that_is_terminated_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    cc = compiler(tmp_path, 'case "$*" in --version) exit ;; esac\nkill -TERM $PPID\nsleep 60')
    (tmp_path / "g.oig").write_text("block entry { return; }")
    (tmp_path / "d.json").write_text(f'{{"device": {{"type": "cpu"}}, "toolchain": {{"cc": "{cc}"}}}}')
    command = [sys.executable, "-m", "openinfer", "synth", "g.oig", "--device", "d.json", "--build"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (128 + signal.SIGTERM, False), ended.stderr
    assert list(cache.iterdir()) == []


# --- compilers that are none ------------------------------------------------------------------------------------------

ODD_COMPILERS = {
    "killed": ("kill -SEGV $$", "was killed by SIGSEGV"),
    "silent": ("exit 0", "produced no library"),
    "not UTF-8": ("printf 'err\\377\\376or\\033[31m' >&2; exit 1", "err��or"),
    "makes a folder": ("mkdir module.so", "produced no library"),
}


@pytest.mark.parametrize("kind", ODD_COMPILERS)
def test_a_compiler_that_fails_in_an_odd_way_is_reported(kind: str, cache: Path, tmp_path: Path) -> None:
    script, told = ODD_COMPILERS[kind]
    with pytest.raises(ExecutionError) as caught:
        works(compiler(tmp_path, f'case "$*" in --version) printf "\\377" ;; *) {script} ;; esac'))
    assert caught.value.code is Code.NOT_SYNTHESIZED
    assert told in caught.value.message
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\0\1\2\3"])
def test_a_compiler_that_is_no_program_is_reported(content: bytes, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cc").write_bytes(content)
    (tmp_path / "cc").chmod(0o755)
    with pytest.raises(MissingExtraError) as caught:
        works(str(tmp_path / "cc"))
    assert caught.value.code is Code.MISSING_TOOL
    assert "cannot be run" in caught.value.message


def test_a_library_for_another_machine_is_reported(cache: Path, tmp_path: Path) -> None:
    script = 'case "$*" in --version) ;; *) echo "not a library" > module.so ;; esac'
    with pytest.raises(ExecutionError) as caught:
        works(compiler(tmp_path, script))
    assert caught.value.code is Code.NOT_SYNTHESIZED
    assert "cannot be loaded" in caught.value.message


def test_a_compiler_may_be_given_by_a_relative_path(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(tmp_path, 'exec gcc "$@"')
    monkeypatch.chdir(tmp_path)
    assert works("./cc")


# --- places -----------------------------------------------------------------------------------------------------------


def test_warnings_stop_a_build_only_if_the_environment_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CFLAGS", "-Wstack-usage=1")
    assert works()
    monkeypatch.setenv("OPENINFER_CFLAGS", "-Wstack-usage=1 -Werror")
    with pytest.raises(ExecutionError) as caught:
        works()
    assert caught.value.code is Code.NOT_SYNTHESIZED


def test_a_temporary_folder_that_takes_the_place_of_the_cache_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert works()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_cache_and_no_temporary_folder_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ExecutionError) as caught:
        works()
    assert caught.value.code is Code.WRITE_FAILED


def test_a_cache_that_others_can_change_is_refused(cache: Path) -> None:
    for mode in (0o777, 0o770, 0o1777):
        cache.mkdir(exist_ok=True)
        cache.chmod(mode)
        with pytest.raises(ExecutionError) as caught:
            works()
        assert caught.value.code is Code.UNSAFE_CACHE
        assert "chmod go-w" in str(caught.value)
    cache.chmod(0o755)
    assert works()


def test_a_cache_behind_a_link_is_judged_by_what_it_is(cache: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    cache.symlink_to(real)
    assert works()
    assert only_entry(real).is_dir()
    real.chmod(0o777)
    with pytest.raises(ExecutionError) as caught:
        works()
    assert caught.value.code is Code.UNSAFE_CACHE


def test_a_cache_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(ExecutionError) as caught:
        works()
    assert caught.value.code is Code.UNSAFE_CACHE


def test_a_new_cache_is_for_its_user_alone(cache: Path) -> None:
    old = os.umask(0)
    try:
        assert works()
    finally:
        os.umask(old)
    assert [oct(path.stat().st_mode & 0o777) for path in (cache, only_entry(cache))] == ["0o700", "0o700"]


def test_a_relative_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", "build/cache")
    with pytest.raises(ExecutionError) as caught:
        cache_folder()
    assert caught.value.code is Code.UNSAFE_CACHE


def test_the_cache_is_never_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENINFER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/.cache/openinfer")
    monkeypatch.setenv("HOME", "relative")
    assert cache_folder() is None
    monkeypatch.delenv("HOME")
    found = cache_folder()
    assert found is None or found.is_absolute()


def test_a_library_that_is_loaded_does_not_mind_what_becomes_of_its_file(cache: Path) -> None:
    library = library_of(CODE, ("src/seven.c",), "gcc", ("-O0",))
    assert isinstance(library, ctypes.CDLL)
    os.truncate(only_entry(cache) / LIBRARY, 0)
    assert library.seven() == 7
    shutil.rmtree(cache)
    assert library.seven() == 7


def test_a_library_is_loaded_once(cache: Path) -> None:
    assert library_of(CODE, ("src/seven.c",), "gcc", ("-O0",)) is library_of(CODE, ("src/seven.c",), "gcc", ("-O0",))
