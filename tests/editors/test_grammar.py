"""The TextMate grammar: well-formed, portable, and of one mind with the language's own tokens."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.editors.textmate import Grammar

from openinfer.dtypes import ALIASES, DTYPES
from openinfer.ir.words import RESERVED
from openinfer.lang.tokens import CONTEXTUAL, MEMORY_WORDS, tokens

ROOT = Path(__file__).parents[2]
EDITORS = ROOT / "editors"
DOCUMENT: dict[str, Any] = json.loads((EDITORS / "oig.tmLanguage.json").read_text(encoding="utf-8"))
FILES = sorted([*ROOT.glob("tests/ir/golden/*.oig"), *ROOT.glob("examples/**/*.oig")])
SNIPPETS = sorted(ROOT.glob("tests/seeds/language/*.oig.txt"))

CURRENT = r"""
// Every word of the current dialect.
sizes { T <= 2_048; S := 0x80; R := 0b101; }
dynamic { x: f32[B, D]; c: bool; }
volatile { y: bf16[B] @init(5.0); W(l): f32[D, 3*(D+1)] @pattern("W.{l}\n\u00e9"); }
constants { alpha: f32 pattern("old"); }
constant { beta: f8e5m2 @ref("beta"); }
persistent { step: i32 @init(-1); K(l, t): t2[H] @table @fixed(l=24, t=2048) @auto_dim(l); }
block entry with { placement = "gpu", level = 3 } {
    assign h: f32[B, D];  /* a comment
       of two lines: op assign "text" */
    op matmul(x, W[l], acc=f32, eps=1e-5, low=-inf, fast=true, mode="a") >> h, y with { fuse = true };
    transfer x >> h;
    loop layers (l in 0..num_layers) {
        scope "attention" {
            cache.read K[l, 0..step+1] >> k;
            cache . write k >> K[l, step % 4];
        }
    }
    cache.increment 5 step; cache.decrement step; cache.reset K[l];
    low, high = op split(h[0..2, ], 0.25, -nan);
    cache.increment step/3 count;
    branch c ok bad; branch algorithm;
    dep after(matmul) before(cache.write);
    barrier; yield x, y; await x;
    return y, nan_count;
}
"""

CLASSIC = r"""
let (g, out) = graph! {
    model: model,
    inputs { image : f32 [B, 3]; }
    outputs { y : f32 []; }
    state { c: buffer(f16, [B, T]); }
    block entry {
        t0 = op add(a=x, b=model["scale"]);
        h = op matmul(a=h, b=model[fmt("W.{l}")])
            with { fuse = true };
        effect write(c, index=step - 1, value=h);
        h2 = effect read(c, index=i, axis=1);
        return h2;
    }
};
"""


def scope(text: str, place: str) -> str:
    """The innermost scope of the characters between the marks; the place must occur once in the text."""
    before, marked, after = re.fullmatch(r"(.*?)«(.*)»(.*)", place, re.DOTALL).groups()  # type: ignore[union-attr]
    plain = before + marked + after
    assert text.count(plain) == 1, f"{plain!r} must occur once"
    start = text.index(plain) + len(before)
    found = set(Grammar(DOCUMENT).scopes(text)[start : start + len(marked)])
    assert len(found) == 1, f"{place}: {found}"
    return found.pop()[-1].removesuffix(".oig")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("// «Every word» of", "comment.line.double-slash"),
        ("«sizes» {", "keyword.other.section"),
        ("«T» <=", "variable.other.size"),
        ("T «<=»", "keyword.operator.size"),
        ("<= «2_048»", "constant.numeric.integer"),
        ("S «:=»", "keyword.operator.size"),
        ("«0x80»", "constant.numeric.hex"),
        ("«0b101»", "constant.numeric.binary"),
        ("«dynamic» {", "keyword.other.section"),
        ("«constants» {", "keyword.other.section"),
        ("«persistent» {", "keyword.other.section"),
        ("{ «x»: f32", "variable.other.definition"),
        ("c: «bool»", "storage.type.dtype"),
        ("y: «bf16»", "storage.type.dtype"),
        ("beta: «f8e5m2»", "storage.type.dtype"),
        ("K(l, t): «t2»", "storage.type.dtype"),
        ("«K»(l, t): t2", "variable.other.definition"),
        ("@init(«5.0»)", "constant.numeric.float"),
        ("@init(-«1»)", "constant.numeric.integer"),
        ("@«table»", "entity.other.attribute-name"),
        ("«@»table", "punctuation.definition.attribute"),
        ("@«auto_dim»", "entity.other.attribute-name"),
        ('«pattern»("old")', "entity.other.attribute-name"),
        ('("W.«{l}»', "constant.other.placeholder"),
        (r"{l}«\n»", "constant.character.escape"),
        (r"\n«\u00e9»", "constant.character.escape"),
        ('"«beta»"', "string.quoted.double"),
        ("3«*»(D", "keyword.operator.arithmetic"),
        ("«block» entry", "keyword.other.block"),
        ("block «entry»", "entity.name.type.block"),
        ("«with» { placement", "keyword.other.with"),
        ("{ «placement» =", "entity.other.attribute-name.constraint"),
        ("«level» = 3", "entity.other.attribute-name.constraint"),
        ("«assign» h", "keyword.other.assign"),
        ("assign «h»", "variable.other.definition"),
        ('lines: «op assign "text"» */', "comment.block"),
        ("«op» matmul", "keyword.other.op"),
        ("op «matmul»", "entity.name.function.op"),
        ("x, «W»[l], acc", "variable.other"),
        ("«acc»=f32", "variable.parameter"),
        ("acc=«f32»", "storage.type.dtype"),
        ("eps=«1e-5»", "constant.numeric.float"),
        ("low=-«inf»", "constant.language.float"),
        ("fast=«true»", "constant.language.boolean"),
        ('"a") «>>» h', "keyword.operator.into"),
        ("«fuse» = true", "entity.other.attribute-name.constraint"),
        ("«transfer» x", "keyword.other"),
        ("«loop» layers", "keyword.control.loop"),
        ("loop «layers»", "entity.name.type.loop"),
        ("(l «in» 0", "keyword.control"),
        ("in «0»..num", "constant.numeric.integer"),
        ("in 0«..»num", "keyword.operator.range"),
        ("«scope» ", "keyword.other.scope"),
        ("«cache.read»", "support.function.cache"),
        ("«cache . write»", "support.function.cache"),
        ("«cache.decrement»", "support.function.cache"),
        ("«cache.reset»", "support.function.cache"),
        ("step «%» 4", "keyword.operator.arithmetic"),
        ("«low», high", "variable.other.definition"),
        ("low, «high» =", "variable.other.definition"),
        ("high = «op»", "keyword.other.op"),
        ("], «0.25»", "constant.numeric.float"),
        ("-«nan»)", "constant.language.float"),
        ("step«/»3", "keyword.operator.arithmetic"),
        ("«branch» c", "keyword.control.branch"),
        ("«branch» algorithm", "keyword.control.branch"),
        ("«dep» ", "keyword.other"),
        ("«after»(", "keyword.other.dep"),
        ("before(«cache.write»)", "support.function.cache"),
        ("«barrier»", "keyword.control"),
        ("«yield»", "keyword.control"),
        ("«await»", "keyword.control"),
        ("«return»", "keyword.control"),
        ("«nan_count»", "variable.other"),
        ("nan_count«;»", "punctuation.terminator.statement"),
    ],
)
def test_the_current_dialect(place: str, expected: str) -> None:
    assert scope(CURRENT, place) == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("«let» (g", "keyword.other.let"),
        ("«graph»!", "keyword.other.graph"),
        ("graph«!»", "keyword.operator.macro"),
        ("«model»: model,", "support.variable.model"),
        ("model: «model»,", "support.variable.model"),
        ("«inputs» {", "keyword.other.section"),
        ("«outputs» {", "keyword.other.section"),
        ("«state» {", "keyword.other.section"),
        ("«image» :", "variable.other.definition"),
        ("«buffer»(", "storage.type.buffer"),
        ("«t0» = op", "variable.other.definition"),
        ("op «add»", "entity.name.function.op"),
        ("(«a»=x", "variable.parameter"),
        ('«model»["scale"]', "support.variable.model"),
        ('«fmt»("W', "support.function.fmt"),
        ("«with» {", "keyword.other.with"),
        ("effect «write»", "entity.name.function.effect"),
        ("h2 = «effect» read", "keyword.other.effect"),
    ],
)
def test_the_classic_dialect(place: str, expected: str) -> None:
    assert scope(CLASSIC, place) == expected


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_every_reserved_word_is_highlighted_wherever_it_stands(word: str) -> None:
    for text in (word, f"{word};", f"({word})", f"{word} {{", f"op f(x, {word}) >> y;", f"with {{ k = {word} }}"):
        start = text.index(word, 5 if "op f" in text or "k =" in text else 0)
        found = {scopes[-1] for scopes in Grammar(DOCUMENT).scopes(text)[start : start + len(word)]}
        assert len(found) == 1, (text, found)
        assert found.pop().startswith(("keyword.", "storage.", "support.", "constant.")), text


@pytest.mark.parametrize("word", sorted(RESERVED | set(CONTEXTUAL)))
def test_a_longer_name_is_only_a_name(word: str) -> None:
    for name in (f"{word}_x", f"x{word}", f"{word}9_"):
        assert {scopes[-1] for scopes in Grammar(DOCUMENT).scopes(name)} == {"variable.other.oig"}


@pytest.mark.parametrize("word", sorted(set(MEMORY_WORDS) | {"state", "sizes"}))
def test_section_words_are_names_elsewhere(word: str) -> None:
    text = f"op f({word}, x) >> {word}; block {word} {{"
    found = Grammar(DOCUMENT).scopes(text)
    assert found[text.index(word)][-1] == "variable.other.oig"
    assert found[text.rindex(word)][-1] == "entity.name.type.block.oig"
    assert Grammar(DOCUMENT).scopes(f"{word} {{")[0][-1] == "keyword.other.section.oig"


@pytest.mark.parametrize("name", sorted({*DTYPES, *ALIASES}))
def test_every_dtype_is_a_type(name: str) -> None:
    assert Grammar(DOCUMENT).scopes(f"x: {name}[B];")[3][-1] == "storage.type.dtype.oig"


@pytest.mark.parametrize("text", ["x # y", "x ? y", "a ~ b", '"bad \\q"', "x.y", "é"])
def test_what_the_language_has_no_use_for_is_marked(text: str) -> None:
    assert any(scopes[-1].startswith("invalid.") for scopes in Grammar(DOCUMENT).scopes(text))


def test_a_string_ends_with_its_line_and_a_comment_does_not() -> None:
    found = Grammar(DOCUMENT).scopes('"open\nop f\n/* a\nop */ op g')
    text = [scopes[-1] for scopes in found]
    assert text[6] == "keyword.other.op.oig"
    assert text[16] == "comment.block.oig"
    assert text[-1] == "entity.name.function.op.oig"


# --- whole files ----------------------------------------------------------------------------------------------------

_EXPECTED = {
    "DTYPE": ("storage.type.dtype",),
    "STRING": ("string.", "punctuation.definition.string", "constant.character", "constant.other.placeholder"),
    "INT": ("constant.numeric",),
    "FLOAT": ("constant.numeric",),
    "BOOL": ("constant.language",),
    "SPECIAL": ("constant.language",),
    "IDENT": ("variable.", "entity.", "keyword.other", "storage.type.buffer"),
    "OPERATOR": ("keyword.operator",),
    "MINUS": ("keyword.operator",),
    "RANGE": ("keyword.operator",),
    "_INTO": ("keyword.operator",),
    "_EQUALS": ("keyword.operator",),
    "SIZE_RELATION": ("keyword.operator",),
}
_WORD = ("keyword.", "support.")
_OTHER = ("punctuation.", "keyword.operator")


def check(text: str) -> None:
    """The grammar and the language's own tokens must agree on what each character is."""
    found = Grammar(DOCUMENT).scopes(text)
    rest = {at for at, character in enumerate(text) if not character.isspace()}
    for token in tokens(text, lambda: {"DTYPE"}):
        place = range(token.start_pos, token.end_pos)
        rest -= set(place)
        expected = _EXPECTED.get(token.type) or (_WORD if token.value[0].isalpha() else _OTHER)
        for at in place:
            assert found[at][-1].startswith(expected), (token, text[max(0, at - 20) : at + 20], found[at])
    assert all(found[at][1].startswith("comment.") for at in rest), "what is no token is a comment"
    assert not any(name.startswith("invalid.") for scopes in found for name in scopes)


