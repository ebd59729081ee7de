"""Array files from anywhere: read as they are, or refused with a typed error that costs nothing."""

import io
import os
import random
import struct
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openinfer.cli.arrays import open_array, require_writable, split_place, write_archive, write_array
from openinfer.errors import Code, OpenInferError


def npy(header: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin-1") if isinstance(header, str) else header
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def described(descr: str, shape: str, data: bytes = b"") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n", data)


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def code_of(path: Path, key: str | None = None) -> Code | None:
    """The code with which a file is refused, or None for one whose values can be read."""
    try:
        with ExitStack() as resources:
            found = open_array(str(path), key, "x", resources)
            found.values(0, found.size)
    except OpenInferError as error:
        return error.code
    return None


HOSTILE = {
    "empty": b"",
    "text": b"version https://git-lfs.github.com/spec/v1",
    "magic only": b"\x93NUMPY",
    "unknown version": npy("{}", version=(9, 9)),
    "cut off in its header": saved(np.zeros(4))[:40],
    "cut off in its data": saved(np.zeros(4))[:-1],
    "longer than it says": saved(np.zeros(4)) + b"\0",
    "2**60 elements": described("'<f4'", "(1152921504606846976,)"),
    "an extent beyond 64 bits": described("'<f4'", f"({'9' * 30},)"),
    "a product beyond 64 bits": described("'<f4'", "(4294967296, 4294967296, 4294967296)"),
    "a negative extent": described("'<f4'", "(-1,)"),
    "two negative extents": described("'<f4'", "(-2, -2)", bytes(16)),
    "an extent that is no number": described("'<f4'", "('a',)"),
    "a shape that is no tuple": described("'<f4'", "4"),
    "no dtype": described("'<q9'", "(1,)"),
    "no dictionary": npy("[1, 2, 3]\n"),
    "code": npy("__import__('os').system('true')\n"),
    "nested brackets": npy("(" * 9000 + "\n"),
    "nested minus signs": npy("-" * 9000 + "1\n"),
    "a header of 4 GiB": b"\x93NUMPY\x02\x00" + b"\xff" * 4,
    "a header of 60 kB": npy("{" + " " * 60_000 + "}"),
    "no UTF-8": npy(b"{'descr': '\xff\xfe'}\n"),
    "a bool that is neither": described("'|b1'", "(2,)", b"\x01\x02"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_array_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(HOSTILE[name])
    assert code_of(path) is Code.BAD_WEIGHTS_FILE
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", HOSTILE[name])
    assert code_of(tmp_path / "x.npz") is Code.BAD_WEIGHTS_FILE


class Evil:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("pwned",))


UNSUPPORTED = {
    "pickled objects": np.array([Evil()], object),
    "text": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "complex numbers": np.zeros(2, complex),
    "records": np.zeros(2, [("a", "f4")]),
    "bf16 as NumPy writes it": np.zeros(2, ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_array_that_no_dtype_stands_for_is_refused_unread(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.npy"
    path.write_bytes(saved(UNSUPPORTED[name]))
    assert code_of(path) is Code.UNSUPPORTED_ARRAY
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", saved(UNSUPPORTED[name]))
    assert code_of(tmp_path / "x.npz") is Code.UNSUPPORTED_ARRAY
    assert not (tmp_path / "pwned").exists()


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    os.mkfifo(tmp_path / "pipe.npz")
    for name in ("missing.npy", "missing.npz", "pipe.npy", "pipe.npz", ".", "a\0b.npy"):
        assert code_of(tmp_path / name) is Code.NOT_A_MODEL_FILE


def test_archives_that_are_broken_or_lie_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    good = io.BytesIO()
    np.savez(good, x=np.arange(6.0))
    for data in (b"", b"PK\x03\x04", good.getvalue()[:-4], good.getvalue()[:100]):
        path.write_bytes(data)
        assert code_of(path) is Code.BAD_WEIGHTS_FILE
    path.write_bytes(good.getvalue().replace(np.float64(3).tobytes(), np.float64(9).tobytes()))
    assert code_of(path) is Code.BAD_WEIGHTS_FILE  # its checksum
    with zipfile.ZipFile(path, "w"):
        pass
    assert code_of(path) is Code.NO_SUCH_ENTRY


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_mutants_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    chance = random.Random(5)
    file = io.BytesIO()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(file, array) if suffix == "npy" else np.savez_compressed(file, x=array, y=array)
    good = file.getvalue()
    path = tmp_path / f"x.{suffix}"
    refused = 0
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data))
            data[place] = chance.choice([0, 255, 32, 40, 41, 45, 57, data[place] ^ 1 << chance.randrange(8)])
        path.write_bytes(data[: chance.choice([len(data)] * 9 + [chance.randrange(len(data))])])
        refused += code_of(path) is not None
    assert refused > 200


def test_a_key_is_told_from_a_path() -> None:
    assert split_place("a.npz") == ("a.npz", None)
    assert split_place("dir.d/a:b.npy") == ("dir.d/a:b.npy", None)
    assert split_place("a.npz:k:l") == ("a.npz", "k:l")


def test_written_files_open_with_numpy_alone(tmp_path: Path) -> None:
    arrays = {
        "f": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "b": np.array([1.5, -2, np.inf], ml_dtypes.bfloat16),
        "s": np.array(7, np.int64),
        "e": np.zeros((0, 3), np.float16),
    }
    write_archive(str(tmp_path / "a.npz"), arrays)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            assert np.array_equal(found[name], array.astype(found[name].dtype))
            assert found[name].shape == array.shape
    for name, array in arrays.items():
        write_array(str(tmp_path / f"{name}.npy"), array)
        assert np.array_equal(np.load(tmp_path / f"{name}.npy"), array.astype(np.float64))


def test_a_place_that_cannot_be_written_is_known_beforehand(tmp_path: Path) -> None:
    require_writable(str(tmp_path / "new.npy"))
    assert not list(tmp_path.iterdir())
    for path in (str(tmp_path), f"{tmp_path}/no/x.npy", "a\0b"):
        with pytest.raises(OpenInferError) as caught:
            require_writable(path)
        assert caught.value.code is Code.WRITE_FAILED
