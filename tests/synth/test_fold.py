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
    "a comma in a string": f'    call("{"a, b" * 9}", "{", c" * 9}", {ARGUMENTS});',
}


def seen(text: str) -> str:
    """What a compiler sees: no comments, no white space between tokens, strings joined."""
    joined = re.sub(r'(?<!\\)"\s+"', "", text)
    return re.sub(r"/\*.*?\*/|\s+(?=(?:[^\"\\]|\\.|\"(?:[^\"\\]|\\.)*\")*$)", "", joined, flags=re.DOTALL)


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
