"""A program in plain C around generated libraries: the projects, a source, a Makefile, and what it makes."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from openinfer import Plan

SHARED = Path(__file__).with_name("c")
MAKEFILE = """# {names}, generated, and one program around {them}.
CFLAGS ?= -O2 -Wall -Wextra
LIBRARIES = {libraries}

{program}: {program}.c $(wildcard *.h) $(LIBRARIES)
	$(CC) -std=c11 $(CFLAGS) -pthread {includes} -o $@ {program}.c $(LIBRARIES) -lm

$(LIBRARIES):
	$(MAKE) -C $(firstword $(subst /, ,$@))
"""


def c_program(source: Path, plans: Sequence[Plan], folder: Path, headers: Mapping[str, str] | None = None) -> Path:
    """Write the projects of these plans and a C file into a folder, make the program, and return its path.

    Beside it lie the headers of ``examples/c`` that it includes, and those whose text is given.
    """
    names = [plan.project.name for plan in plans]
    for plan, name in zip(plans, names, strict=True):
        plan.emit(folder / name)
    text = source.read_text()
    (folder / source.name).write_text(text)
    shared = {path.name: path.read_text() for path in SHARED.glob("*.h") if f'"{path.name}"' in text}
    for header, content in {**shared, **(headers or {})}.items():
        (folder / header).write_text(content)
    makefile = MAKEFILE.format(
        names=" and ".join(names),
        them="it" if len(names) == 1 else "them",
        libraries=" ".join(f"{name}/build/lib{name}.a" for name in names),
        includes=" ".join(f"-I{name}/include" for name in names),
        program=source.stem,
    )
    (folder / "Makefile").write_text(makefile)
    made = subprocess.run(["make", "-C", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise SystemExit(f"make -C {folder} failed:\n{made.stderr}")
    return folder / source.stem
