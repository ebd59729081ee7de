"""The same model gives the same bytes, whatever the process around it looks like."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

AT_ONCE = 2
AUTHOR = """
import hashlib, random, sys, time
from dataclasses import make_dataclass, field
from pathlib import Path
import numpy as np
from openinfer.oinf import (Bitset, QuantParams, QuantScale, QuantZeroPoint, ScalarValue, SizeVar, TensorSpec,
                            UninitializedTensor, Writer, dataclass_to_oinf, save_file, write_oinf)

sizevars = {"B": 4, "D": 16, "H": 2**63}
metadata = {"mode": "clamp_up", "on": True, "rate": 0.1, "mask": Bitset([1, 0, 1]), "axes": [3, 1, 2],
            "tag": ScalarValue(3, "i64"), "grid": [[1.0, 0.5], [0.25, 0.0]]}
quant = QuantParams("asymmetric", QuantScale.per_channel(0, [0.5, 0.25]), QuantZeroPoint.per_channel(0, [1, -1]))
tensors = {"w.%d" % at: TensorSpec(np.arange(at, at + 6).reshape(2, 3), dtype) for at, dtype in
           enumerate(("f32", "bf16", "f8", "u4", "i8", "f16"))}
tensors["q"] = TensorSpec([[1, 2], [3, 4]], "i8", quant=quant)
tensors["later"] = UninitializedTensor("f32", (4, 4))
tensors["none"] = np.empty((0, 3), np.float32)

def shuffled(entries):
    names = list(entries)
    random.Random(int(sys.argv[1])).shuffle(names)
    return {name: entries[name] for name in names}

sizevars, metadata, tensors = shuffled(sizevars), shuffled(metadata), shuffled(tensors)
save_file("saved.oinf", tensors, sizevars, metadata)
with Writer("written.oinf") as writer:
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    for name, value in metadata.items():
        writer.add_metadata(name, value)
    for name, value in sizevars.items():
        writer.add_sizevar(name, value)
fields = shuffled({**{name: SizeVar(value) for name, value in sizevars.items()}, **metadata})
kinds = [(name, object, field(default_factory=lambda value=value: value)) for name, value in fields.items()]
instance = make_dataclass("Model", kinds)()
instance.tensors = tensors
write_oinf(instance, "authored.oinf")
digests = [hashlib.sha256(Path(name + ".oinf").read_bytes()).hexdigest() for name in ("saved", "written", "authored")]
digests.append(hashlib.sha256(dataclass_to_oinf(instance)).hexdigest())
print(*digests)
"""
PLACES = (
    {"LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": "0"},
    {"LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Kathmandu", "SOURCE_DATE_EPOCH": "4102444800"},
    {"LANG": "tr_TR.UTF-8", "TZ": "America/St_Johns", "PYTHONUTF8": "1", "COLUMNS": "20"},
    {"LC_ALL": "POSIX", "TZ": "Antarctica/Troll", "USER": "somebody", "HOME": "/nonexistent"},
)
SEEDS = range(20)


def _start(seed: int, folder: Path) -> "subprocess.Popen[str]":
    """Author the model with this hash seed and insertion order, in a folder, locale and time zone of its own."""
    place = folder / ("deep/" * (seed % 3) + f"run{seed}")
    place.mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": str(seed), **PLACES[seed % len(PLACES)]}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return subprocess.Popen(
        [sys.executable, "-c", AUTHOR, str(seed)], cwd=place, env=environment, stdout=subprocess.PIPE, text=True
    )


@cache
def _digests() -> dict[int, list[str]]:
    found = {}
    with TemporaryDirectory() as folder:
        for first in range(0, len(SEEDS), AT_ONCE):
            running = {seed: _start(seed, Path(folder)) for seed in SEEDS[first : first + AT_ONCE]}
            for seed, process in running.items():
                output, _ = process.communicate(timeout=60)
                assert process.returncode == 0
                found[seed] = output.split()
    return found


def test_twenty_hash_seeds_orders_folders_locales_and_clocks_give_one_file() -> None:
    digests = _digests()
    assert len(digests) == len(SEEDS)
    assert {digest for found in digests.values() for digest in found} == {digests[0][0]}
    assert all(len(found) == 4 for found in digests.values())
