"""A program in plain C around generated libraries: the projects, a source, a Makefile, and what it makes."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile

from openinfer import Plan

MAKEFILE = """# {names}, generated, and one program around {them}.
CFLAGS ?= -O2 -Wall -Wextra
LIBRARIES = {libraries}

{program}: {program}.c $(LIBRARIES)
	$(CC) -std=c11 $(CFLAGS) -pthread {includes} -o $@ {program}.c $(LIBRARIES) -lm

$(LIBRARIES):
	$(MAKE) -C $(firstword $(subst /, ,$@))
"""


def c_program(source: Path, plans: Sequence[Plan], folder: Path) -> Path:
    """Write the projects of these plans and a C file into a folder, make the program, and return its path."""
    names = [plan.project.name for plan in plans]
    for plan, name in zip(plans, names, strict=True):
        plan.emit(folder / name)
    copyfile(source, folder / source.name)
    text = MAKEFILE.format(
        names=" and ".join(names),
        them="it" if len(names) == 1 else "them",
        libraries=" ".join(f"{name}/build/lib{name}.a" for name in names),
        includes=" ".join(f"-I{name}/include" for name in names),
        program=source.stem,
    )
    (folder / "Makefile").write_text(text)
    made = subprocess.run(["make", "-C", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise SystemExit(f"make -C {folder} failed:\n{made.stderr}")
    return folder / source.stem
