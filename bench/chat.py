"""The chat of the examples beside llama.cpp, on one thread and on two: ``make bench-chat``.

The C program of ``examples/chat`` and ``llama-bench`` run in turn, each alone, on the same GGUF file: tokens said in a
second, tokens read in a second from a prompt of about 512, and the memory that the process had at most. The program is
the one of the example, which reads a prompt in steps of 128 tokens; ``llama-bench`` does so in one of 512. llama.cpp is
built from the source in the package ``llama-cpp-python``, which takes cmake and some minutes once.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.chat.emit import emit
from examples.chat.example import CONTEXT, PROMPT, SYSTEM, ChatModel, imported_model, model_file

from bench import llama
from openinfer import ModelLoader

FOLDER = Path("build/bench/chat")
NAMES = ("OpenInfer", "llama.cpp")
SAID, READ = 128, 512
STORY = "Write a long story about a dragon who wants to learn how to bake bread."
_LIMIT = 300
"""Seconds for a run. Threads that wait awake for each other take forever where others take the processors."""
_LAUNCHER = f"""
import os, signal, sys
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
signal.alarm({_LIMIT})
_, status, usage = os.wait4(child, 0)
open(sys.argv[1], "w").write(str(usage.ru_maxrss))
ended = os.waitstatus_to_exitcode(status)
if ended == -signal.SIGKILL:
    sys.exit("it took more than {_LIMIT} s: is the machine busy?")
sys.exit(ended)
"""
"""A small process in between: the peak of a new one counts from what its parent had."""
_RATES = re.compile(r"\[(\d+) tokens read, (\d+) a second; (\d+) said, (\d+) a second;")


@dataclass(frozen=True)
class Run:
    """What one run of a program gave: tokens a second, and its memory at most."""

    rate: float
    peak_bytes: int


def run_alone(command: list[str], folder: Path) -> tuple[str, str, int]:
    """What a process wrote to its output and its error output, and the memory that it had at most."""
    with TemporaryDirectory() as notes:
        note = Path(notes, "peak")
        launched = [sys.executable, "-S", "-c", _LAUNCHER, str(note), *command]
        done = subprocess.run(launched, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{command[0]} failed with status {done.returncode}:\n{done.stderr[-1000:]}")
        return done.stdout, done.stderr, int(note.read_text()) * 1024


@dataclass(frozen=True)
class Ours:
    """The C program of the example, for a number of threads."""

    folder: Path
    prompt: str

    def says(self) -> Run:
        """Tokens of an answer."""
        return self._run(["--tokens", str(SAID), "--prompt", STORY], is_read=False)

    def reads(self) -> Run:
        """Tokens of a long prompt."""
        return self._run(["--tokens", "1", "--system", "", "--prompt", self.prompt], is_read=True)

    def _run(self, options: list[str], *, is_read: bool) -> Run:
        _, err, peak = run_alone(["./chat", "--greedy", *options], self.folder)
        found = _RATES.search(err)
        assert found is not None, err
        return Run(float(found[2 if is_read else 4]), peak)


@dataclass(frozen=True)
class Llama:
    """llama.cpp's own benchmark, for a number of threads."""

    program: Path
    file: Path
    threads: int

    def says(self) -> Run:
        """Tokens after nothing."""
        return self._run("-p", "0", "-n", str(SAID))

    def reads(self) -> Run:
        """Tokens of a prompt."""
        return self._run("-p", str(READ), "-n", "0")

    def _run(self, *options: str) -> Run:
        command = [str(self.program.resolve()), "-m", str(self.file.resolve()), "-t", str(self.threads)]
        out, _, peak = run_alone([*command, *options, "-r", "1", "-o", "json"], Path())
        return Run(float(json.loads(out)[0]["avg_ts"]), peak)


def long_prompt(model: ChatModel) -> str:
    """A text that makes a conversation of about ``READ`` tokens and no more."""
    words = STORY.split()
    text = " ".join(words[at % len(words)] for at in range(READ))
    while len(model.tokenizer.encode(text)) > READ - 12:
        text = text.rpartition(" ")[0]
    return text


def built(model: ChatModel, threads: int) -> Path:
    """The program for a number of threads, as it is made today."""
    folder = FOLDER / f"threads-{threads}"
    say(f"C for {threads} threads in {folder}")
    emit(model, folder, SYSTEM, threads=threads)
    subprocess.run(["make", "-s", "-C", str(folder), "-j2"], check=True)
    return folder


def cache_bytes(model: ChatModel) -> int:
    """The keys and values of a whole conversation."""
    with ModelLoader.open(model.imported.model) as weights:
        prefill, _ = model.plans(weights)
        return prefill.placed.state_bytes


def say(what: str) -> None:
    """Progress."""
    print(what, file=sys.stderr, flush=True)


def in_turn(engines: dict[str, Ours | Llama], rounds: int) -> Iterator[tuple[str, str, list[Run]]]:
    """All runs by engine and by what it did; in each round one after the other."""
    tasks: dict[str, Callable[[Ours | Llama], Run]] = {"said": lambda one: one.says(), "read": lambda one: one.reads()}
    runs: dict[tuple[str, str], list[Run]] = {(name, task): [] for task in tasks for name in engines}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for (name, task), found in runs.items():
            found.append(tasks[task](engines[name]))
    return ((name, task, found) for (name, task), found in runs.items())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.chat", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--llama-bench", type=Path, help="the program, where it is built already")
    given = parser.parse_args()
    file = model_file()
    model = imported_model(file, FOLDER, CONTEXT, PROMPT)
    program = given.llama_bench or llama.built() / "llama-bench"
    prompt = long_prompt(model)
    limit = file.stat().st_size + cache_bytes(model)
    print(f"{file.name}, {file.stat().st_size:,} bytes; with a cache of {CONTEXT} tokens {limit:,}\n")
    columns = ("threads", "", *(f"{one}, tokens/s" for one in NAMES), "ratio", *(f"{one}, peak bytes" for one in NAMES))
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|")
    for threads in given.threads:
        engines: dict[str, Ours | Llama] = {"ours": Ours(built(model, threads), prompt)}
        engines["llama"] = Llama(program, file, threads)
        found = {(name, task): runs for name, task, runs in in_turn(engines, given.rounds)}
        for task in ("said", "read"):
            both = [found[name, task] for name in engines]
            rates = [statistics.median(run.rate for run in runs) for runs in both]
            peaks = [max(run.peak_bytes for run in runs) for runs in both]
            cells = (f"{rates[0]:.0f}", f"{rates[1]:.1f}", f"{rates[0] / rates[1]:.2f}", *(f"{one:,}" for one in peaks))
            print(f"| {threads} | {task} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
