"""Wide lines of emitted code are broken where that changes nothing but the look of them."""

import re

import pytest

from openinfer.synth.targets.cstyle.fold import WIDEST, folded

ARGUMENTS = ", ".join(f"(const float *)(c->weights + {number})" for number in range(9))
WIDE = {
    "call": f"    net_k0({ARGUMENTS});",
    "condition": f"    if (net_k0({ARGUMENTS})) return fail(c, NET_ERROR_VALUE, 4);",
    "long condition and statement": f"    if (net_k0({ARGUMENTS})) return net_k1({ARGUMENTS});",
    "comment": f"    /* {'a word ' * 30}*/",
    "comment behind": f"    const float *const w0 = NULL; /* {'a word ' * 20}*/",
    "string": '    say("' + 'say \\"no\\", (or not), \\303\\2441 ' * 9 + '");',
    "sum": f"    y[i * 3] = {' + '.join(f'a{number} * (b + {number})' for number in range(12))};",
    "statements": f"    {' '.join(f's{number} = oi_fma_f32x16(a[0 * a_row], b0, s{number});' for number in range(9))}",
    "polynomial": f"    y = {'(' * 20}1.25e-08 * x{' + 0.0078125) * x' * 20};",
    "declarations": f"    const float {', '.join(f'b{number} = *(const float *)(b + 4)' for number in range(9))};",
    "loop": f"        for (int64_t i = 0; i < oi_div_i64({' + '.join(['(int64_t)width'] * 9)}, 2); ++i) {{",
    "loop and statement": f"        for (int64_t lane = 0; lane < 8; ++lane) {' + '.join(['lanes[lane]'] * 12)};",
    "function": f"static int f(int a, int b) {{ return {' + '.join(['a * b'] * 20)}; }}",
    "initializer": f"    const oi_walk walk = {{ {', '.join(['(unsigned char *)value'] * 9)} }};",
    "a comma in a string": f'    call("{"a, b" * 9}", "{", c" * 9}", {ARGUMENTS});',
}


def seen(text: str) -> str:
    """What a compiler sees: no comments, no white space between tokens, strings joined."""
    joined = re.sub(r'(?<!\\)"\s+"', "", text)
    return re.sub(r"/\*.*?\*/|\s+(?=(?:[^\"\\]|\\.|\"(?:[^\"\\]|\\.)*\")*$)", "", joined, flags=re.DOTALL)


def folded_to(line: str) -> list[str]:
    return folded(line).split("\n")


@pytest.mark.parametrize("line", WIDE.values(), ids=WIDE)
def test_a_wide_line_becomes_several_that_mean_the_same(line: str) -> None:
    text = folded(line)
    assert len(line) > WIDEST >= max(map(len, text.split("\n")))
    assert seen(text).replace(" ", "") == seen(line).replace(" ", "")
    assert text.count("/*") == line.count("/*")


def test_what_fits_stays_as_it_is_but_for_blanks_at_the_end() -> None:
    assert folded("int f(int a,  int b);  \n    \n#define X 1\n") == "int f(int a,  int b);\n\n#define X 1\n"


def test_a_statement_behind_a_condition_goes_to_its_own_line() -> None:
    first, second = folded(f"    if (is_bad) return net_k0({ARGUMENTS[:92]});").split("\n")
    assert (first, second[:16]) == ("    if (is_bad)", "        return n")


def test_a_wide_string_in_a_list_is_one_element() -> None:
    """Clang suspects a missing comma where an element of an array is several strings without parentheses."""
    first, *_, last = folded(f'        "{"a word, " * 20}",').split("\n")
    assert (first[:10], last[-3:]) == ('        ("', '"),')


def test_a_line_goes_on_behind_what_binds_least() -> None:
    terms = " + ".join(f"oi_load_u4(x, i1 * 15 + {number})" for number in range(5))
    first, *others = folded_to(f"        oi_store_u4(y, i1 * 15 + i2, {terms});")
    assert first == "        oi_store_u4(y, i1 * 15 + i2,"
    assert all(line.startswith(" " * 16) for line in others)
    assert others[0].endswith(" +")


def test_an_operator_of_one_operand_or_of_a_type_is_no_place_to_go_on() -> None:
    parameters = ", ".join(f"const float *restrict operand_{number}" for number in range(7))
    lines = folded_to(f"void net_k0({parameters})")
    assert all(line.endswith((",", ")")) for line in lines)


def test_brackets_in_brackets_do_not_get_a_line_each() -> None:
    assert len(folded_to(WIDE["polynomial"])) <= 6


def test_a_directive_goes_on_behind_backslashes() -> None:
    elements = ", ".join(f"(float)(p)[{number}]" for number in range(16))
    *lines, last = folded_to(f"#define oi_load(p) ((oi_f32x16){{ {elements} }})")
    assert lines
    assert all(line.endswith(" \\") and len(line) <= WIDEST for line in lines)
    assert not last.endswith("\\")


def test_a_long_line_of_a_comment_with_stars_goes_on_behind_one() -> None:
    text = "/*\n * " + 'a word, (and) "another, ' * 9 + "\n */\nvoid f(void);"
    assert all(line.startswith(" * ") for line in folded_to(text)[1:-2])
    assert max(map(len, folded_to(text))) <= WIDEST


@pytest.mark.parametrize("line", WIDE.values(), ids=WIDE)
def test_lines_around_a_wide_one_stay_as_they_are(line: str) -> None:
    before, behind = "/* don't\n * (\n */\n#define X \\\n    1", 'say("/*"); // not "closed\n\n{ /* } */'
    assert folded(f"{before}\n{line}\n{behind}") == f"{before}\n{folded(line)}\n{behind}"
