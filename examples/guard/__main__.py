"""``python -m examples.guard``: track a moving body through broken readings, with the guard and without."""

from pathlib import Path

import numpy as np
from examples.figures import Machine
from examples.guard.example import HERE, READINGS, guarded, readings, write_model

from openinfer import Graph, ModelLoader, Simulator, Synthesizer, graph

BUILD = Path("build/examples/guard")
WIDTH = 61


def unguarded() -> Graph:
    """The same graph with ``keep`` in the place of ``repair``."""
    text = (HERE / "guard.oig").read_text()
    return graph(text.replace("branch is_sound keep repair;", "branch keep;").split("block repair")[0])


def line(truth: float, reading: float, tracked: float) -> str:
    """One moment: ``|`` where the body is, ``.`` where the sensor sees it, ``O`` where the tracker does."""
    cells = [" "] * WIDTH
    for value, sign in ((truth, "|"), (reading, "."), (tracked, "O")):
        if np.isfinite(value):
            cells[int(np.clip(round(value * 3) + WIDTH // 2, 0, WIDTH - 1))] = sign
    return "".join(cells).rstrip()


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    write_model(BUILD / "guard.oinf")
    model = ModelLoader.open(BUILD / "guard.oinf")
    truth, measured = readings()

    plan = Synthesizer(name="guard").synthesize(model, guarded())
    plan.emit(BUILD / "c")  # the same as plain C
    machines: dict[str, Machine] = {"simulator": Simulator(model).make_executor(guarded()), "C": plan.build()}
    bare = Simulator(model).make_executor(unguarded())
    for at in range(READINGS):
        for machine in (*machines.values(), bare):
            machine.insert(reading=measured[at])
            machine.run_step()
        said = "" if np.isfinite(measured[at]) else f"   <- the sensor says {measured[at]}"
        print(f"{at:3} {line(truth[at], measured[at], machines['simulator'].fetch('state')[0])}{said}")
    for name, machine in machines.items():
        print(f"{name:10} state {machine.fetch('state')}, {machine.fetch('repairs')} repairs")
    print(f"{'no guard':10} state {bare.fetch('state')}")


if __name__ == "__main__":
    main()
