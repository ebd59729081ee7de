"""Whether the functions that kernels call compile to the same machine code as those of another revision.

A change that only says the same in other words leaves all of it as it is::

    python -m tests.synth.runtime_objects --against REV
    python -m tests.synth.runtime_objects --against REV --only '*_f64' --show

Every function gets a wrapper and a loop over arrays, and is compiled by every compiler that is there, for several
processors. What is compared is assembly: labels are numbered anew in each function, and constants stand where they are
used, so that neither the order of definitions nor their number matters.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from importlib.resources import files
from shutil import which

from tests.synth.golden_c import ROOT, checked_out

from openinfer.synth.targets.cstyle.integers import integer_functions

NUMERICS = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
FLAGS = ["-std=c11", *NUMERICS, "-fno-asynchronous-unwind-tables", "-fno-ident", "-S", "-o", "-", "-xc", "-"]
LEVELS = ["-O2", "-O3 -mavx2 -mfma", "-O3 -march=skylake-avx512"]
BUILDS = [
    *(f"{cc} {level}" for cc in ("gcc", "clang") for level in LEVELS),
    "aarch64-linux-gnu-gcc -O3",
    "arm-none-eabi-gcc -O2 -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "arm-none-eabi-gcc -O2 -mcpu=cortex-m3",
]
_LABEL = re.compile(r"\.L\w+")
_CONSTANT = re.compile(r"\.(?:long|quad|word|byte|short|zero|single|double|xword|hword|4byte|8byte)\b")


def shared_names() -> list[str]:
    """All functions that kernels may call in every language, and those that they call."""
    found = set(integer_functions())
    for file in (files("openinfer.synth.targets.cstyle") / "runtime").iterdir():
        found |= set(re.findall(r"^//: (oi_\w+)", file.read_text(encoding="ascii"), re.MULTILINE))
    return sorted(found)


def assembly(text: str, build: str) -> dict[str, str]:
    """The functions of a C text in assembly, by their names."""
    said = subprocess.run([*build.split(), *FLAGS], input=text, capture_output=True, text=True, check=True).stdout
    blocks: dict[str, list[str]] = {}
    label = ""
    for line in re.sub(r"[ \t]*(?:#+ |@ |//).*$", "", said, flags=re.MULTILINE).splitlines():
        if match := re.match(r"^([\w.$]+):$", line):
            label = match[1]
            blocks[label] = []
        elif line.startswith("\t") and (not line.startswith("\t.") or _CONSTANT.match(line.strip())):
            blocks.setdefault(label, []).append(line)
    constants = {one: " ".join(lines) for one, lines in blocks.items() if lines and all(map(_is_data, lines))}
    found: dict[str, list[str]] = {}
    owner = ""
    for one, lines in blocks.items():
        if one in constants:
            continue
        if not one.startswith("."):
            owner = one
        found.setdefault(owner, []).extend([f"{one}:", *lines])
    return {name: _normal("\n".join(lines), constants) for name, lines in found.items()}


def _is_data(line: str) -> bool:
    return _CONSTANT.match(line.strip()) is not None


def _normal(text: str, constants: dict[str, str]) -> str:
    """One function with its constants in it, and labels counted from 0."""
    seen: dict[str, str] = {}

    def label(match: re.Match[str]) -> str:
        if match[0] in constants:
            return f"[{constants[match[0]]}]"
        return seen.setdefault(match[0], f".L{len(seen)}")

    return re.sub(r"\b(\w+)\.(\d+)\b", r"\1.N", _LABEL.sub(label, text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="HEAD", help="the revision to compare with")
    parser.add_argument("--only", default="*", help="only functions like this")
    parser.add_argument("--show", action="store_true", help="show the differences")
    options = parser.parse_args()
    wanted = [name for name in shared_names() if fnmatch(name, options.only)]
    texts = []
    with checked_out(options.against) as before:
        for tree in (before, ROOT / "src"):
            command = [sys.executable, "-m", "tests.synth.runtime_source", *wanted]
            told = dict(os.environ, PYTHONPATH=f"{tree}:{ROOT}")
            texts.append(subprocess.run(command, env=told, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    bad = 0
    for build in BUILDS:
        if which(build.split()[0]) is None:
            print(f"{build}: not installed")
            continue
        one, other = (assembly(text, build) for text in texts)
        mine = [name for name in one if name.startswith(("call_", "each_"))]
        changed = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
        print(f"{build}: {len(mine)} wrappers and loops, {len(changed)} others {' '.join(changed)}", flush=True)
        bad += len(changed)
        for name in changed if options.show else ():
            old, new = ((text.get(name) or "").splitlines() for text in (one, other))
            print("\n".join(difflib.unified_diff(old, new, "before", f"now {name}", lineterm="", n=1)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
