"""``make demo``: a language model from its file to a C program that talks, with what happens on the way."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.talk.emit import emit
from examples.talk.example import CONTEXT, DECODE, HERE, MODEL, Talker, plans
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from openinfer import ModelLoader

FOLDER = Path("build/demo")
PROMPT = "The for statement"
TOKENS = 160
SIMULATED = 40
console = Console(highlight=False, soft_wrap=True)


def heading(number: int, text: str) -> None:
    console.print(f"\n[bold cyan]{number}[/] [bold]{text}[/]")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is going on while it does, and how long it took."""
    start = time.perf_counter()
    with console.status(f"{what} ..."):
        yield
    console.print(f"  {what} [dim]{time.perf_counter() - start:.1f} s[/]")


def show_graph() -> None:
    """The attention of a layer, as it stands in the file."""
    lines = (HERE / "decode.oig").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if "loop" in line and "block" not in line)
    console.print(Syntax("\n".join(lines[first : first + 14]), "c", theme="ansi_dark", background_color="default"))
    console.print(f"  [dim]... {len(lines)} lines, {sum(1 for _ in DECODE.walk())} nodes in decode.oig[/]")


def simulated(model: ModelLoader) -> tuple[list[int], float]:
    """Tokens of the simulator, shown as they come, and how many it makes in a second."""
    talker = Talker(model, "simulator", temperature=0.7, seed=1)
    console.print(f"  [dim]{PROMPT}[/]", end="")
    start, tokens = time.perf_counter(), []
    for token in talker.tokens(PROMPT, SIMULATED):
        tokens.append(token)
        console.print(talker.tokenizer.pieces[token].replace("\n", "\n  "), end="", markup=False)
    console.print()
    return tokens, len(tokens) / (time.perf_counter() - start)


def spoken() -> tuple[str, float]:
    """What the C program says, and how long it takes."""
    command = ["./talk", "-n", str(TOKENS), "-t", "0.7", "-s", "1", PROMPT]
    start, text = time.perf_counter(), ""
    with subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        console.print("  ", end="")
        while piece := program.stdout.read(1):
            text += piece
            console.print(piece.replace("\n", "\n  "), end="", markup=False)
    return text, time.perf_counter() - start


def main() -> None:
    start = time.perf_counter()
    with ModelLoader.open(MODEL) as model:
        heading(1, "A model is one file")
        console.print(
            f"  {MODEL.relative_to(Path.cwd())}: {len(model.tensors)} tensors, {MODEL.stat().st_size:,} bytes"
        )
        console.print("  four layers, 870 thousand parameters in 8 bits; it has read the documentation of Python")

        heading(2, "A graph says what runs, in what order, in which memory")
        show_graph()

        heading(3, "The simulator runs it node by node")
        tokens, rate = simulated(model)

        heading(4, "The synthesizer writes C")
        with timed(f"prefill.oig and decode.oig to {FOLDER}"):
            emit(FOLDER, "cpu")
        plan = plans(model)[1]
        with timed("compiled by make, no library needed"):
            subprocess.run(["make", "-C", str(FOLDER), "-j2"], check=True, capture_output=True)

        heading(5, "A plain C program talks")
        text, seconds = spoken()
        said = "".join(Talker(model, "c").tokenizer.pieces[token] for token in tokens)
        made = len(Talker(model, "c").tokenizer.encode(text[len(PROMPT) :]))

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
    table.add_row("simulator", f"{rate:,.0f} tokens a second")
    table.add_row("C program", f"about {made / seconds:,.0f} tokens a second, start included")
    same = "the same text" if text[len(PROMPT) :].startswith(said) else "[red]another text[/]"
    table.add_row("agreement", f"{same} for the {len(tokens)} tokens that both made")
    table.add_row("memory", f"{plan.placed.arena_bytes:,} bytes of arena, {plan.placed.state_bytes:,} of cache")
    table.add_row("read it", f"{FOLDER}/decode/src/decode.c, {FOLDER}/talk.c, {FOLDER}/decode/plan.json")
    table.add_row("go on", f'cd {FOLDER} && ./talk "Exceptions are"    (up to {CONTEXT} tokens)')
    console.print()
    console.print(table)
    console.print(f"\n[dim]{time.perf_counter() - start:.0f} s in all[/]")


if __name__ == "__main__":
    main()
