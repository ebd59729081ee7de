"""``python -m examples.chat``: from the package to a C program in the terminal; options are those of the program."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.chat.emit import emit
from examples.chat.example import BUILD, CONTEXT, HERE, PACKAGE, SYSTEM, imported_model, model_file

import openinfer

PROGRAM = BUILD / "chat"


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is going on, and how long it took."""
    print(f"{what} ... ", end="", flush=True, file=sys.stderr)
    start = time.perf_counter()
    yield
    print(f"{time.perf_counter() - start:.1f} s", file=sys.stderr)


def is_built() -> bool:
    """Whether the program is there, and newer than what it is made of."""
    package = Path(openinfer.__file__).parent
    sources = [*HERE.iterdir(), *(path for path in package.rglob("*") if path.suffix in (".py", ".c", ".h"))]
    return PROGRAM.exists() and PROGRAM.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def build() -> None:
    """Make the program."""
    with timed(f"the package {PACKAGE}"):
        file = model_file()
    with timed(f"{file.name} to graphs for prompts and tokens, {CONTEXT} tokens of context"):
        model = imported_model(file)
    with timed(f"C for this machine in {BUILD}"):
        emit(model, BUILD, SYSTEM)
    with timed("compiled by make"):
        subprocess.run(["make", "-s", "-C", str(BUILD), "-j2"], check=True)


def help_text() -> str:
    """What the program says of itself at the head of its source: to be read before it is made."""
    head = (HERE / "chat.c").read_text().partition("*/")[0].removeprefix("/* ")
    return "\n".join(line.removeprefix("   ") for line in head.splitlines()).rstrip()


def main() -> None:
    """Become the program: it has the terminal, and Ctrl-C, for itself."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text())
        return
    if not is_built():
        build()
    os.chdir(BUILD)
    os.execv(f"./{PROGRAM.name}", [PROGRAM.name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
