"""Hostile GGUF files: mutants and claims give coded errors, in bounded time and memory."""

import struct
import tracemalloc
from pathlib import Path

import pytest
from tests.importing.fuzz_gguf import fuzz
from tests.importing.gguf_files import Tiny, gguf_bytes

from openinfer.errors import Code, ImportingError
from openinfer.importing import import_gguf


def test_mutants_give_coded_errors_or_models() -> None:
    found = fuzz(300)
    assert found.others == []
    assert found.refused["E760"] > 50


def claims() -> dict[str, bytes]:
    """Small files that claim to be large."""
    start = b"GGUF" + struct.pack("<I", 3)
    most = 2**64 - 1
    text = struct.pack("<QQ", 0, 1) + struct.pack("<Q", 1) + b"k"
    tensor = struct.pack("<QQ", 1, 0) + struct.pack("<Q", 1) + b"t"
    return {
        "tensors": start + struct.pack("<QQ", most, 0),
        "entries": start + struct.pack("<QQ", 0, most),
        "a text": start + text + struct.pack("<IQ", 8, most),
        "an array": start + text + struct.pack("<IIQ", 9, 5, most),
        "an array of texts": start + text + struct.pack("<IIQ", 9, 8, 1 << 40),
        "an array in an array": start + text + struct.pack("<IIQ", 9, 9, 1),
        "a name": start + struct.pack("<QQQ", 0, 1, most),
        "dimensions": start + tensor + struct.pack("<I", 2**32 - 1),
        "elements": start + tensor + struct.pack("<IQQIQ", 2, 1 << 60, 1 << 60, 0, 0),
        "an offset": start + tensor + struct.pack("<IQIQ", 1, 8, 0, (most // 32) * 32),
        "an alignment": gguf_bytes({"general.alignment": 3}, {}),
        "nothing": b"",
        "version 1": b"GGUF" + struct.pack("<I", 1) + bytes(100),
        "big-endian": b"GGUF" + struct.pack(">I", 3) + bytes(100),
    }


@pytest.mark.parametrize("what", claims())
def test_a_claim_is_refused_without_memory_for_it(tmp_path: Path, what: str) -> None:
    path = tmp_path / "claim.gguf"
    path.write_bytes(claims()[what].ljust(200 if what not in ("nothing", "an alignment") else 0, b"\0"))
    tracemalloc.start()
    try:
        with pytest.raises(ImportingError) as caught:
            import_gguf(path, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.diagnostics[0].code is Code.BAD_IMPORT_FILE
    assert not (tmp_path / "out").exists()


def test_a_file_that_ends_early_is_refused_wherever_it_does(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    Tiny(layers=1, width=32, heads=1, groups=1, hidden=32, vocabulary=8).write(path)
    data = path.read_bytes()
    for length in [*range(0, 2000, 7), *range(2000, len(data), 997)]:
        path.write_bytes(data[:length])
        with pytest.raises(ImportingError):
            import_gguf(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
