"""Records of what was measured: files of them, hostile ones included, and code that depends on nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openinfer.errors import DeviceError, DocumentSpan, OinfError
from openinfer.synth.targets.cpu.choices import Choice, ProductShape
from openinfer.synth.targets.cpu.machine import AVX2, AVX512
from openinfer.synth.tuning.records import MAX_TUNED_BYTES, Processor, Record, Tuned, possible_tiles, shipped

PROCESSOR = Processor.of(AVX512, 2)
LINEAR = ProductShape(
    accumulator="f32", stored="f32", outside=1, rows=128, columns=384, inner=384, left="lies", right="panels"
)
SCORES = LINEAR.model_copy(update={"columns": 128, "right": "lies"})
RECORD = Record(processor=PROCESSOR, product=LINEAR, choice=Choice(rows=6, vectors=4, divided="columns", gain=1.05))
BY_RULE = Record(processor=PROCESSOR, product=SCORES)
TUNED = Tuned(records=(RECORD, BY_RULE))


def document() -> Any:
    return json.loads(TUNED.to_text())


def refused(value: Any) -> DeviceError:
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    with pytest.raises(DeviceError) as caught:
        Tuned.from_json(text, name="t.json")
    return caught.value


# --- files ------------------------------------------------------------------------------------------------------------


def test_records_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    TUNED.save(tmp_path / "t.json")
    found = Tuned.load(tmp_path / "t.json")
    assert found.choices(PROCESSOR) == {LINEAR: RECORD.choice, SCORES: None}
    found.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "t.json").read_bytes()


def test_a_file_has_a_line_for_each_record_in_an_order_of_their_own() -> None:
    text = TUNED.to_text()
    assert text == Tuned(records=(BY_RULE, RECORD)).to_text()
    assert sum('"processor"' in line for line in text.splitlines()) == 2
    assert Tuned.from_json(Tuned().to_text()) == Tuned()


def test_a_new_record_takes_the_place_of_the_old_one() -> None:
    other = Record(processor=PROCESSOR, product=LINEAR, choice=Choice(rows=8, vectors=3, gain=1.1))
    assert TUNED.including(other).choices(PROCESSOR) == {LINEAR: other.choice, SCORES: None}
    assert len(TUNED.including(other).records) == 2


@pytest.mark.parametrize(
    "processor",
    [
        Processor.of(AVX2, 2),
        Processor.of(AVX512, 1),
        PROCESSOR.model_copy(update={"vector_registers": 16}),
        PROCESSOR.model_copy(update={"isa": "other"}),
    ],
)
def test_choices_are_for_the_processor_they_were_measured_on(processor: Processor) -> None:
    assert TUNED.choices(processor) == {}


def test_a_file_that_cannot_be_written_is_an_error_and_the_old_one_stays(tmp_path: Path) -> None:
    with pytest.raises(OinfError) as caught:
        TUNED.save(tmp_path / "none" / "t.json")
    assert caught.value.code == "E731"
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (MAX_TUNED_BYTES + 1))
    for path in (tmp_path / "none.json", tmp_path, large):
        with pytest.raises(DeviceError) as caught:
            Tuned.load(path)
        assert caught.value.code == "E804"


# --- hostile ones -----------------------------------------------------------------------------------------------------


def changed(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(whole: Any) -> None:
        at = whole
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


FIRST = ("records", 0)


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        (changed("schema", value="other"), "/schema", "expected 'openinfer.tuned', found \"other\""),
        (changed("version", value=2), "/version", "expected 1, found 2"),
        (changed("more", value=1), "/more", "the key 'more' is unknown"),
        (changed("records", value={}), "/records", "expected a list"),
        (changed(*FIRST, value=[]), "/records/0", "expected an object"),
        (changed(*FIRST, "processor", value={}), "/records/0/processor", "the key 'isa' is missing"),
        (changed(*FIRST, "processor", "threads", value=0), "/records/0/processor/threads", "expected"),
        (changed(*FIRST, "processor", "fma", value=1), "/records/0/processor/fma", "expected true or false"),
        (changed(*FIRST, "product", "rows", value=0), "/records/0/product/rows", "expected"),
        (changed(*FIRST, "product", "rows", value="8"), "/records/0/product/rows", "expected an integer"),
        (changed(*FIRST, "product", "rows", value=1 << 63), "/records/0/product/rows", "expected"),
        (
            changed(*FIRST, "product", "left", value="panels"),
            "/records/0/product/left",
            "expected 'lies', 'copied' or",
        ),
        (changed(*FIRST, "product", "stored", value="x; y"), "/records/0/product/stored", "expected"),
        (changed(*FIRST, "product", "stored", value="f33"), "/records/0", "there is no dtype 'f33'"),
        (changed(*FIRST, "choice", "rows", value=1 << 40), "/records/0/choice/rows", "expected"),
        (changed(*FIRST, "choice", "rows", value=2.0), "/records/0/choice/rows", "expected an integer"),
        (changed(*FIRST, "choice", "vectors", value=5), "/records/0", "has no tile of 6 rows and 5 vectors"),
        (changed(*FIRST, "choice", "rows", value=17), "/records/0", "has no tile of 17 rows"),
        (changed(*FIRST, "choice", "copies", value=True), "/records/0", "it has no choice of copies"),
        (changed(*FIRST, "choice", "divided", value="all"), "/records/0/choice/divided", "expected"),
        (changed(*FIRST, "choice", "gain", value=-1), "/records/0/choice/gain", "expected"),
        (changed(*FIRST, "choice", "unroll", value=4), "/records/0/choice/unroll", "the key 'unroll' is unknown"),
    ],
)
def test_what_cannot_be_is_refused_and_located(change: Callable[[Any], None], where: str, message: str) -> None:
    whole = document()
    whole["records"].sort(key=lambda record: "choice" not in record)
    change(whole)
    first = refused(whole).diagnostics[0]
    assert message in first.message
    assert first.code == "E804"
    assert first.span == DocumentSpan(where, "t.json")


def test_what_threads_share_of_windows_is_not_chosen() -> None:
    value = document()
    record = next(one for one in value["records"] if "choice" in one)
    record["product"] |= {"left": "windows", "right": "panels"}
    record["choice"]["divided"] = "rows"
    assert "threads share the bands" in refused(value).diagnostics[0].message


def test_two_records_about_one_product_are_refused() -> None:
    whole = document()
    whole["records"] += whole["records"][:1]
    assert refused(whole).diagnostics[0].message == "there are two records about this product"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"version": 1, "version": 1}', "[" * 100000, b"\xff"])
def test_what_is_no_document_is_refused(text: str | bytes) -> None:
    assert refused(text).diagnostics


def test_a_gain_is_a_number() -> None:
    assert refused(TUNED.to_text().replace("1.05", "1e999")).diagnostics
    assert refused(TUNED.to_text().replace("1.05", "NaN")).diagnostics


def test_pairs_of_vectors_hold_integers_of_4_bits() -> None:
    half = LINEAR.model_copy(update={"stored": "u4"})
    assert {vectors % 2 for _, vectors in possible_tiles(half, PROCESSOR)} == {0}


# --- shipped ones -----------------------------------------------------------------------------------------------------


def test_shipped_records_are_sound_and_worth_it() -> None:
    choices = [one.choice for one in shipped().records]
    assert all(choice is not None and choice.gain >= 1.03 for choice in choices)
