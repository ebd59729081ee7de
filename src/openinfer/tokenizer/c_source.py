"""The same tokenizer in plain C: fixed source, tables for splitting text, and the vocabulary as one binary file."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

import numpy as np

from openinfer.tokenizer.chat import ChatFormat, Message
from openinfer.tokenizer.encoding import Tokenizer
from openinfer.tokenizer.patterns import CLASSES, SPACE, Alternative, SplitPattern
from openinfer.tokenizer.vocabulary import BytePieces, ScoredPieces, Vocabulary

_MAGIC, _VERSION = b"OITK", 1
_SYSTEM, _USER = "\0system", "\0user"
"""Placeholders for the texts of a conversation, which the program fills in."""
_PLAIN = bytes(one for one in range(32, 127) if chr(one) not in '\\"?')


def c_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The files of a tokenizer in C: ``tokenizer.h``, ``tokenizer.c``, ``tokenizer_tables.h`` and ``tokenizer.bin``."""
    fixed = files("openinfer.tokenizer") / "runtime"
    return {
        "tokenizer.h": (fixed / "tokenizer.h").read_bytes(),
        "tokenizer.c": (fixed / "tokenizer.c").read_bytes(),
        "tokenizer_tables.h": ("\n".join(_tables(tokenizer.vocabulary)) + "\n").encode(),
        "tokenizer.bin": _binary(tokenizer.vocabulary),
    }


# --- the vocabulary ---------------------------------------------------------------------------------------------------


def _binary(one: Vocabulary) -> bytes:
    """Eight numbers, then the arrays of ``tokenizer`` in order, as 32-bit numbers, then the texts."""
    ends = np.cumsum([0, *(len(text) for text in one.pieces)])
    is_scored = isinstance(one.scheme, ScoredPieces)
    ranks = one.scheme.ranks if isinstance(one.scheme, ScoredPieces) else (0,) * len(one.pieces)
    is_looked_up = is_scored or (isinstance(one.scheme, BytePieces) and one.scheme.takes_whole_words)
    by_text = [one.ordinary[text] for text in sorted(one.ordinary)] if is_looked_up else []
    wholes = [one.whole[text] for text in sorted(one.whole, key=lambda text: (-len(text), text))]
    merges = one.scheme.merges if isinstance(one.scheme, BytePieces) else {}
    rows = [number for pair, found in sorted(merges.items()) for number in (*pair, *found)]
    text = b"".join(one.pieces)
    head = [_VERSION, len(one.pieces), len(merges), len(by_text), len(wholes), len(text), 0]
    arrays: Sequence[Sequence[int]] = (head, ends.tolist(), one.kinds, ranks, by_text, wholes, rows)
    numbers = b"".join(np.array(values, "<u4").tobytes() for values in arrays)
    return _MAGIC + numbers + np.array(one.byte_ids, "<i4").tobytes() + text


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables(one: Vocabulary) -> Iterator[str]:
    scheme = one.scheme
    yield "/* How this tokenizer splits text. Made by OpenInfer: do not edit. */"
    yield ""
    if isinstance(scheme, ScoredPieces):
        yield "#define TOKENIZER_SCORED 1"
        yield f"#define TOKENIZER_SPACE_BEFORE {int(scheme.has_space_before)}"
        return
    yield "#define TOKENIZER_SCORED 0"
    yield f"#define TOKENIZER_WHOLE_WORDS {int(scheme.takes_whole_words)}"
    yield f"#define TOKENIZER_SPACE {SPACE}"
    yield ""
    yield from _classes(scheme.patterns)
    yield from _patterns(scheme.patterns)


def _alternatives(patterns: Sequence[SplitPattern]) -> list[Alternative]:
    return [one for pattern in patterns for one in pattern.alternatives]


def _classes(patterns: Sequence[SplitPattern]) -> Iterator[str]:
    """The character classes that the patterns use, as ranges of Unicode."""
    alternatives = _alternatives(patterns)
    used = SPACE
    for one in alternatives:
        for item in one.items:
            used |= item.characters.classes
    names = {1 << at: (letter, table) for at, (letter, table) in enumerate(CLASSES.items())}
    chosen = {bit: found for bit, found in names.items() if used & bit}
    for bit, (letter, table) in chosen.items():
        shown = "white space" if letter == "s" else f"the categories {letter}* of Unicode"
        yield f"/* {shown}: first and last character of each range */"
        yield f"static const uint32_t tokenizer_class_{bit}[] = {{"
        yield from _filled([f"0x{number:X}," for number in table])
        yield "};"
        yield ""
    yield "static const struct {"
    yield "    const uint32_t *ranges;"
    yield "    uint32_t count, bit;"
    yield "} tokenizer_classes[] = {"
    yield from (f"    {{ tokenizer_class_{bit}, {len(table) // 2}, {bit} }}," for bit, (_, table) in chosen.items())
    yield "};"
    yield ""


