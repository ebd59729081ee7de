"""Diagnostics as people see them: the exact text, and what it never contains."""

import json
import pickle
import unicodedata
from enum import StrEnum
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openinfer.errors import (
    ByteSpan,
    Code,
    Diagnostic,
    FileSpan,
    MissingExtraError,
    OinfError,
    OpenInferError,
    Place,
    Source,
    Span,
    TensorError,
    nearest,
    printable,
)
from openinfer.errors.render import LINE_WIDTH

BYTES = bytes(range(0x30, 0x60))


class Soft(StrEnum):
    """A stand-in for warnings while no code is one."""

    UNUSED = "W901"

    @property
    def is_warning(self) -> bool:
        return cast("property", Code.__dict__["is_warning"]).__get__(self, Code)  # type: ignore[no-any-return]


def rendered(span: Place | None, message: str = "wrong") -> str:
    return Diagnostic(Code.BAD_SHAPE, message, span).render()


def source_text(text: str, start: int, end: int) -> str:
    """The rendered diagnostic without the header and place, which every one of these shares."""
    return "\n".join(rendered(Span(Source("g.oig", text), start, end)).split("\n")[2:])


def byte_text(offset: int, length: int, context: slice) -> str:
    span = ByteSpan("m.oinf", "dims", offset, length, "w", BYTES[context], context.start)
    return "\n".join(rendered(span).split("\n")[2:])


# --- source text ------------------------------------------------------------------------------------------------------


def test_a_source_diagnostic_shows_code_place_line_and_carets() -> None:
    assert rendered(Span(Source("g.oig", "one\nlet x = ma;\nthree"), 12, 14), "unknown name 'ma'") == (
        "error[E303]: unknown name 'ma'\n"
        " --> g.oig:2:9\n"
        "  |\n"
        "2 | let x = ma;\n"
        "  |         ^^"
    )  # fmt: skip


def test_the_gutter_is_as_wide_as_the_line_number() -> None:
    assert rendered(Span(Source("g.oig", "\n" * 99 + "yy"), 99, 101)) == (
        "error[E303]: wrong\n"
        "   --> g.oig:100:1\n"
        "    |\n"
        "100 | yy\n"
        "    | ^^"
    )  # fmt: skip


def test_an_empty_span_still_gets_one_caret() -> None:
    assert source_text("ab cd", 3, 3) == (
        "  |\n"
        "1 | ab cd\n"
        "  |    ^"
    )  # fmt: skip


def test_tabs_before_and_under_the_carets_are_four_columns() -> None:
    assert source_text("\tx\ty", 1, 3) == (
        "  |\n"
        "1 |     x    y\n"
        "  |     ^^^^^"
    )  # fmt: skip


def test_wide_characters_take_two_columns() -> None:
    assert source_text("漢字 = 数値;", 5, 7) == (
        "  |\n"
        "1 | 漢字 = 数値;\n"
        "  |        ^^^^"
    )  # fmt: skip


def test_combining_characters_take_no_column() -> None:
    assert source_text("e\u0301 = ma;", 5, 7) == (
        "  |\n"
        "1 | e\u0301 = ma;\n"
        "  |     ^^"
    )  # fmt: skip


@pytest.mark.parametrize("mark", ["\ufe0f", "\u20dd", "\u0941"], ids=["variation", "enclosing", "vowel-sign"])
def test_marks_without_a_combining_class_take_no_column_either(mark: str) -> None:
    assert source_text(f"x{mark} = ma;", 5, 7).endswith("\n  |     ^^")


def test_a_long_line_is_cropped_around_the_span() -> None:
    assert source_text("a" * 100 + "BAD" + "b" * 100, 100, 103) == (
        "  |\n"
        f"1 | ...{'a' * 20}BAD{'b' * 97}...\n"
        f"  | {' ' * 23}^^^"
    )  # fmt: skip


def test_a_long_line_is_not_cropped_on_the_left_when_the_span_is_near_its_start() -> None:
    assert source_text("BAD" + "b" * 200, 0, 3) == (
        "  |\n"
        f"1 | BAD{'b' * 117}...\n"
        "  | ^^^"
    )  # fmt: skip


def test_a_long_line_is_not_cropped_on_the_right_when_the_span_is_at_its_end() -> None:
    assert source_text("a" * 200 + "BAD", 200, 203) == (
        "  |\n"
        f"1 | ...{'a' * 117}BAD\n"
        f"  | {' ' * 120}^^^"
    )  # fmt: skip


def test_a_span_longer_than_the_crop_is_marked_as_far_as_it_is_shown() -> None:
    assert source_text("x" * 400, 100, 400) == (
        "  |\n"
        f"1 | ...{'x' * 120}...\n"
        f"  | {' ' * 23}{'^' * 100}"
    )  # fmt: skip


