"""Compiles generated code on this machine and loads it: into the cache, or into a temporary folder without one."""

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from openinfer.errors import (
    Code,
    Diagnostic,
    ExecutionError,
    MissingExtraError,
    OpenInferError,
    printable,
    without_colours,
)
from openinfer.synth.run.cache import LIBRARY, cache_entry

_MOST_SAID = 2000
_MOST_LINES = 40


def library_of(
    code: Mapping[str, str],
    sources: Sequence[str],
    cc: str,
    flags: Sequence[str],
    libraries: Sequence[str] = (),
    shaders: Mapping[str, str] | None = None,
    kernel_flags: Sequence[str] = (),
) -> ctypes.CDLL:
    """Load the shared library made from some files; it is compiled unless the cache has it.

    Concurrent builds of the same library wait for each other; a damaged library is rebuilt. If the cache cannot be
    written, a temporary folder is used, and removed once the library is loaded. ``shaders`` maps shader files to the
    names of the headers they are compiled to; ``kernel_flags`` are for the CUDA compiler, if any source needs it.
    """
    compiler, flags = _found(cc), (*flags, *_own_flags())
    job = _Job(code, sources, (compiler, *flags), libraries, shaders or {}, kernel_flags)
    parts: tuple[object, ...] = (tool_version(compiler), flags, tuple(sources), sorted(code.items()))
    if shaders:
        parts = (*parts, tuple(libraries), tool_version(shader_compiler()))
    if job.has_kernels:
        parts = (*parts, tuple(kernel_flags), tool_version(kernel_compiler()))
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:40]
    try:
        with cache_entry(digest) as entry:
            if not entry.is_whole():
                with entry.workplace() as place:
                    job.compile(place)
                    entry.keep(place / LIBRARY)
            return _loaded_copy(entry.library, entry.record)
    except OSError:
        with temporary_folder() as place:
            job.compile(place)
            return _loaded(place / LIBRARY)


def _found(cc: str) -> str:
    """The absolute path of a compiler, as it runs in another folder."""
    path = shutil.which(cc)
    if path is None:
        message = f"there is no C compiler {cc!r} to build with"
        advice = "install one (apt-get install gcc), or name another: plan.build(cc='clang')"
        raise MissingExtraError(Diagnostic(Code.MISSING_TOOL, message, None, advice))
    return os.path.abspath(path)


def _own_flags() -> tuple[str, ...]:
    """Flags that the environment adds to every command. Only these make warnings errors: new compilers add warnings."""
    return tuple(os.environ.get("OPENINFER_CFLAGS", "").split())


@cache
def tool_version(compiler: str) -> str:
    """Identifies a compiler: its path and version output."""
    return f"{compiler} {run_program([compiler, '--version'], None).output[:500]}"


@cache
def _loaded_copy(library: Path, _record: bytes) -> ctypes.CDLL:
    """A library loaded from a private copy, so that its file may change: loaded code is paged in on demand."""
    copy = library.with_name(f"{uuid4().hex}.so")
    try:
        try:
            shutil.copyfile(library, copy)
        except OSError:  # the cache is read-only or full
            return _loaded(library)
        return _loaded(copy)
    finally:
        with suppress(OSError):
            copy.unlink()


def _loaded(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        if "libvulkan" in str(error):
            raise missing_vulkan("the Vulkan loader is not installed", "libvulkan1") from error
        message = f"the compiled code cannot be loaded: {printable(str(error))}"
        advice = "the compiler must target this machine, and the cache (OPENINFER_CACHE) must allow programs to run"
        raise ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, advice)) from error


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder, which is removed afterwards."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="openinfer-"))
    except OSError as error:
        raise _no_room(error) from error
    try:
        yield folder
    except OSError as error:
        raise _no_room(error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _no_room(error: OSError) -> OpenInferError:
    message = f"there is no folder to compile the generated code in: {error.strerror or error}"
    advice = "TMPDIR can name a folder for temporary files, OPENINFER_CACHE one for compiled modules"
    return ExecutionError(Diagnostic(Code.WRITE_FAILED, message, None, advice))


# --- compiling --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """A compilation: the code and the command."""

    code: Mapping[str, str]
    sources: Sequence[str]
    command: Sequence[str]
    libraries: Sequence[str] = ()
    shaders: Mapping[str, str] = field(default_factory=dict)
    kernel_flags: Sequence[str] = ()

    @property
    def has_kernels(self) -> bool:
        """Whether any source is in CUDA."""
        return any(one.endswith(_KERNELS) for one in self.sources)

    def compile(self, folder: Path) -> None:
        """Write the code into a folder and compile it there; ``OSError`` if files cannot be written."""
        for path, text in self.code.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="ascii", newline="\n")
        if self.shaders:
            compile_shaders(self.shaders, folder)
        headers = ["-Isrc", "-Ibuild"] * bool(self.shaders)
        line = [*self.command, "-shared", "-fPIC", "-Iinclude", *headers, *self.sources, "-o", LIBRARY, *self.libraries]
        for command in self._with_kernels() if self.has_kernels else (line,):
            ended = run_program(command, folder)
            if ended.status:
                require_headers(ended.errors)
                raise _not_compiled(ended)
        if not (folder / LIBRARY).is_file():
            raise _not_compiled(ended)

    def _with_kernels(self) -> Iterator[Sequence[str]]:
        """The commands for sources that include CUDA; nvcc uses the C compiler for host code."""
        compiler, *flags = self.command
        start = (kernel_compiler(), "-ccbin", compiler, "-Xcompiler", "-fPIC", "-Isrc", "-Iinclude")
        told = [word for flag in flags for word in ("-Xcompiler", flag)]
        yield [*start, *self.kernel_flags, "-c", *(one for one in self.sources if one.endswith(_KERNELS))]
        yield [*start, *told, "-c", *(one for one in self.sources if not one.endswith(_KERNELS))]
        objects = [f"{Path(one).stem}.o" for one in self.sources]
        yield [*start, "-shared", *objects, "-o", LIBRARY, *self.libraries]