def _filled(words: Sequence[str], width: int = 116) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) + 1 > width:
            yield "    " + line
            line = ""
        line = f"{line} {word}" if line else word
    yield "    " + line


_TYPES = """/* From least to most characters of some classes and ranges; negated, of all others. */
typedef struct {
    uint32_t classes, first_range, ranges, is_negated;
    int64_t least, most;
} tokenizer_item;

typedef struct {
    uint32_t first_item, items, is_before_space;
} tokenizer_alternative;

typedef struct {
    uint32_t first_alternative, alternatives;
} tokenizer_pattern;
"""


def _patterns(patterns: Sequence[SplitPattern]) -> Iterator[str]:
    ranges: list[str] = ["{ 0, 0 },"]
    items: list[str] = []
    rows: list[str] = []
    for one in _alternatives(patterns):
        text = one.text.replace("*/", "* /")
        rows.append(f"    {{ {len(items)}, {len(one.items)}, {int(one.is_before_space)} }}, /* {text} */")
        for item in one.items:
            own = item.characters
            counts = f"{len(ranges)}, {len(own.ranges)}, {int(own.is_negated)}, {item.least}, {item.most}"
            items.append(f"    {{ {own.classes}, {counts} }},")
            ranges += [f"{{ 0x{first:X}, 0x{last:X} }}," for first, last in own.ranges]
    yield from _TYPES.splitlines()
    yield ""
    yield from ("static const uint32_t tokenizer_ranges[][2] = {", *_filled(ranges), "};", "")
    yield from ("static const tokenizer_item tokenizer_items[] = {", *items, "};", "")
    yield from ("static const tokenizer_alternative tokenizer_alternatives[] = {", *rows, "};", "")
    yield "/* Each pattern splits what the previous one left; the first alternative that matches is a word. */"
    yield "static const tokenizer_pattern tokenizer_patterns[] = {"
    first = 0
    for pattern in patterns:
        yield f"    {{ {first}, {len(pattern.alternatives)} }},"
        first += len(pattern.alternatives)
    yield "};"


# --- conversations ----------------------------------------------------------------------------------------------------


def chat_header(tokenizer: Tokenizer, form: ChatFormat) -> str:
    """A header with the text around the messages of a conversation: tokens, texts, and slots for what people say."""
    begin = tokenizer.vocabulary
    first = [begin.begin] if begin.adds_begin and begin.begin is not None else []
    user = Message("user", _USER)
    openings = {
        "chat_with_system": form.parts([Message("system", _SYSTEM), user]),
        "chat_without_system": form.parts([user]),
    }
    turns: Mapping[str, list[str]] = {
        name: [*(_token(one) for one in first), *_parts(tokenizer, list(parts))] for name, parts in openings.items()
    }
    following = [(form.assistant.after, True), *form.parts([user])]
    lines = [
        f"/* Conversations in the format {form.name}. Made by OpenInfer: do not edit. */",
        "",
        "enum { CHAT_TEXT = -1, CHAT_SYSTEM = -2, CHAT_USER = -3, CHAT_END = -4 };",
        "",
        "/* A token, a text (CHAT_TEXT), or the slot of a message (CHAT_SYSTEM, CHAT_USER). */",
        "typedef struct {",
        "    int32_t token;",
        "    const char *text;",
        "} chat_part;",
    ]
    for name, parts in {**turns, "chat_next": _parts(tokenizer, following)}.items():
        lines += ["", f"static const chat_part {name}[] = {{", *parts, "    { CHAT_END, 0 },", "};"]
    ends = ", ".join(str(one) for one in sorted(begin.ends)) or "-1"
    lines += ["", "/* Tokens that end an answer. */", f"static const int32_t chat_ends[] = {{ {ends} }};"]
    return "\n".join(lines) + "\n"


def _token(number: int) -> str:
    return f"    {{ {number}, 0 }},"


def _parts(tokenizer: Tokenizer, parts: Sequence[tuple[str, bool]]) -> list[str]:
    found = []
    for text, is_markup in parts:
        if not is_markup:
            found.append("    { CHAT_SYSTEM, 0 }," if text == _SYSTEM else "    { CHAT_USER, 0 },")
            continue
        found += [_token(one) if isinstance(one, int) else _text(one) for one in tokenizer.fragments(text)]
    return found


def _text(data: bytes) -> str:
    """Bytes as a C string; octal escapes always have three digits, so they never run into a following digit."""
    shown = "".join(chr(one) if one in _PLAIN else f"\\{one:03o}" for one in data)
    return f'    {{ CHAT_TEXT, "{shown}" }},'