def test_a_line_of_exactly_the_width_is_not_cropped() -> None:
    assert f"1 | {'x' * LINE_WIDTH}\n" in source_text("x" * LINE_WIDTH, 0, 1)


def test_a_span_over_several_lines_is_marked_to_the_end_of_its_first() -> None:
    assert source_text("ab(cd\nef\n)", 2, 10) == (
        "  |\n"
        "1 | ab(cd\n"
        "  |   ^^^"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("ab\ncd", "g.oig:2:3", "2 | cd\n  |   ^"),
        ("ab\n", "g.oig:2:1", "2 |\n  | ^"),
        ("", "g.oig:1:1", "1 |\n  | ^"),
    ],
    ids=["no-newline", "newline", "empty"],
)
def test_the_end_of_the_file_has_a_place(text: str, place: str, shown: str) -> None:
    assert (
        rendered(Span(Source("g.oig", text), len(text), len(text))) == f"error[E303]: wrong\n --> {place}\n  |\n{shown}"
    )


def test_carriage_returns_at_line_ends_are_not_shown() -> None:
    assert source_text("ab\r\ncd\r\n", 4, 6) == (
        "  |\n"
        "2 | cd\n"
        "  | ^^"
    )  # fmt: skip


def test_control_characters_in_source_are_escaped_and_counted() -> None:
    assert source_text("ab\x1b[31mcd", 7, 9) == (
        "  |\n"
        "1 | ab\\x1b[31mcd\n"
        "  |           ^^"
    )  # fmt: skip


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_a_byte_diagnostic_shows_field_entry_and_hex_dump() -> None:
    span = ByteSpan("m.oinf", "tensors[0].ndim", 4, 4, "w", BYTES[:16], 0)
    assert rendered(span) == (
        "error[E303]: wrong\n"
        "  --> m.oinf: byte 4 (0x4), field tensors[0].ndim, entry 'w'\n"
        "   |\n"
        "   | 00000000  30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f  |0123456789:;<=>?|\n"
        "   |                       ^^ ^^ ^^ ^^"
    )


def test_a_byte_diagnostic_without_entry_or_context_is_one_line() -> None:
    assert rendered(ByteSpan("m.oinf", "magic", 300)) == (
        "error[E303]: wrong\n"
        "  --> m.oinf: byte 300 (0x12c), field magic"
    )  # fmt: skip


def test_carets_straddle_two_rows() -> None:
    assert byte_text(14, 4, slice(0, 32)) == (
        "   |\n"
        "   | 00000000  30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f  |0123456789:;<=>?|\n"
        "   |                                                     ^^ ^^\n"
        "   | 00000010  40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f  |@ABCDEFGHIJKLMNO|\n"
        "   |           ^^ ^^"
    )


def test_a_short_last_row_keeps_its_columns() -> None:
    assert byte_text(20, 8, slice(16, 22)) == (
        "   |\n"
        "   | 00000010  40 41 42 43 44 45                                |@ABCDE|\n"
        "   |                       ^^ ^^"
    )


def test_bytes_that_are_not_ascii_are_dots() -> None:
    span = ByteSpan("m.oinf", "magic", 0, 1, None, b"\x00\x1b\x7f\x80\xff A", 0)
    assert rendered(span).endswith("00 1b 7f 80 ff 20 41                             |..... A|\n   |           ^^")


# --- the rest of a diagnostic -----------------------------------------------------------------------------------------


def test_help_and_notes_follow_the_place() -> None:
    found = Diagnostic(Code.NO_DATA, "no data", FileSpan("m.oinf"), help="write it", notes=("one", "two"))
    assert found.render() == (
        "error[E723]: no data\n"
        "  --> m.oinf\n"
        "  = help: write it\n"
        "  = note: one\n"
        "  = note: two"
    )  # fmt: skip


def test_a_warning_says_so() -> None:
    found = Diagnostic(cast("Code", Soft.UNUSED), "never used")
    assert found.render() == "warning[W901]: never used"
    assert found.facts()["severity"] == "warning"


def test_hostile_text_is_escaped_everywhere() -> None:
    hostile = "\x1b[2J\n\0\u202e"
    escaped = "\\x1b[2J\\n\\x00\\u202e"
    places: list[Place] = [
        Span(Source(hostile, "x"), 0, 1),
        ByteSpan(hostile, hostile, 0, 0, hostile),
        FileSpan(hostile),
    ]
    lines = [Diagnostic(Code.NO_DATA, hostile, place, hostile, (hostile,)).render().split("\n") for place in places]
    assert [len(found) for found in lines] == [7, 4, 4]
    assert [found[0] for found in lines] == [f"error[E723]: {escaped}"] * 3
    assert [found[1] for found in lines] == [
        f" --> {escaped}:1:1",
        f"  --> {escaped}: byte 0 (0x0), field {escaped}, entry '{escaped}'",
        f"  --> {escaped}",
    ]
    assert all(found[-2:] == [f"  = help: {escaped}", f"  = note: {escaped}"] for found in lines)


