"""Every sentence of OINF.md that begins with "refuse" is kept, with the right code, field and byte."""

from pathlib import Path

import pytest
from tests.oinf.corpus import tensor
from tests.oinf.layout_model import TAG, Document, Image, TensorRow
from tests.oinf.refusal_cases import IMAGE, OLD_IMAGE, Case, cases

from openinfer import Code, ModelLoader, OinfError

CASES = cases()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.oinf"


@pytest.mark.parametrize("case", CASES, ids=[case.sentence for case in CASES])
@pytest.mark.parametrize("copy", [False, True], ids=["mapped", "copied"])
def test_refuses(case: Case, path: Path, copy: bool) -> None:
    path.write_bytes(case.data)
    with pytest.raises(OinfError) as caught:
        ModelLoader.open(path, copy=copy)
    found = caught.value
    expected = (case.code, case.field, case.offset, case.entry)
    assert (found.code, found.field, found.offset, found.entry) == expected, str(found)


def test_no_two_cases_are_called_the_same() -> None:
    assert len({case.sentence for case in CASES}) == len(CASES)


@pytest.mark.parametrize("image", [IMAGE, OLD_IMAGE], ids=["version 2", "version 1"])
def test_the_file_that_the_cases_change_is_itself_accepted(image: Image, path: Path) -> None:
    path.write_bytes(image.data)
    with ModelLoader.open(path) as model:
        assert list(model.tensors) == ["Q", "S", "U", "W"]


def test_the_refusal_of_an_unknown_version_names_the_version(path: Path) -> None:
    path.write_bytes(IMAGE.with_values(("version", 77)))
    with pytest.raises(OinfError, match="version 77"):
        ModelLoader.open(path)


def test_the_first_byte_that_is_wrong_decides_between_short_and_foreign(path: Path) -> None:
    path.write_bytes(b"PK\3\4")
    with pytest.raises(OinfError) as caught:
        ModelLoader.open(path)
    assert (caught.value.code, caught.value.field, caught.value.offset) == (Code.BAD_MAGIC, "magic", 0)


BAD_ELEMENTS = {
    "bool bytes (2)": ("bool", [3], b"\0\1\2", 2),
    "bool bytes (255)": ("bool", [3], b"\xff\1\0", 0),
    "t2 codes (-2 in the first element)": ("t2", [6], b"\x02\0", 0),
    "t2 codes (-2 in the last element)": ("t2", [6], b"\x01\x08", 1),
    "spare bits (i4)": ("i4", [3], b"\x21\x13", 1),
    "spare bits (u4)": ("u4", [1], b"\x80", 0),
    "spare bits (i2)": ("i2", [5], b"\xff\x04", 1),
    "spare bits (u2)": ("u2", [3], b"\x40", 0),
    "spare bits (t2)": ("t2", [5], b"\0\x10", 1),
    "spare bits (i1)": ("i1", [7], b"\x80", 0),
    "spare bits (u1)": ("u1", [9], b"\xff\x02", 1),
    "spare bits (t1)": ("t1", [1], b"\x02", 0),
}


@pytest.mark.parametrize(("dtype", "dims", "stored", "bad"), BAD_ELEMENTS.values(), ids=list(BAD_ELEMENTS))
@pytest.mark.parametrize("copy", [False, True], ids=["mapped", "copied"])
def test_opens_but_refuses_to_load_a_tensor_with_bad(
    dtype: str, dims: list[int], stored: bytes, bad: int, copy: bool, path: Path
) -> None:
    document = Document(2, [], [], [TensorRow(b"bad", TAG[dtype], dims, stored), tensor("good", dtype, dims)])
    image = Image(document.to_bytes())
    path.write_bytes(image.data)
    with ModelLoader.open(path, copy=copy) as model:
        assert model.load("good").shape == tuple(dims)
        with pytest.raises(OinfError) as caught:
            model.load("bad")
    found = caught.value
    expected = (Code.BAD_TENSOR_DATA, "data", image.at("tensors[0].data") + bad, "bad")
    assert (found.code, found.field, found.offset, found.entry) == expected


def test_a_bad_byte_megabytes_into_a_tensor_is_found_where_it_is(path: Path) -> None:
    stored = bytearray((1 << 20) + 100_000)
    stored[(1 << 20) + 77] = 9
    document = Document(2, [], [], [TensorRow(b"b", TAG["bool"], [len(stored)], bytes(stored))])
    path.write_bytes(document.to_bytes())
    with ModelLoader.open(path) as model, pytest.raises(OinfError) as caught:
        model.load("b")
    assert caught.value.offset == Image(document.to_bytes()).at("tensors[0].data") + (1 << 20) + 77
