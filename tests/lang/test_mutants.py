"""No text gets more out of the parser than located errors or a graph that survives everything."""

from collections.abc import Callable
from time import process_time

import pytest
from tests.lang.mutants import mutant
from tests.lang.oracle import Figures, check_shown, check_survives, judge
from tests.lang.sources import sources

from openinfer.errors import GraphError
from openinfer.lang import graph, parse

CHUNKS, CHUNK = 3, 1000
SEED = 20240301


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_mutant_is_refused_with_located_errors_or_survives(chunk: int) -> None:
    figures = Figures()
    for index in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        made = mutant(SEED, index)
        try:
            judge(made.text, figures, made.label)
        except Exception as error:
            error.add_note(f"{made.label}\n{made.text!r}")
            raise
    assert figures.texts == CHUNK
    assert figures.accepted > CHUNK // 50


def test_the_same_number_gives_the_same_mutant() -> None:
    assert [mutant(7, index) for index in range(50)] == [mutant(7, index) for index in range(50)]


@pytest.mark.parametrize("number", range(len(sources())))
def test_every_source_is_accepted(number: int) -> None:
    figures = Figures()
    judge(sources()[number], figures)
    assert figures.accepted == 1


@pytest.mark.parametrize("number", range(len(sources())))
def test_a_source_cut_at_any_character_is_refused_or_survives(number: int) -> None:
    figures = Figures()
    text = sources()[number]
    for end in range(0, len(text), 1 + len(text) // 150):
        judge(text[:end], figures, f"cut at {end}")


# --- monsters -------------------------------------------------------------------------------------------------------

MANY = 100_000
LONG = 10_000_000
DIGITS = 1_000_000
HANG_S = 20.0
"""Of the processor: less than a second is usual, minutes wherever something grows with the square of the text."""


def entry(text: str) -> str:
    return f"dynamic {{ x: f32; }} block entry {{ {text} return; }}"


def size(text: str) -> str:
    return f"sizes {{ N := {text}; }} block entry {{ return; }}"


REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "100,000 braces": (lambda: "{" * MANY, "E101"),
    "100,000 braces and their ends": (lambda: "block entry " + "{" * MANY + "}" * MANY, "E101"),
    "100,000 parentheses": (lambda: size("(" * MANY + "1" + ")" * MANY), "E104"),
    "100,000 parentheses, not closed": (lambda: size("(" * MANY), "E104"),
    "100,000 closing parentheses": (lambda: size(")" * MANY), "E101"),
    "100,000 square brackets": (lambda: entry("op f(x, a=" + "[" * MANY + "]" * MANY + ") >> x;"), "E101"),
    "100,000 brackets of all kinds": (lambda: entry("op f(x, a=" + "([{" * MANY + ") >> x;"), "E101"),
    "100,000 brackets of calls": (lambda: entry("op f(" * MANY), "E104"),
    "100,000 minuses and parentheses": (lambda: size("-(" * MANY + "1" + ")" * MANY), "E104"),
    "100,000 nested scopes": (lambda: entry('scope "s" { ' * MANY + "} " * MANY), "E104"),
    "300 nested loops": (lambda: entry("".join(f"loop l (i{n} in 0..2) {{ " for n in range(300)) + "} " * 300), "E104"),
    "250 parentheses": (lambda: size("(" * 250 + "1" + ")" * 250), "E104"),
    "a sum of 100,000 terms": (lambda: size("+".join("1" * MANY)), "E104"),
    "a sum of 100,000 terms in an index": (lambda: entry("cache.reset x[" + "+".join("x" * MANY) + "];"), "E104"),
    "an integer of 10^6 digits": (lambda: size("1" * DIGITS), "E103"),
    "a hexadecimal integer of 10^6 digits": (lambda: size("0x" + "F" * DIGITS), "E103"),
    "a binary integer of 10^6 digits": (lambda: size("0b" + "1" * DIGITS), "E103"),
    "an integer of 10^6 underscores": (lambda: size("0x" + "_" * DIGITS), "E103"),
    "a float with 10^6 digits before the point": (lambda: entry(f"op f(x, a={'1' * DIGITS}.5) >> x;"), "E103"),
    "a float with 10^6 digits in its exponent": (lambda: entry(f"op f(x, a=1e{'1' * DIGITS}) >> x;"), "E103"),
    "10 MB of identifier": (lambda: "a" * LONG, "E101"),
    "10 MB of identifier as a statement": (lambda: entry("a" * LONG + ";"), "E101"),
    "10 MB of identifier as a variable": (lambda: entry(f"op f({'a' * LONG}) >> x;"), "E201"),
    "10 MB of string, not closed": (lambda: entry('scope "' + "a" * LONG), "E102"),
    "10 MB of string in the wrong place": (lambda: entry('"' + "a" * LONG + '";'), "E101"),
    "10 MB of bad escapes": (lambda: entry('scope "' + "\\q" * (LONG // 2) + '" { }'), "E109"),
    "10 MB of comment, not closed": (lambda: entry("/*" + "a" * LONG), "E102"),
    "10 MB of stars in a comment, not closed": (lambda: entry("/*" + "*" * LONG), "E102"),
    "100,000 comments, the last not closed": (lambda: entry("/* * **/" * MANY + "/*"), "E102"),
    "100,000 lone quotes": (lambda: entry('"\n' * MANY), "E102"),
    "100,000 wrong statements": (lambda: entry("bad statement;\n" * MANY), "E101"),
    "100,000 wrong characters": (lambda: "$" * MANY, "E101"),
    "a NUL byte": (lambda: entry("\0"), "E101"),
    "nothing but NUL bytes": (lambda: "\0" * 1000, "E101"),
    "a byte order mark": (lambda: "\ufeff" + entry(""), "E101"),
    "lone surrogates": (lambda: entry("\ud800\udfff"), "E101"),
    "a lone surrogate in a string": (lambda: entry('scope "\ud800" { }'), "E109"),
    "an escaped lone surrogate": (lambda: entry('scope "\\ud800" { }'), "E109"),
    "nothing": (str, "E401"),
    "spaces": (lambda: " \n" * MANY, "E401"),
    "20,000 variables of one name": (lambda: f"dynamic {{ {'x: f32; ' * 20_000} }} block entry {{ return; }}", "E202"),
    "2,000 unknown names among 2,000 variables": (
        lambda: (
            f"dynamic {{ {''.join(f'v{n}: f32;' for n in range(2000))} }} block entry {{ "
            f"{''.join(f'op f(w{n}) >> v{n};' for n in range(2000))} return; }}"
        ),
        "E201",
    ),
    "a cycle of 5,000 blocks": (
        lambda: "".join(f"block b{n} {{ branch b{(n + 1) % 5000}; return; }}" for n in range(5000)) + entry(""),
        "E406",
    ),
}
ACCEPTED: dict[str, Callable[[], str]] = {
    "100,000 minuses": lambda: size("-" * MANY + "1"),
    "100,000 minuses before a name": lambda: size("-" * (MANY + 1) + "B"),
    "199 nested scopes": lambda: entry('scope "s" { ' * 199 + "} " * 199),
    "190 parentheses": lambda: size("(" * 190 + "1" + ")" * 190),
    "a sum of 200 terms": lambda: size("+".join("1" * 200)),
    "nested loops of 10^9": lambda: entry("loop l (i in 0..1000000000) { loop m (j in 0..1000000000) { barrier; } }"),
    "10 MB of string": lambda: entry('scope "' + "a" * LONG + '" { }'),
    "10 MB of identifier that is declared": lambda: f"dynamic {{ {'a' * LONG}: f32; }} block entry {{ return; }}",
    "10 MB of comment": lambda: entry("/*" + "a" * LONG + "*/"),
    "10 MB of stars in a comment": lambda: entry("/*" + "*" * LONG + "*/"),
    "10 MB of comment to the end of the line": lambda: entry("//" + "a" * LONG + "\n"),
    "a float with 10^6 digits behind the point": lambda: entry(f"op f(x, a=0.{'1' * DIGITS}) >> x;"),
    "CRLF": lambda: entry("barrier;\r\n// c\r\n"),
    "lone CR": lambda: entry("barrier;\r\r"),
    "2,000 deps": lambda: entry("op f(x) >> x; dep after(f) before(f); " * 2000 + "op f(x) >> x;"),
    "5,000 blocks in a row": lambda: (
        "".join(f"block b{n} {{ branch b{n + 1}; return; }}" for n in range(5000))
        + "block b5000 { return; }"
        + entry("")
    ),
}
SLOW = "x = op f(a=x, b=1.5);\ntransfer x >> x;\n"


@pytest.mark.parametrize("name", REFUSED)
def test_a_monster_is_refused_in_no_time(name: str) -> None:
    make, code = REFUSED[name]
    text = make()
    start = process_time()
    problems = parse(text).problems
    seconds = process_time() - start
    assert code in {str(problem.code) for problem in problems}
    for problem in problems[:3]:
        check_shown(problem, text)
        assert len(problem.render()) < 2_000
    assert seconds < HANG_S


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_monster_is_accepted_in_no_time_and_survives(name: str) -> None:
    text = ACCEPTED[name]()
    start = process_time()
    parsed = parse(text)
    seconds = process_time() - start
    assert [problem.message[:200] for problem in parsed.problems] == []
    check_survives(parsed.graph)
    assert seconds < HANG_S


def test_a_hundred_thousand_statements_are_read_in_time() -> None:
    text = entry(SLOW * (MANY // 2))
    start = process_time()
    parsed = parse(text)
    seconds = process_time() - start
    assert parsed.problems == []
    assert parsed.graph.node_count == MANY + 1
    assert seconds < 3 * HANG_S


def test_the_monsters_that_graph_refuses_are_refused_with_its_own_error() -> None:
    for make, _ in list(REFUSED.values())[:8]:
        with pytest.raises(GraphError):
            graph(make())
