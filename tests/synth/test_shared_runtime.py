"""What kernels call has one source for C, CUDA and GLSL: it keeps to what they share, and compilers take all of it.

What the functions compute is tested in C, in ``test_math_runtime.py``.
"""

import re
import shutil
import struct
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from tests.synth.runtime_objects import shared_names
from tests.synth.runtime_source import call
from tests.synth.vulkan.spirv import F_ADD, F_SUB, contracted, instructions

from openinfer.synth.targets.cstyle.support import Support
from openinfer.synth.targets.cuda import support as cuda
from openinfer.synth.targets.vulkan import support as vulkan
from openinfer.synth.targets.vulkan.support import with_glsl_numbers

TARGETS = "openinfer.synth.targets"
GLSL_HEAD = "#version 460\n" + "".join(f"#extension {one} : require\n" for one in vulkan.EXTENSIONS)
# What CUDA's headers would say. Clang comes without them.
CUDA_HEAD = """\
#define __device__ __attribute__((device))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
extern "C" {
__device__ unsigned __float_as_uint(float); __device__ int __float_as_int(float);
__device__ float __uint_as_float(unsigned); __device__ float __int_as_float(int);
__device__ long long __double_as_longlong(double); __device__ double __longlong_as_double(long long);
__device__ float fabsf(float); __device__ double fabs(double); __device__ float rintf(float);
__device__ float copysignf(float, float); __device__ double copysign(double, double);
__device__ int __clzll(long long); __device__ float __fsqrt_rn(float); __device__ double __dsqrt_rn(double);
__device__ float __fmaf_rn(float, float, float); __device__ double __fma_rn(double, double, double);
}
"""
NVCC = "nvcc -std=c++17 -arch=sm_90a -fmad=false -Werror all-warnings -rdc=true -ptx -o all.ptx all.cu"
CLANG = (
    "clang -std=c++17 --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70 -ffp-contract=off"
    " -Wall -Werror -Wno-unknown-cuda-version -S -o all.ptx all.cu"
)
TYPE_FLOAT, CONSTANT = 22, 43


def texts(package: str) -> dict[str, str]:
    folder = files(f"{TARGETS}.{package}") / "runtime"
    return {one.name: one.read_text(encoding="ascii") for one in folder.iterdir()}


def words_of(package: str) -> set[str]:
    """The words that a language brings."""
    own = next(text for name, text in texts(package).items() if name.startswith("words."))
    return set(re.findall(r"^//: (\w+)", own, re.MULTILINE))