def _not_compiled(ended: "EndedProgram") -> ExecutionError:
    return ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, f"the generated code does not compile: {ended.told()}"))


# --- kernels ----------------------------------------------------------------------------------------------------------

_KERNELS = ".cu"
_NVCC = "nvcc"


def kernel_compiler() -> str:
    """The absolute path of the CUDA compiler."""
    path = shutil.which(_NVCC)
    if path is None:
        message = f"there is no {_NVCC!r}, which compiles CUDA kernels"
        advice = "install the CUDA toolkit (https://developer.nvidia.com/cuda-downloads); emit() needs none"
        raise MissingExtraError(Diagnostic(Code.NO_GPU, message, None, advice))
    return os.path.abspath(path)


# --- shaders ----------------------------------------------------------------------------------------------------------

_GLSLANG = "glslangValidator"


def missing_vulkan(message: str, package: str) -> MissingExtraError:
    """The error for a missing Vulkan prerequisite, with the package that provides it."""
    return MissingExtraError(Diagnostic(Code.NO_GPU, message, None, f"apt-get install {package}"))


def shader_compiler() -> str:
    """The absolute path of the shader compiler."""
    path = shutil.which(_GLSLANG)
    if path is None:
        raise missing_vulkan(f"there is no {_GLSLANG!r}, which compiles shaders", "glslang-tools")
    return os.path.abspath(path)


def compile_shaders(shaders: Mapping[str, str], folder: Path) -> None:
    """Compile shaders to headers in the folder ``build``."""
    (folder / "build").mkdir(exist_ok=True)
    for path, name in shaders.items():
        compile_shader(path, folder, ("-Ishaders", "--vn", name, "-o", f"build/{name}.h"))


def compile_shader(path: str, folder: Path, options: Sequence[str]) -> None:
    """Compile a shader in a folder."""
    ended = run_program([shader_compiler(), "-V", "--target-env", "vulkan1.2", *options, path], folder)
    if ended.status:
        said = without_colours(ended.output)[:_MOST_SAID]
        raise ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, f"the shader {path} does not compile: {said}"))


def require_headers(errors: str) -> None:
    """Raise an error if the compiler did not find Vulkan."""
    if "vulkan/vulkan.h" in errors or "-lvulkan" in errors:
        raise missing_vulkan("the compiler finds no Vulkan headers or no Vulkan loader", "libvulkan-dev")


@dataclass(frozen=True)
class EndedProgram:
    """A finished program: its exit status and output."""

    program: str
    status: int
    output: str
    errors: str

    def told(self) -> str:
        """The reason of the failure: the program's own messages if there are any."""
        lines = self.errors[:_MOST_SAID].splitlines()[:_MOST_LINES]
        said = "\n".join(printable(line) for line in lines)
        if self.status < 0:
            return f"{self.program!r} was killed by {_signal_name(-self.status)}{said and f': {said}'}"
        return said or f"{self.program!r} ended with status {self.status} and produced no library"


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


class _Started(subprocess.Popen[bytes]):
    """A program in a process group of its own. An interrupt while it starts leaves no process behind."""

    pid = 0

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        try:
            super().__init__(command, process_group=0, **options)
        except Exception:
            raise
        except BaseException:
            if self.pid:
                os.killpg(self.pid, signal.SIGKILL)
                self.wait()
            raise


def run_program(command: Sequence[str], folder: Path | None) -> EndedProgram:
    """Run a program, with its temporary files in ``folder``. An interrupt kills all processes it has started."""
    program = command[0]
    try:
        process = _Started(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=os.environ | ({} if folder is None else {"TMPDIR": str(folder)}),
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"the compiler {program!r} cannot be run: {reason}"
        raise MissingExtraError(Diagnostic(Code.MISSING_TOOL, message, None, "name another: cc='gcc'")) from error
    try:
        output, errors = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()  # until no process holds the pipes: then no more files are written
        raise
    return EndedProgram(program, process.returncode, _text(output), _text(errors))


def _text(data: bytes) -> str:
    return without_colours(data.decode("utf-8", "replace"))
