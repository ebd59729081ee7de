"""One engine in a process of its own: ``python -m bench.cpu.worker ENGINE MODEL FOLDER THREADS``.

Reads requests from its input and answers on its output, a line of JSON each; between them it sleeps. It first says
``{"ready": ENGINE}``, or ``{"missing": WHY}`` if the engine is not installed. Nothing is imported but NumPy and what
the engine needs, so memory and time are the engine's own.
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench.cpu.engines import engine_class
from bench.cpu.engines.base import CannotError, Engine

Answer = dict[str, Any]


def peak_bytes() -> int:
    """The most memory that this process has had in RAM."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found[1])


def started(engine: Engine, folder: Path) -> Answer:
    """Load the model and run the first step; the output goes into a file."""
    before = time.perf_counter()
    engine.load()
    engine.step()
    output = engine.output()
    seconds = time.perf_counter() - before
    np.save(folder / f"{engine.name}.npy", output)
    return {"seconds": seconds, "output": f"{engine.name}.npy"}


def timed(engine: Engine, count: int) -> Answer:
    """Seconds of so many steps, after one that fills the caches and wakes the threads."""
    step = engine.step
    step()
    before = time.perf_counter()
    for _ in range(count):
        step()
    return {"seconds": time.perf_counter() - before}


def main() -> None:
    name, model, place, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what an engine prints goes where errors go

    def say(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    bare, folder = peak_bytes(), Path(place)
    try:
        engine = engine_class(name)(folder, model, int(threads))
    except ModuleNotFoundError as error:
        say({"missing": str(error)})
        return
    say({"ready": name})
    for line in sys.stdin:
        match json.loads(line):
            case {"do": "start"}:
                try:
                    say(started(engine, folder))
                except CannotError as error:
                    say({"cannot": str(error)})
            case {"do": "steps", "count": count}:
                say(timed(engine, count))
            case {"do": "memory"}:
                say({"bytes": peak_bytes() - bare})


if __name__ == "__main__":
    main()
