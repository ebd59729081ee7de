"""Names of graphs and models never become tokens by themselves: hostile ones give the same program as harmless ones."""

import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from openinfer import ModelLoader, graph
from openinfer.ir.values import quote
from openinfer.ir.words import RESERVED
from openinfer.oinf import save_file
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cstyle.names import comment, project_name, string
from openinfer.synth.targets.project import Golden

WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Alignas _Bool
_Complex _Generic _Static_assert asm typeof errno NULL linux unix i386 EOF stdin stdout INT64_C UINT64_C INT64_MAX
SIZE_MAX true_ false_ bool_ I complex main exit abort malloc free memcpy memset printf fail bad part pick grid
shape c in out at state arena weights heap status failure is_broken has_outputs context inputs outputs t1 t2 w0 w1
wi1 k0 net net_init net_step net_context oi_pick oi_fill oi_index_add OI_AXES OI_NAN block_entry block i_ s_ v_ x0
y0 acc __FILE__ __LINE__ __func__ __attribute__ _Pragma defined include define class namespace template this new
delete
"""
IDENTIFIERS = WORDS.split()
PIECES = [
    "*/",
    "/*",
    "//",
    "??/",
    "??)",
    '"',
    "\\",
    "\n",
    "\r",
    "\0",
    "\t",
    "%s",
    "${x}",
    "$(rm)",
    "`",
    "#",
    "\u202e",
    "é",
]
PIECES += ["*/ int x; /*", "\\\n", "'", "|", "<script>", "\x7f", "中", "\U0001f600", "];", "{", "}", "(", ")", ";", "a"]


def identifiers(count: int) -> list[str]:
    """Words of C and of the generated code, and long and short inventions."""
    rng = random.Random(5)
    found = [name for name in IDENTIFIERS if name not in RESERVED]
    while len(found) < count:
        length = rng.choice([1, 2, 30, 48, 49, 63, 64, 128, 255])
        found.append("".join(rng.choice("abXY_019") for _ in range(length)))
    return [name for name in dict.fromkeys(found) if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)][:count]


def texts(count: int) -> list[str]:
    """What a graph's scopes may be called: anything; here up to 255 bytes of it."""
    rng = random.Random(6)
    found: list[str] = []
    while len(found) < count:
        text = "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 2, 5, 60])))
        while len(text.encode()) > 255:
            text = text[:-1]
        found.append(text)
    return list(dict.fromkeys(found))


GRAPH = """
sizes {{ {size} <= 4; }}
dynamic {{ {x}: f32[{size}, 2]; }}
constant {{ {w}: f32[2, 2] @ref({tensor}); }}
volatile {{ {y}: f32[{size}, 2]; }}
persistent {{ {n}: i32; {table}({key}): f32[2] @table @fixed({key}=4); {init}: f32[2] @ref({other}); }}
block entry {{
    scope {scope} {{
        op matmul({x}, {w}) >> {y};
        loop {name} ({index} in 0..2) {{ cache.write {init} >> {table}[{index}]; }}
    }}
    branch {block};
    op add({y}, model[{tensor2}]) >> {y};
    cache.increment {n};
    return {y};
}}
block {block} {{ op relu({y}) >> {y}; return; }}
"""
SLOTS = ("size", "x", "w", "y", "n", "table", "key", "init", "name", "index", "block")


def tensor_names(count: int) -> list[str]:
    """What a model file can call a tensor: letters, digits, and dots, dashes and underscores in any order."""
    rng = random.Random(8)
    found = ["int", "errno", "--", "..", "-", "9", "a--b", "_"]
    while len(found) < count:
        length = rng.choice([1, 3, 20, 255])
        found.append("".join(rng.choice("aZ0.-_") for _ in range(length)))
    return list(dict.fromkeys(found))


