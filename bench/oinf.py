"""Model files against the safetensors package, on the same tensors, in one run: ``make bench-oinf``.

Every comparison interleaves the two sides round by round and reports medians; the ratio is what counts. Memory figures
are peaks of fresh processes. Nothing here is asserted: machines differ, and the table says what was measured.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import safetensors
import safetensors.numpy

from openinfer import ModelLoader, dtype_of
from openinfer.dtypes import pack, unpack
from openinfer.oinf import save_file
from openinfer.oinf.package import Package, TensorEntry
from openinfer.oinf.writer import write_package

MIB = 1 << 20
Row = dict[str, Any]


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each action, one round of all before the next."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(seconds(action))
    return {name: median(found) for name, found in times.items()}


def bench_write(folder: Path, rounds: int) -> list[Row]:
    """Throughput into the page cache; our fsync calls are timed apart."""
    rng = np.random.default_rng(0)
    tensors = {f"layer.{i}.weight": rng.random((2048, 2048), np.float32) for i in range(16)}
    nbytes = sum(array.nbytes for array in tensors.values())
    real_fsync = os.fsync
    ours: list[float] = []
    theirs: list[float] = []
    synced: list[float] = []
    for _ in range(rounds):
        calls: list[float] = []

        def timed(descriptor: int, calls: list[float] = calls) -> None:
            calls.append(seconds(lambda: real_fsync(descriptor)))

        with patch("os.fsync", timed):
            total = seconds(lambda: save_file(folder / "w.oinf", tensors))
        ours.append(total - sum(calls))
        synced.append(sum(calls))
        theirs.append(seconds(lambda: safetensors.numpy.save_file(tensors, folder / "w.safetensors")))
        with open(folder / "w.safetensors", "rb") as file:
            os.fsync(file.fileno())
    ratio = median(theirs) / median(ours)
    return [
        {
            "what": f"write {nbytes // MIB} MiB, without fsync",
            "ours": f"{nbytes / median(ours) / 1e9:.2f} GB/s",
            "safetensors": f"{nbytes / median(theirs) / 1e9:.2f} GB/s",
            "ratio": f"{ratio:.2f}x throughput",
            "target": ">= 0.8x",
            "met": ratio >= 0.8,
        },
        {"what": "fsync of that file and its folder", "ours": f"{median(synced) * 1e3:.0f} ms"},
    ]


def bench_open(folder: Path, rounds: int) -> list[Row]:
    tensors = {f"model.layers.{i:05d}.weight": np.zeros((4, 4), np.float32) for i in range(10_000)}
    save_file(folder / "many.oinf", tensors)
    safetensors.numpy.save_file(tensors, folder / "many.safetensors")

    def ours() -> list[str]:
        with ModelLoader.open(folder / "many.oinf") as model:
            return list(model.tensors)

    def theirs() -> list[str]:
        with safetensors.safe_open(folder / "many.safetensors", "np") as file:
            return list(file.keys())

    assert sorted(ours()) == sorted(theirs())
    times = interleaved({"ours": ours, "theirs": theirs}, 3 * rounds)
    ratio = times["ours"] / times["theirs"]
    return [
        {
            "what": "open and list 10,000 tensors",
            "ours": f"{times['ours'] * 1e3:.1f} ms",
            "safetensors": f"{times['theirs'] * 1e3:.1f} ms",
            "ratio": f"{ratio:.2f}x time",
            "target": "<= 4x",
            "met": ratio <= 4,
        }
    ]


def _loaded(model: ModelLoader) -> Any:
    return model.load("b").to_numpy()


def bench_first_access(folder: Path, rounds: int) -> list[Row]:
    """The first tensor taken from a freshly opened file."""
    rows = []
    for label, count in (("64 KiB", 1 << 14), ("16 MiB", 1 << 22)):
        tensors = {name: np.arange(count, dtype=np.float32) for name in ("a", "b", "c")}
        save_file(folder / "three.oinf", tensors)
        safetensors.numpy.save_file(tensors, folder / "three.safetensors")
        ours, theirs, zero_copy = [], [], True
        for _ in range(10 * rounds):
            with ModelLoader.open(folder / "three.oinf") as model:
                ours.append(seconds(partial(_loaded, model)))
                array = model.load("b").to_numpy()
                zero_copy &= np.shares_memory(array, model.load("b").storage) and not array.flags.owndata
            with safetensors.safe_open(folder / "three.safetensors", "np") as file:
                theirs.append(seconds(partial(file.get_tensor, "b")))
        ratio = median(ours) / median(theirs)
        rows.append(
            {
                "what": f"first access to a tensor of {label}",
                "ours": f"{median(ours) * 1e6:.0f} us, zero-copy: {zero_copy}",
                "safetensors": f"{median(theirs) * 1e6:.0f} us",
                "ratio": f"{ratio:.2f}x time",
                "target": "<= 1.5x, zero-copy",
                "met": ratio <= 1.5 and zero_copy,
            }
        )
    return rows


def bench_packing(rounds: int) -> list[Row]:
    count = 1 << 24
    rng = np.random.default_rng(0)
    rows = []
    for name in ("i4", "i2", "i1", "t1", "u4", "u2", "u1", "t2"):
        dtype = dtype_of(name)
        values = dtype.values or range(int(dtype.minimum), int(dtype.maximum) + 1)
        elements = rng.choice(np.array(list(values), np.int8), count).astype(dtype.array)
        stream = pack(elements, dtype)
        assert np.array_equal(unpack(stream, dtype, 0, count), elements)
        actions: dict[str, Callable[[], object]] = {
            "pack": partial(pack, elements, dtype),
            "unpack": partial(unpack, stream, dtype, 0, count),
        }
        times = interleaved(actions, rounds)
        rates = {action: count / found / 1e6 for action, found in times.items()}
        rows.append(
            {
                "what": f"{name}: pack / unpack",
                "ours": f"{rates['pack']:.0f} / {rates['unpack']:.0f} M elements/s",
                "target": ">= 200 M/s",
                "met": min(rates.values()) >= 200,
            }
        )
    return rows


class Ramp:
    """Four gigabytes of values, made as they are written."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._piece = np.linspace(-1, 1, 4 * MIB, dtype=np.float32)

    def chunks(self) -> Iterator[Any]:
        for start in range(0, self.nbytes, self._piece.nbytes):
            yield self._piece[: min(self._piece.nbytes, self.nbytes - start) // 4]


# The status file of the process itself: getrusage would report the parent's peak from before the exec.
STATUS = """
import re, sys
def status(field):
    with open("/proc/self/status") as file:
        return int(re.search(field + r":\\s+(\\d+) kB", file.read()).group(1))
"""

OPEN_AND_MEASURE = (
    STATUS
    + """
from openinfer import ModelLoader
before = status("VmRSS")
model = ModelLoader.open(sys.argv[1])
names = list(model.tensors)
print(status("VmRSS") - before)
"""
)

PACK_AND_MEASURE = (
    STATUS
    + """
from openinfer.oinf.pack import PackOptions, pack
pack([sys.argv[1]], sys.argv[2], PackOptions(quantize=["w0=i8:symmetric:per_channel:axis=0"], cast=["w1=bf16"]))
print(status("VmHWM"))
"""
)


def kilobytes_of(program: str, *arguments: Path) -> int:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


def bench_memory(folder: Path, gigabytes: int) -> list[Row]:
    nbytes = gigabytes << 30
    shape = (4096, nbytes // 4 // 4096 // 4)
    entries = [TensorEntry(f"w{i}", dtype_of("f32"), shape, Ramp(nbytes // 4)) for i in range(4)]
    model, weights, packed = folder / "big.oinf", folder / "big.safetensors", folder / "packed.oinf"
    write_package(model, Package.of({}, {}, entries))
    opened = kilobytes_of(OPEN_AND_MEASURE, model) / 1024
    model.unlink()
    _write_safetensors(weights, shape, nbytes // 4)
    start = time.perf_counter()
    peak = kilobytes_of(PACK_AND_MEASURE, weights, packed) / 1024
    took = time.perf_counter() - start
    return [
        {
            "what": f"memory growth on opening {gigabytes} GiB",
            "ours": f"{opened:.1f} MiB",
            "target": "< 50 MB",
            "met": opened * 1.048576 < 50,
        },
        {
            "what": f"peak memory of packing {gigabytes} GiB (i8, bf16, f32)",
            "ours": f"{peak:.0f} MiB in {took:.0f} s",
            "target": "< 400 MB",
            "met": peak * 1.048576 < 400,
        },
    ]


def _write_safetensors(path: Path, shape: tuple[int, ...], nbytes: int) -> None:
    header = {
        f"w{i}": {"dtype": "F32", "shape": shape, "data_offsets": [i * nbytes, (i + 1) * nbytes]} for i in range(4)
    }
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(4):
            for chunk in Ramp(nbytes).chunks():
                file.write(chunk)


def print_table(rows: list[Row]) -> None:
    columns = ("what", "ours", "safetensors", "ratio", "target", "met")
    table = [columns, *(tuple(_cell(row.get(column)) for column in columns) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return ""
    return ("yes" if value else "NO") if isinstance(value, bool) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gigabytes", type=int, default=4, help="size of the memory test; 0 leaves it out")
    options = parser.parse_args()
    folder = Path("build/bench")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = [
        *bench_write(folder, options.rounds),
        *bench_open(folder, options.rounds),
        *bench_first_access(folder, options.rounds),
        *bench_packing(options.rounds),
        *(bench_memory(folder, options.gigabytes) if options.gigabytes else []),
    ]
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "oinf.json").write_text(json.dumps(rows, indent=2))
    print_table(rows)


if __name__ == "__main__":
    main()
