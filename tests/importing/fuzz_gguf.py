"""Mutants of GGUF files: ``python -m tests.importing.fuzz_gguf [COUNT] [SEED]``. Only coded errors may come out."""

import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.importing.gguf_files import Tiny

from openinfer.errors import OpenInferError
from openinfer.importing import import_gguf

SOURCES = (
    Tiny(width=32, heads=2, groups=1, hidden=32, vocabulary=8, formats={"": "Q4_0", "token_embd.": "Q8_0"}),
    Tiny("qwen3", layers=1, width=32, heads=2, hidden=32, vocabulary=8, head_norms=True, formats={"": "Q5_1 F16"}),
)
INTERESTING = (0, 1, 2, 3, 7, 8, 9, 127, 255, 2**16, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """A file with a few bytes, words or runs changed, most of them where the tables are."""
    made = bytearray(data)
    head = data.index(b"blk.0.ffn_down.weight") + 64
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, head if rng.random() < 0.9 else len(made) - 8))
        match int(rng.integers(0, 6)):
            case 0:
                made[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                made[at] = int(rng.integers(0, 256))
            case 2:
                width = int(rng.choice([4, 8]))
                value = INTERESTING[int(rng.integers(0, len(INTERESTING)))] % (1 << 8 * width)
                made[at : at + width] = value.to_bytes(width, "little")
            case 3:
                del made[at : at + int(rng.integers(1, 16))]
            case 4:
                made[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 16)), np.uint8))
            case _:
                del made[max(at, 16) if rng.random() < 0.3 else len(made) - int(rng.integers(1, 64)) :]
        if len(made) < 16:
            break
        head = min(head, len(made) - 8)
    return bytes(made)


@dataclass
class Outcome:
    """What became of the mutants."""

    imported: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    others: list[str] = field(default_factory=list)
    """What was neither: each is a bug."""


def fuzz(count: int, seed: int = 0) -> Outcome:
    """Import mutants, one after the other."""
    rng, found = np.random.default_rng(seed), Outcome()
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "mutant.gguf", Path(folder) / "out"
        sources = []
        for tiny in SOURCES:
            tiny.write(path)
            sources.append(path.read_bytes())
        for number in range(count):
            data = mutant(sources[number % len(sources)], rng)
            path.write_bytes(data)
            began = time.perf_counter()
            try:
                import_gguf(path, out)
                found.imported += 1
            except OpenInferError as error:
                found.refused.update({one.code.value for one in error.diagnostics})
                if out.exists() and not found.imported:
                    found.others.append(f"mutant {number}: refused, but something was written")
            except Exception as error:  # noqa: BLE001  (the point of it)
                found.others.append(f"mutant {number}: {type(error).__name__}: {error}")
            found.slowest = max(found.slowest, time.perf_counter() - began)
    return found


if __name__ == "__main__":
    arguments = [int(one) for one in sys.argv[1:3]]
    outcome = fuzz(*(arguments or [1000]))
    codes = ", ".join(f"{code} {times}" for code, times in sorted(outcome.refused.items()))
    print(f"imported {outcome.imported}, refused {codes}; slowest {outcome.slowest:.2f} s")
    print("\n".join(outcome.others[:20]) or "nothing else")
    sys.exit(bool(outcome.others))