def plan_of(names: dict[str, str], tensors: list[str], scope: str, project: str, folder: Path) -> Plan | None:
    path = folder / "model.oinf"
    values = [np.eye(2, dtype=np.float32), np.ones(2, np.float32), np.ones(2, np.float32)]
    save_file(path, dict(zip(tensors, values, strict=True)))
    graph_names = {**names, "tensor": quote(tensors[0]), "other": quote(tensors[1]), "tensor2": quote(tensors[2])}
    text = GRAPH.format(**graph_names, scope=quote(scope))
    return Synthesizer("generic", name=project).synthesize(ModelLoader.open(path), graph(text))


def tokens(text: str | bytes, names: dict[str, str]) -> list[str]:
    """The tokens of a C file as a compiler sees them: lines joined, comments gone, strings without content.

    Names that follow a prefix are given back as what they stand for.
    """
    assert isinstance(text, str)
    found = re.sub(r"\?\?/", "\\\\", text).replace("\\\n", "")
    parts = re.findall(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\w+|[^\w\s]", found, re.DOTALL)
    back = {name: slot for slot, name in names.items()}
    kept: list[str] = []
    for part in parts:
        if part.startswith(("/*", "//")):
            continue
        if part.startswith('"'):
            kept += ['""'] * (kept[-1:] != ['""'])  # a long string is several, which a compiler joins
            continue
        if part == ")" and kept[-2:] == ["(", '""']:
            kept[-2:] = ['""']  # a long string in a list stands in parentheses
            continue
        prefix, _, rest = part.partition("_")
        own = back.get(rest) if prefix in ("v", "s", "i", "block", "end") else None
        kept.append(part if own is None else f"{prefix}_<{own}>")
    return kept


HARMLESS = {slot: f"{slot}q" for slot in SLOTS}


def test_five_hundred_hostile_names_give_the_same_tokens(tmp_path: Path) -> None:
    words, odd, models = identifiers(500), texts(300), tensor_names(100)
    tame = plan_of(HARMLESS, ["ta", "tb", "tc"], "scope", "net", tmp_path)
    assert tame is not None
    tame_files = tame.files(golden_of(HARMLESS))
    wanted = {path: tokens(text, HARMLESS) for path, text in tame_files.items() if is_c(path)}
    rng = random.Random(7)
    used = 0
    for start in range(0, 500, len(SLOTS)):
        chosen = [words[(start + place) % len(words)] for place in range(len(SLOTS))]
        # Where names sort decides the order of some steps, which is not what is tested here.
        names = dict(zip(sorted(SLOTS, key=lambda slot: HARMLESS[slot]), sorted(chosen), strict=True))
        tensors = rng.sample(models, 3)
        plan = plan_of(names, tensors, rng.choice(odd), "net", tmp_path)
        assert plan is not None
        files = plan.files(golden_of(names))
        for path, content in files.items():
            assert isinstance(content, bytes) or content.isascii(), path
            assert isinstance(content, bytes) or "\r" not in content, path
        short = {slot: name for slot, name in names.items() if len(name) <= 48}
        for path, tame_tokens in wanted.items():
            found = tokens(files[path], short)
            assert len(found) == len(tame_tokens), (path, names)
            for own, other in zip(found, tame_tokens, strict=True):
                assert own == other or is_generated(own, other, names), (path, own, other, names, tensors)
        assert files["Makefile"] == tame_files["Makefile"]
        used += len(SLOTS) + 4
    assert used >= 500


def golden_of(names: dict[str, str]) -> list[Golden]:
    ones = np.ones((2, 2), np.float32)
    return [Golden({names["x"]: ones}, {names["y"]: ones})]


def is_c(path: str) -> bool:
    return path.endswith((".c", ".h"))


def is_generated(own: str, tame: str, names: dict[str, str]) -> bool:
    """A number in the place of a name that is too long; hashes; and sizes of kernels, which have their prefix."""
    if re.fullmatch(r"0x[0-9a-f]{2}|0x[0-9a-f]{8}u", own) and re.fullmatch(r"0x[0-9a-f]{2}|0x[0-9a-f]{8}u", tame):
        return True
    if tame in HARMLESS.values():
        slot = tame.removesuffix("q")
        return own in (names[slot], f"v_<{slot}>", f"s_<{slot}>") or re.fullmatch(r"[vs]_\d+", own) is not None
    prefix, _, slot = tame.partition("_<")
    if not slot:
        return False
    return re.fullmatch(rf"{prefix}_\d+", own) is not None or own == f"{prefix}_{names[slot[:-1]]}"


@pytest.mark.parametrize("start", [0, 40, 80, 120])
def test_hostile_names_compile_without_warnings(start: int, tmp_path: Path) -> None:
    words, odd, models = identifiers(500), texts(40), tensor_names(40)
    names = dict(zip(SLOTS, words[start : start + len(SLOTS)], strict=True))
    plan = plan_of(names, models[start // 8 : start // 8 + 3], odd[start // 8 + 3], names["n"], tmp_path)
    assert plan is not None
    plan.emit(tmp_path / "out", golden_of(names))
    command = ["make", "-s", "CFLAGS=-O0 -Wall -Wextra -Werror", "all", "build/selftest", "example"]
    ended = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:2000]


@pytest.mark.parametrize("text", [*texts(60), *IDENTIFIERS, "", "a" * 300, "../../etc/passwd", "a/b", "Model V2"])
def test_any_text_becomes_a_project_name(text: str) -> None:
    name = project_name(text)
    assert re.fullmatch("[a-z][a-z0-9_]{0,60}", name)
    assert name not in ("stdint", "string", "kernels", "main")


def test_comments_and_strings_hold_any_text(tmp_path: Path) -> None:
    odd = texts(200)
    lines = [f"/* {comment(text)} */ static const char s{place}[] = {string(text)};" for place, text in enumerate(odd)]
    checks = "".join(
        f"    static const unsigned char w{place}[] = {{ {', '.join(map(str, (*text.encode(), 0)))} }};\n"
        f"    if (sizeof w{place} != sizeof s{place}) return 1;\n"
        f"    if (memcmp(w{place}, s{place}, sizeof w{place}) != 0) return 2;\n"
        for place, text in enumerate(odd)
    )
    source = "#include <string.h>\n" + "\n".join(lines) + f"\nint main(void)\n{{\n{checks}    return 0;\n}}\n"
    assert source.isascii()
    (tmp_path / "odd.c").write_text(source, encoding="ascii", newline="\n")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", "odd", "odd.c"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:2000]
    assert subprocess.run(["./odd"], cwd=tmp_path, check=False).returncode == 0


def test_fields_have_the_names_of_the_graph_unless_these_mean_something_else(tmp_path: Path) -> None:
    """Whatever a caller includes before the header, in C or C++, the fields are what they are called."""
    odd = [name for name in IDENTIFIERS if name not in RESERVED]
    names = list(dict.fromkeys(["x", "image", "Dh", *odd, "vector", "v_x", "GPIOA", "stderr", "near"]))
    declared = " ".join(f"{name}: f32[T];" for name in names)
    text = f"sizes {{ T <= 4; }} dynamic {{ {declared} }} block entry {{ return {', '.join(names)}; }}"
    header = Synthesizer("generic", name="net").synthesize(None, graph(text)).files()["include/net.h"]
    assert isinstance(header, str)
    for wanted in ("*x;", "*image;", "*Dh;", "*arena;", "int64_t T;", "*v_int;", "*v_GPIOA;", "*v_v_x;", "*v_vector;"):
        assert wanted in header, wanted
    before = ("complex", "errno", "stdio", "stdlib", "string", "stdint", "unistd", "signal", "sys/stat", "netdb")
    code = "".join(f"#include <{name}.h>\n" for name in before) + f"#define GPIOA 7\n{header}"
    for language in ("c", "c++"):
        command = ["gcc", "-x", language, f"-std=gnu{'11' if language == 'c' else '++17'}", "-fsyntax-only", "-"]
        own = code.replace("#include <complex.h>\n", "") if language == "c++" else code
        ended = subprocess.run([*command, "-Wall", "-Werror"], input=own, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr[:2000]
