"""The formatter: canonical, idempotent, and it loses nothing."""

import random
import re

import pytest

from openinfer.errors import Code, GraphError
from openinfer.lang import parse
from openinfer.lang.format import format_source
from openinfer.lang.tokens import trivia

SOURCE = """
sizes { T <= 2048; S := 128; }
dynamic { x: f32[B, D]; }
constants { alpha: f32 @ref("alpha"); W(l): f32[D, D] pattern("W.{l}"); }
volatile { y: f32[B, D] @init(5.0); c: bool; }
persistent { step: i32 @init(0); K(l, t): f16[H, Dh] @table @fixed(l=24, t=2048); }
block entry with { group = "main" } {
    assign h: f32[B, D];
    assign k: f16[H, Dh];
    transfer x >> h;
    loop layers (l in 0..10) {
        scope "attention" {
            cache.read K[l, step] >> k;
            op matmul(h, W[l], acc=f32) with { fuse = true } >> h;
        }
        cache.write k >> K[l, step];
    }
    op relu(h, negative_slope=alpha) >> h with { placement = "gpu" };
    branch c good bad;
    barrier;
    dep after(relu) before(cache.increment);
    cache.increment step;
    t = op add(a=h, b=x);
    return h;
}
block good { op mul(h, h) >> h; return; }
block bad { op fill_nan_like(h, value=0.0) >> h; return; }
"""


def comments_of(text: str) -> list[str]:
    return sorted(" ".join(piece.split()) for kind, piece, _ in trivia(text) if kind == "comment")


def with_comments(text: str, rng: random.Random) -> str:
    """The text with comments and blank lines put between its tokens."""
    pieces = []
    for number, (kind, piece, _) in enumerate(trivia(text)):
        pieces.append(piece)
        if kind != "token":
            continue
        match rng.randrange(12):
            case 0:
                pieces.append(f" // line {number}\n")
            case 1:
                pieces.append(f" /* block {number} */ ")
            case 2:
                pieces.append(f"\n\n\n  // own line {number}\n")
            case 3:
                pieces.append(f"\n/* two\n   lines {number} */\n")
            case 4:
                pieces.append("\n\n\n")
    return "".join(pieces)


def test_formatted_text_is_the_canonical_text_of_the_graph_where_there_are_no_comments() -> None:
    formatted = format_source(SOURCE)
    assert formatted == parse(SOURCE).graph.to_text()
    assert not parse(formatted).problems


@pytest.mark.parametrize("seed", range(150))
def test_comments_anywhere_survive_and_formatting_twice_changes_nothing(seed: int) -> None:
    commented = with_comments(SOURCE, random.Random(seed))
    formatted = format_source(commented)
    assert comments_of(formatted) == comments_of(commented)
    assert format_source(formatted) == formatted
    assert parse(formatted).graph == parse(SOURCE).graph


def test_comments_stay_with_what_they_are_about() -> None:
    formatted = format_source(
        """
        // the input
        dynamic { x: f32[B]; } // after the section
        volatile {
            // the output
            y: f32[B]; // filled by add
            // no more
        }
        block entry {
            // first
            op add(x, x) >> y; // twice

            // last
            return; // done
        } // end of entry
        """
    )
    assert formatted == (
        "// the input\n"
        "dynamic {\n"
        "    x: f32[B];\n"
        "}  // after the section\n"
        "\n"
        "volatile {\n"
        "    // the output\n"
        "    y: f32[B];  // filled by add\n"
        "    // no more\n"
        "}\n"
        "\n"
        "block entry {\n"
        "    // first\n"
        "    op add(x, x) >> y;  // twice\n"
        "\n"
        "    // last\n"
        "    return;  // done\n"
        "}  // end of entry\n"
    )


@pytest.mark.parametrize("end", ["}", "};", "}\n// behind\n;", "} // behind"])
def test_comments_at_the_end_of_a_wrapper_survive(end: str) -> None:
    text = f"graph! {{\n  block entry {{ return; }}\n  // keep me\n{end}\n"
    assert comments_of(format_source(text)) == comments_of(text)


def test_an_empty_text_stays_empty() -> None:
    assert format_source("") == format_source("\n\n") == ""
    assert format_source("// only this") == "// only this\n"


def test_blank_lines_between_statements_are_kept_one_at_a_time() -> None:
    formatted = format_source("block entry {\n\n\nbarrier;\n\n\n\nbarrier;\nreturn;\n\n}\n")
    assert formatted == "block entry {\n    barrier;\n\n    barrier;\n    return;\n}\n"


def test_old_spellings_are_brought_up_to_date() -> None:
    formatted = format_source(SOURCE)
    assert "constants" not in formatted
    assert re.search(r'W\(l\): f32\[D, D\] @pattern\("W\.\{l\}"\)', formatted)


def test_line_ends_of_other_systems_are_understood() -> None:
    assert format_source(SOURCE.replace("\n", "\r\n")) == format_source(SOURCE)


def test_a_text_with_syntax_errors_is_refused_and_one_with_unknown_names_is_formatted() -> None:
    with pytest.raises(GraphError) as caught:
        format_source("block entry { op }")
    assert caught.value.code == Code.SYNTAX
    assert format_source("block entry{op f(nobody)>>nothing;}") == "block entry {\n    op f(nobody) >> nothing;\n}\n"