def test_an_error_shows_all_its_diagnostics_and_has_the_code_of_the_first() -> None:
    error = OpenInferError(Diagnostic(Code.NO_DATA, "first", help="a"), Diagnostic(Code.BAD_NAME, "second"))
    assert str(error) == (
        "error[E723]: first\n"
        "  = help: a\n"
        "error[E710]: second"
    )  # fmt: skip
    assert (error.code, error.message) == (Code.NO_DATA, "first")


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("span", "place"),
    [
        (
            Span(Source("g.oig", "ab\ncd"), 1, 4),
            {"file": "g.oig", "line": 1, "column": 2, "end_line": 2, "end_column": 2},
        ),
        (
            ByteSpan("m.oinf", "ndim", 4, 8, "w", b"\xff", 0),
            {"file": "m.oinf", "field": "ndim", "offset": 4, "length": 8, "entry": "w"},
        ),
        (FileSpan("m.oinf"), {"file": "m.oinf"}),
        (None, {}),
    ],
    ids=["source", "bytes", "file", "nowhere"],
)
def test_facts_survive_json(span: Place | None, place: dict[str, object]) -> None:
    facts = Diagnostic(Code.BAD_SHAPE, "wrong", span, "do this", ("why",)).facts()
    expected = {"code": "E303", "severity": "error", "message": "wrong", **place, "help": "do this", "notes": ["why"]}
    assert json.loads(json.dumps(facts)) == expected


@pytest.mark.parametrize("kind", [OpenInferError, TensorError, OinfError, MissingExtraError])
@pytest.mark.parametrize(
    "span", [Span(Source("g.oig", "ab"), 0, 1), ByteSpan("m", "f", 4, 8, "w", b"\xff", 0), FileSpan("m"), None]
)
def test_errors_survive_pickling(kind: type[OpenInferError], span: Place | None) -> None:
    error = kind(Diagnostic(Code.BAD_SHAPE, "one", span, "do", ("why",)), Diagnostic(Code.NO_DATA, "two"))
    text = str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.diagnostics == error.diagnostics
    assert str(copy) == text


def test_a_model_file_error_names_field_offset_and_entry() -> None:
    error = OinfError(Diagnostic(Code.BAD_NAME, "wrong", ByteSpan("m", "tensors[0].name", 76, 4, "w")))
    assert (error.field, error.offset, error.entry) == ("tensors[0].name", 76, "w")
    elsewhere = OinfError(Diagnostic(Code.NO_DATA, "wrong", FileSpan("m")))
    assert (elsewhere.field, elsewhere.offset, elsewhere.entry) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("wieght", ["weight", "bias"], "did you mean 'weight'?"),
        ("layer1", ["layer2", "layer3", "layer4", "layer5"], "did you mean 'layer5' or 'layer4' or 'layer3'?"),
        ("weight", ["bias"], None),
        ("weight", [], None),
        ("", ["weight"], None),
        ("ab\n", ["ab\n\x1b"], "did you mean 'ab\\n\\x1b'?"),
    ],
)
def test_nearest_names_up_to_three_lookalikes(name: str, candidates: list[str], expected: str | None) -> None:
    assert nearest(name, candidates) == expected


# --- properties -------------------------------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=300)
offsets = st.integers(0, 310)
byte_spans = st.builds(
    ByteSpan,
    any_text,
    any_text,
    st.integers(0, 2**64),
    st.integers(0, 2**64),
    st.none() | any_text,
    st.binary(max_size=70),
    st.integers(0, 2**64),
)
places = st.one_of(
    st.none(),
    st.builds(FileSpan, any_text),
    st.builds(Span, st.builds(Source, any_text, any_text), offsets, offsets),
    byte_spans,
)


def controls(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@settings(deadline=None)
@given(any_text)
def test_printable_text_has_no_control_characters_and_is_idempotent(text: str) -> None:
    assert controls(printable(text)) == set()
    assert printable(printable(text)) == printable(text)


@settings(deadline=None)
@given(st.sampled_from(Code), any_text, places, st.none() | any_text, st.lists(any_text, max_size=2))
def test_rendering_never_fails_and_never_emits_control_characters(
    code: Code, message: str, span: Place | None, advice: str | None, notes: list[str]
) -> None:
    found = Diagnostic(code, message, span, advice, tuple(notes))
    assert controls(found.render()) <= {"\n"}
    json.dumps(found.facts())


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=300), st.data())
def test_carets_stand_under_the_marked_characters(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    _, shown, carets = source_text(text, start, end).split("\n")
    first, last = carets.index("^"), carets.rindex("^") + 1
    under = shown.ljust(last)[first:last]
    assert len(shown) <= 4 + 3 + LINE_WIDTH + 3
    assert text[start:end].startswith(under) or (start == end and len(under) == 1)