def compiled(text: str, folder: Path, *options: str) -> list[tuple[int, list[int]]]:
    """The SPIR-V instructions of a compute shader: an opcode and operands each."""
    assert shutil.which("glslangValidator"), "these tests need a compiler of GLSL: apt-get install glslang-tools"
    file, result = folder / "all.comp", folder / "all.spv"
    file.write_text(GLSL_HEAD + text, encoding="ascii")
    command = ["glslangValidator", "-V", "--keep-uncalled", *options, "-o", str(result), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[:3000]
    assert "WARNING" not in ended.stdout, ended.stdout[:3000]
    return list(instructions(result.read_bytes()))


def test_every_language_has_the_same_words() -> None:
    assert words_of("c") == words_of("cuda") == words_of("vulkan")


@pytest.mark.parametrize("name", sorted(texts("cstyle")))
def test_functions_keep_to_what_the_languages_share(name: str) -> None:
    text = re.sub(r"/\*.*?\*/|^//:.*$", "", texts("cstyle")[name], flags=re.DOTALL | re.MULTILINE)
    for what, pattern in {
        "a cast": r"\((?:u?int\d+_t|float|double|bool|unsigned|int|oi_\w+)\)",
        "a pointer": r"[\w)] \*\w|&\w+[,)]|->",
        "what only C has": r"\b(?:union|static|typedef|inline|sizeof|goto|__\w+)\b",
        "what GLSL keeps for itself": r"\b(?:half|fixed|input|output|sample|filter|active|common|partition)\b",
        "a name that a preprocessor of GLSL refuses": r"\b\w+__\w*\b",
    }.items():
        found = re.search(pattern, text)
        assert found is None, (what, found)


def test_glsl_takes_all_of_it(tmp_path: Path) -> None:
    text = vulkan.support_code(shared_names()) + "void main() {}\n"
    for fused, roots in ((0, 8), (1, 0), (0, 12)):
        assert compiled(text, tmp_path, f"-DOI_FUSED={fused}", f"-DOI_ROOTS={roots}")


def test_sums_in_glsl_stay_as_they_are_written(tmp_path: Path) -> None:
    """A product and a sum that became one instruction would round once where others count on two roundings."""
    found = compiled(vulkan.support_code(shared_names()) + "void main() {}\n", tmp_path)
    assert len([opcode for opcode, _ in found if opcode in (F_ADD, F_SUB)]) > 100
    assert not contracted(found)


def test_numbers_in_glsl_are_those_of_the_source(tmp_path: Path) -> None:
    source = "\n".join(texts("cstyle").values())
    hexadecimal = r"\b0x[0-9a-f]+(?:\.[0-9a-f]*)?p[+-]?\d+"
    wanted = {
        "float": sorted(set(re.findall(rf"({hexadecimal})f\b", source))),
        "double": sorted(set(re.findall(rf"({hexadecimal})(?!f)\b", source))),
    }
    assert len(wanted["float"]) > 50
    assert len(wanted["double"]) > 250
    stores = [f"layout(set = 0, binding = {at}) buffer B{at} {{ {name} to{at}[]; }};" for at, name in enumerate(wanted)]
    lines = [
        f"    to{at}[{place}] = {number}{'f' if name == 'float' else ''};"
        for at, (name, numbers) in enumerate(wanted.items())
        for place, number in enumerate(numbers)
    ]
    found = compiled(with_glsl_numbers("\n".join([*stores, "void main() {", *lines, "}", ""])), tmp_path)
    types = {operands[0]: operands[1] for opcode, operands in found if opcode == TYPE_FLOAT}
    constants = [operands for opcode, operands in found if opcode == CONSTANT]
    for name, form in (("float", "<f"), ("double", "<d")):
        own = [rest for kind, _, *rest in constants if types.get(kind) == struct.calcsize(form) * 8]
        bits = {struct.pack(f"<{len(rest)}I", *rest) for rest in own}
        assert bits >= {struct.pack(form, float.fromhex(one)) for one in wanted[name]}


def test_cuda_takes_all_of_it(tmp_path: Path) -> None:
    """With the real compiler where there is one, else with clang, which knows the language but not its headers."""
    text = cuda.support_code(shared_names())
    calls = "".join(call(name, text, "__device__ ") for name in shared_names())
    head, command = ("", NVCC) if shutil.which("nvcc") else (CUDA_HEAD, CLANG)
    (tmp_path / "all.cu").write_text(f"#include <cstdint>\n{head}{text}{calls}", encoding="ascii")
    ended = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    assembly = (tmp_path / "all.ptx").read_text(encoding="utf-8")
    assert assembly.count("oi_") >= len(shared_names())


@pytest.mark.parametrize(
    ("c", "glsl"),
    [
        ("0x1.8p52", "6755399441055744.0lf"),
        ("0x1.62e430p-1f", "0.6931471824645996f"),
        ("-0x1p-1022", "-2.2250738585072014e-308lf"),
        ("0x1p600", f"{2.0**600!r}lf"),
        ("0.1", "0.1lf"),
        ("1e3", "1000.0lf"),
        ("1.0f", "1.0f"),
        ("0x7fffffffu", "0x7fffffffu"),
        ("0xffffffffu", "0xffffffffu"),
        ("0x100000000u", "0x100000000ul"),
        ("4294967296", "4294967296l"),
        ("2147483647", "2147483647"),
        ("a.k2 + x_1e3 - v3", "a.k2 + x_1e3 - v3"),
        ("/* 0x1p3 and 0.5 */ 0.5", "/* 0x1p3 and 0.5 */ 0.5lf"),
        ("uint32_t a[7]", "uint32_t a[7]"),
    ],
)
def test_numbers_of_c_become_those_of_glsl(c: str, glsl: str) -> None:
    assert with_glsl_numbers(c) == glsl


def test_what_a_function_calls_is_found_in_its_text() -> None:
    folders = ((f"{TARGETS}.cstyle", "runtime"), (f"{TARGETS}.c", "runtime"))
    text = Support(folders, dict).code(["oi_from_f8"])
    wanted = ("define oi_u32", "oi_bits_u32_f32(uint32_t", "oi_from_f16(uint16_t", "oi_from_f8(uint8_t")
    order = [text.index(one) for one in wanted]
    assert order == sorted(order)
    assert "oi_to_f16" not in text
