"""The C runtime's functions of floats as functions of NumPy arrays, through a compiler."""

import ctypes
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openinfer.synth.targets.c.support import support_code

HEAD = "#include <stdbool.h>\n#include <stdint.h>\n#include <stddef.h>\n"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno", "-fPIC"]

EXPONENTIAL = ["exp", "exp2", "expm1", "sinh", "cosh", "tanh", "erf", "erfc", "gelu"]
LOGARITHMIC = ["log", "log2", "log10", "log1p", "asinh", "acosh", "atanh"]
TRIGONOMETRIC = ["sin", "cos", "tan", "asin", "acos", "atan"]
UNARY = [*EXPONENTIAL, *LOGARITHMIC, *TRIGONOMETRIC]
BINARY = ["atan2", "pow", "fmod", "nextafter"]
ALL = [*UNARY, *BINARY, "fma"]
BITS = ["oi_bits_f32_u32", "oi_bits_u32_f32", "oi_bits_f64_u64", "oi_bits_u64_f64"]
C_TYPES = {"f32": "float", "f64": "double"}
Array = np.ndarray[Any, np.dtype[Any]]
Compiled = Callable[[str, str, tuple[Array, ...]], Array]


def arity(name: str) -> int:
    return 3 if name == "fma" else 2 if name in BINARY else 1


def loop(name: str, dtype: str) -> str:
    """A C function that applies one of the runtime to arrays."""
    own, letters = C_TYPES[dtype], "abc"[: arity(name)]
    operands = "".join(f"const {own} *restrict {letter}, " for letter in letters)
    head = f"void each_{name}_{dtype}({operands}{own} *restrict y, int64_t n)"
    call = f"oi_{name}_{dtype}({', '.join(f'{letter}[i]' for letter in letters)})"
    return f"{head};\n{head}\n{{\n    for (int64_t i = 0; i < n; i++)\n        y[i] = {call};\n}}\n"


def source(names: Iterable[str], dtypes: Sequence[str] = ("f32", "f64")) -> str:
    pairs = [(name, dtype) for name in names for dtype in dtypes]
    loops = [loop(name, dtype) for name, dtype in pairs]
    return HEAD + support_code([f"oi_{name}_{dtype}" for name, dtype in pairs] + BITS) + "".join(loops)


def compile_c(text: str, folder: Path, options: Sequence[str], cc: Sequence[str] = ("gcc",)) -> tuple[Path, str]:
    """The shared library of a C text, and what the compiler said."""
    file, library = folder / "runtime.c", folder / "runtime.so"
    file.write_text(text, encoding="ascii")
    # Without the C library and with all symbols required, a call into it does not link.
    command = [*cc, *FLAGS, *options, "-shared", "-nostdlib", "-Wl,-z,defs", "-o", str(library), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    return library, ended.stderr


def functions(folder: Path, options: Sequence[str], names: Iterable[str] = ALL) -> Compiled:
    """Calls of the compiled functions by name and dtype."""
    library = ctypes.CDLL(str(compile_c(source(names), folder, options)[0]))

    def call(name: str, dtype: str, operands: tuple[Array, ...]) -> Array:
        kind = np.float32 if dtype == "f32" else np.float64
        arrays = [np.ascontiguousarray(one, kind) for one in operands]
        result = np.empty_like(arrays[0])
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in (*arrays, result)]
        getattr(library, f"each_{name}_{dtype}")(*pointers, ctypes.c_int64(result.size))
        return result

    return call
