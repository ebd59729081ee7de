"""llama.cpp, built from the source in the package ``llama-cpp-python``: cmake and some minutes, once."""

import subprocess
import sys
from pathlib import Path

from examples.packages import PACKAGES, package

LLAMA = "llama-cpp-python==0.3.36"
HOME = Path("build/bench/chat/llama.cpp")
TARGETS = ("llama-bench", "llama")
"""Its benchmark, and the library."""


def source() -> Path:
    """The sources, fetched unless they are there."""
    return next(package(LLAMA, PACKAGES).glob("*/vendor/llama.cpp"))


def built() -> Path:
    """The folder of its programs and libraries, built unless they are there."""
    programs = HOME / "bin"
    if not (programs / "llama-bench").exists() or not (programs / "libllama.so").exists():
        print(f"building llama.cpp of {LLAMA} in {HOME}", file=sys.stderr, flush=True)
        options = ["-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF"]
        options += ["-DLLAMA_BUILD_TOOLS=ON", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON"]
        make = ["cmake", "--build", str(HOME), "--target", *TARGETS, "-j", "2"]
        for command in (["cmake", "-S", str(source()), "-B", str(HOME), *options], make):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return programs