@pytest.mark.parametrize("path", [*FILES, *SNIPPETS], ids=lambda path: path.name)
def test_files_are_highlighted_as_the_language_reads_them(path: Path) -> None:
    check(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", [CURRENT, CLASSIC], ids=["current", "classic"])
def test_both_dialects_are_highlighted_as_the_language_reads_them(text: str) -> None:
    check(text)


def test_there_are_files_to_look_at() -> None:
    assert len(FILES) >= 8


# --- the documents --------------------------------------------------------------------------------------------------


def expressions(rule: Any) -> Iterator[str]:
    if isinstance(rule, dict):
        yield from (rule[key] for key in ("match", "begin", "end") if key in rule)
        for value in rule.values():
            yield from expressions(value)
    elif isinstance(rule, list):
        for value in rule:
            yield from expressions(value)


@pytest.mark.parametrize("expression", sorted(set(expressions(DOCUMENT))))
def test_every_expression_means_the_same_to_oniguruma_and_python(expression: str) -> None:
    re.compile(expression)
    special = re.findall(r"\\[A-Za-z]|\(\?.{1,2}|[*+?}]\+|\[\[|&&", expression)
    portable = {r"\b", r"\s", r"\n", r"\u", "(?:", "(?=", "(?!"}
    assert {found[:3] if found[0] == "(" else found for found in special} <= portable


def test_every_part_of_the_grammar_is_used_and_every_scope_is_ours() -> None:
    text = json.dumps(DOCUMENT)
    included = set(re.findall(r'"include": "#(\w+)"', text))
    assert included == set(DOCUMENT["repository"])
    assert all(name.endswith(".oig") for name in re.findall(r'"name": "([a-z-]+\.[^"]*)"', text))
    assert (DOCUMENT["scopeName"], DOCUMENT["fileTypes"]) == ("source.oig", ["oig"])


def test_the_extension_points_at_files_that_exist() -> None:
    folder = EDITORS / "vscode"
    manifest = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    (language,) = manifest["contributes"]["languages"]
    (grammar,) = manifest["contributes"]["grammars"]
    assert (folder / grammar["path"]).resolve() == EDITORS / "oig.tmLanguage.json"
    assert (grammar["scopeName"], grammar["language"]) == (DOCUMENT["scopeName"], language["id"])
    assert language["extensions"] == [f".{ending}" for ending in DOCUMENT["fileTypes"]]
    configuration = json.loads((folder / language["configuration"]).read_text(encoding="utf-8"))
    assert configuration["comments"] == {"lineComment": "//", "blockComment": ["/*", "*/"]}
    assert configuration["brackets"] == [["{", "}"], ["[", "]"], ["(", ")"]]
