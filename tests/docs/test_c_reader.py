"""The C reader in ``examples/reader-c``, written from ``docs/oinf.md`` alone, agrees with the Python loader."""

import math
import os
import random
import re
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openinfer import DTYPES, ModelLoader, OpenInferError, Tensor
from openinfer.oinf import (
    Bitset,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    ScalarValue,
    TensorSpec,
    UninitializedTensor,
    save_file,
)

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "reader-c" / "oinf_dump.c"
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
FLOATS = ("f8", "f16", "bf16", "f32", "f64")
FILE_SIZE_FIELD = 61

Model = dict[str, Any]


def build(folder: Path, *options: str) -> Path:
    program = folder / "oinf_dump"
    subprocess.run(["gcc", *WARNINGS, *options, "-o", str(program), str(SOURCE)], check=True)
    return program


@pytest.fixture(scope="module")
def dumper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plain"), "-O2")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build in which a bad access, a signed overflow or the like ends the program with a report."""
    folder = tmp_path_factory.mktemp("sanitized")
    return build(folder, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def dump(program: Path, path: Path) -> str | None:
    """What the C reader prints, None where it refuses; a refusal is one line and nothing else."""
    environment = {**os.environ, "ASAN_OPTIONS": "exitcode=99:detect_leaks=0"}
    done = subprocess.run([program, path], capture_output=True, text=True, check=False, env=environment)
    if done.returncode == 0:
        assert done.stderr == ""
        return done.stdout
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(re.escape(str(path)) + r": byte \d+: .+\n", done.stderr)
    return None


# What Python says, in the C reader's words.


def elements(dtype: str, values: Any) -> Iterator[str]:
    for value in np.ravel(values).tolist():
        if dtype not in FLOATS:
            yield str(int(value))
        else:
            yield "nan" if math.isnan(value) else f"{float(value):.9g}"


def fnv1a64(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def metadata_line(name: str, kind: str, value: Any) -> str:
    if kind == "str":
        return f"meta {name} string {value}"
    if kind.startswith("bitset"):
        return f"meta {name} bitset {''.join(elements('bool', value))}"
    dtype, bracket, _ = kind.partition("[")
    shown = f"ndarray {kind.replace(' ', '')}" if bracket else dtype
    return " ".join(["meta", name, shown, *elements(dtype, value)])


def quant_words(quant: QuantParams) -> list[str]:
    scale, zero_point = quant.scale, quant.zero_point
    mode = ["per_tensor", "0"] if scale.axis is None else ["per_channel", str(scale.axis)]
    zero_points = ["none"] if zero_point is None else list(elements("i32", zero_point.values))
    return ["quant", quant.scheme, *mode, "scales", *elements("f32", scale.values), "zero_points", *zero_points]


def tensor_line(model: ModelLoader, name: str) -> str:
    info = model.tensors[name]
    words = ["tensor", name, f"{info.dtype.name}[{','.join(map(str, info.shape))}]"]
    data = model.load(name).raw().tobytes() if info.has_data else b""
    words += [str(len(data)), fnv1a64(data) if info.has_data else "none"]
    words += quant_words(info.quant) if info.quant else []
    if info.has_data:
        words += ["values", *elements(info.dtype.name, np.ravel(model.load(name).to_numpy())[:4])]
    return " ".join(words)


def expected(path: Path) -> str:
    with ModelLoader.open(path) as model:
        lines = [f"size {name} {value}" for name, value in model.sizevars.items()]
        kinds = {name: info.type_name for name, info in model.metadata_info.items()}
        lines += [metadata_line(name, kinds[name], value) for name, value in model.metadata.items()]
        lines += [tensor_line(model, name) for name in model.tensors]
    return "".join(f"{line}\n" for line in lines)


# The models.


def some_values(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Values all over the range of a dtype."""
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        return rng.choice([0.0, -0.0, 1.0, -1.5, 0.25, 2.0**-14, -(2.0**12), math.inf, -math.inf, math.nan], shape)
    if dtype == "t1":
        return rng.choice([-1, 1], shape)
    if dtype == "t2":
        return rng.integers(-1, 1, shape, endpoint=True)
    if dtype == "bool":
        return rng.choice([False, True], shape)
    bits = int(dtype[1:])
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.integers(low, high, shape, np.uint64 if dtype[0] == "u" else np.int64, endpoint=True)


def no_entries() -> Model:
    return {"tensors": {}}


def every_dtype() -> Model:
    tensors: Model = {}
    metadata: Model = {}
    for seed, dtype in enumerate(DTYPES):
        tensors[f"matrix.{dtype}"] = TensorSpec(some_values(dtype, (3, 5), seed), dtype)
        tensors[f"scalar-{dtype}"] = TensorSpec(some_values(dtype, (), seed), dtype)
        metadata[f"number_{dtype}"] = ScalarValue(some_values(dtype, (), seed).item(), dtype)
        metadata[f"array_{dtype}"] = Tensor.from_numpy(some_values(dtype, (3, 1, 3), seed), dtype)
    return {"tensors": tensors, "metadata": metadata}


def every_small_float() -> Model:
    """All codes of f8, f16 and bf16, and the edges of f32 and f64."""
    halves = np.arange(2**16, dtype=np.uint16)
    metadata = {
        "f8": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2),
        "f16": halves.view(np.float16),
        "bf16": halves.view(ml_dtypes.bfloat16),
    }
    for dtype in (np.float32, np.float64):
        edges = np.finfo(dtype)
        metadata[dtype.__name__] = np.array([edges.max, -edges.tiny, edges.smallest_subnormal, edges.eps, 0.1], dtype)
    return {"tensors": {}, "metadata": metadata}


def every_metadata_kind() -> Model:
    metadata: Model = {f"bits{n}": Bitset([k % 3 == 0 for k in range(n)]) for n in (0, 1, 7, 8, 9, 64, 65)}
    metadata |= {f"text{n}": "".join(chr(0x20 + k % 95) for k in range(n)) for n in (0, 1, 3, 4, 5, 12, 200)}
    metadata |= {"yes": True, "no": False, "small": 3, "large": 2**40, "negative": -(2**63), "real": 0.1}
    metadata |= {"scalar": np.array(2.5), "empty": np.zeros((0, 3), np.float32), "cube": np.arange(24).reshape(2, 3, 4)}
    return {"tensors": {}, "metadata": metadata, "sizevars": {"N": 0, "Z.-_9": 2**64 - 1, "n" * 255: 1}}


def every_shape() -> Model:
    shapes: list[tuple[int, ...]] = [(), (0,), (1,), (2, 0, 3), (7, 3), (1,) * 16]
    tensors: Model = {f"u8.{len(s)}.{sum(s)}": np.arange(math.prod(s), dtype=np.uint8).reshape(s) for s in shapes}
    tensors |= {f"i2.{n}": TensorSpec(some_values("i2", (n,), n), "i2") for n in range(6)}
    tensors |= {f"declared.{len(s)}.{sum(s)}": UninitializedTensor("u1", s) for s in shapes}
    return {"tensors": tensors, "sizevars": {"B": 2, "A": 1}}


def every_quantization() -> Model:
    one, three = QuantScale.per_tensor(0.1), QuantScale.per_channel(1, [0.5, 1e-30, 3e38])
    symmetric, channels = QuantParams("symmetric", one), QuantParams("symmetric", three)
    shifted = QuantParams("asymmetric", one, QuantZeroPoint.per_tensor(-128))
    shifts = QuantParams("asymmetric", three, QuantZeroPoint.per_channel(1, [-(2**31), 0, 2**31 - 1]))
    tensors: Model = {}
    for dtype in ("i8", "u8", "i4", "u2", "t1"):
        values = some_values(dtype, (2, 3), 1)
        for name, quant in (("s", symmetric), ("sc", channels), ("a", shifted), ("ac", shifts)):
            tensors[f"{dtype}.{name}"] = TensorSpec(values, dtype, quant=quant)
    tensors["scalar"] = TensorSpec(np.int8(3), quant=symmetric)
    tensors["none"] = TensorSpec(np.zeros((0, 3), np.int8), quant=shifts)
    tensors["declared"] = UninitializedTensor("i8", (2, 3), quant=shifts)
    tensors["plain"] = np.arange(3)
    return {"tensors": tensors}


def small_model(version: int = 2) -> Model:
    """A bit of everything in few bytes; version 1 has no quantization."""
    shifts = QuantParams("asymmetric", QuantScale.per_channel(0, [1.0, 2.0]), QuantZeroPoint.per_channel(0, [3, -4]))
    return {
        "tensors": {
            "q": TensorSpec([[1, -1, 0], [0, 1, 1]], "t2", quant=shifts if version == 2 else None),
            "f": np.array([True, False, True]),
            "u": UninitializedTensor("f16", (2, 0)),
        },
        "sizevars": {"B": 4, "D": 16},
        "metadata": {
            "a": np.array([1, 2, 3], ml_dtypes.uint4),
            "b": Bitset([True] * 11),
            "i": ScalarValue(-1, "i4"),
            "s": "hello",
        },
    }


def write(path: Path, model: Model, version: int = 2) -> Path:
    save_file(path, **model, version=version)
    return path


# The comparisons.


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("author", [no_entries, every_dtype, every_small_float, every_metadata_kind, every_shape])
def test_the_c_reader_prints_what_python_reads(
    dumper: Path, tmp_path: Path, author: Callable[[], Model], version: int
) -> None:
    path = write(tmp_path / "model.oinf", author(), version)
    assert dump(dumper, path) == expected(path)


def test_the_c_reader_prints_the_quantization_that_python_reads(dumper: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "model.oinf", every_quantization())
    assert dump(dumper, path) == expected(path)


def test_the_c_reader_reads_the_committed_model(dumper: Path) -> None:
    path = ROOT / "res" / "models" / "mlp_regression.oinf"
    assert dump(dumper, path) == expected(path)


def python_accepts(path: Path) -> bool:
    try:
        with ModelLoader.open(path) as model:
            for name, info in model.tensors.items():
                if info.has_data:
                    model.load(name)
    except OpenInferError:
        return False
    return True


def agreed(path: Path, programs: Iterable[Path], mutants: Iterable[tuple[str, bytes]]) -> list[bool]:
    """Whether each mutant was accepted; all programs and Python must say the same of it, and print the same."""
    verdicts = []
    for what, content in mutants:
        path.write_bytes(content)
        accepted = python_accepts(path)
        for program in programs:
            printed = dump(program, path)
            assert (printed is not None) == accepted, f"{what}: Python {'accepts' if accepted else 'refuses'} it"
            assert printed is None or printed == expected(path), what
        verdicts.append(accepted)
    return verdicts


def with_size(content: bytes) -> bytes:
    """The same file with a header that knows its size."""
    if len(content) < FILE_SIZE_FIELD + 8:
        return content
    return content[:FILE_SIZE_FIELD] + struct.pack("<Q", len(content)) + content[FILE_SIZE_FIELD + 8 :]


def test_every_truncation_is_refused(dumper: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "model.oinf", small_model())
    whole = path.read_bytes()
    verdicts = agreed(path, [dumper], ((f"first {n} bytes", whole[:n]) for n in range(len(whole))))
    assert not any(verdicts)


def test_both_readers_agree_on_truncations_that_hide_themselves(dumper: Path, sanitized: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "model.oinf", small_model())
    whole = path.read_bytes()
    mutants = ((f"{n} bytes", with_size((whole + bytes(9))[:n])) for n in range(len(whole) + 10))
    verdicts = agreed(path, [dumper, sanitized], mutants)
    assert verdicts[len(whole) - 1] is False
    assert verdicts[len(whole)] is True


@pytest.mark.parametrize("version", [1, 2])
def test_both_readers_agree_on_changed_bytes(dumper: Path, sanitized: Path, tmp_path: Path, version: int) -> None:
    path = write(tmp_path / "model.oinf", small_model(version), version)
    whole = path.read_bytes()
    rng = random.Random(version)
    mutants = []
    for _ in range(300):
        at = rng.randrange(len(whole))
        new = rng.choice([whole[at] ^ 1 << rng.randrange(8), (whole[at] + 1) % 256, rng.randrange(256), 255])
        mutants.append((f"byte {at} = {new}", whole[:at] + bytes([new]) + whole[at + 1 :]))
    verdicts = agreed(path, [dumper, sanitized], mutants)
    assert any(verdicts)
    assert not all(verdicts)
