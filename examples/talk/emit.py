"""Write the C program: ``python -m examples.talk.emit``, then ``make -C build/examples/talk``."""

import sys
from pathlib import Path

from examples.talk.example import HERE, MODEL, plans, tokenizer_of

from openinfer import ModelLoader

BUILD = Path("build/examples/talk")
MAKEFILE = """# Two generated libraries and one program that talks.
CFLAGS ?= -O3 -Wall -Wextra
LIBRARIES = prefill/build/libprefill.a decode/build/libdecode.a

talk: talk.c pieces.h $(LIBRARIES)
	$(CC) -std=c11 $(CFLAGS) -pthread -Iprefill/include -Idecode/include -o $@ talk.c $(LIBRARIES)

$(LIBRARIES):
	$(MAKE) -C $(firstword $(subst /, ,$@))
"""


def c_string(text: str) -> str:
    """A piece of ASCII text as C writes it."""
    return '"' + "".join(one if one.isalnum() or one == " " else f"\\{ord(one):03o}" for one in text) + '"'


def emit(folder: Path, device: str) -> None:
    """Write both projects, the vocabulary, the program and its Makefile into a folder."""
    with ModelLoader.open(MODEL) as model:
        for plan in plans(model, device):
            plan.emit(folder / plan.project.name)
        pieces = tokenizer_of(model).pieces
    lines = [f"    {c_string(piece)}," for piece in ["", *pieces[1:]]]
    head = f"#define PIECES {len(pieces)}\n\nstatic const char *const pieces[PIECES] = {{\n"
    (folder / "pieces.h").write_text("/* The vocabulary of talk.oinf. */\n" + head + "\n".join(lines) + "\n};\n")
    (folder / "talk.c").write_text((HERE / "talk.c").read_text())
    (folder / "Makefile").write_text(MAKEFILE)


if __name__ == "__main__":
    emit(BUILD, sys.argv[1] if len(sys.argv) > 1 else "cpu")
    print(f"the program is in {BUILD}: make -C {BUILD} && {BUILD}/talk")
