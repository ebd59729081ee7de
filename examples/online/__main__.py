"""``python -m examples.online``: an echo disappears, comes back when the microphone is moved, and disappears again."""

from pathlib import Path

import numpy as np
from examples.figures import Machine
from examples.online.example import MOVED, SAMPLES, canceller, rooms, signals, write_model

from openinfer import ModelLoader, Simulator, Synthesizer

BUILD = Path("build/examples/online")
BLOCK = 100


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    write_model(BUILD / "online.oinf")
    model = ModelLoader.open(BUILD / "online.oinf")
    plan = Synthesizer(name="online").synthesize(model, canceller())
    plan.emit(BUILD / "c")  # the same as plain C
    simulator = Simulator(model).with_trace("off").make_executor(canceller())
    machines: dict[str, Machine] = {"simulator": simulator, "C": plan.build()}

    rest = {name: np.zeros(SAMPLES) for name in machines}
    for name, machine in machines.items():
        for at, (played, heard) in enumerate(zip(*signals(), strict=True)):
            machine.insert(loudspeaker=played, microphone=heard)
            machine.run_step()
            rest[name][at] = machine.fetch("rest")

    print("how much of the echo is left, in decibels of its power")
    for start in range(0, SAMPLES, BLOCK):
        if start == MOVED:
            print("                     ... the microphone is moved")
        part = slice(start, start + BLOCK)
        left = 10 * np.log10(np.mean(rest["simulator"][part] ** 2) / np.mean(signals()[1][part] ** 2))
        print(f"samples {start:4} to {start + BLOCK:4} {left:7.1f} dB {'#' * round(50 + left)}")
    for name, machine in machines.items():
        error = np.abs(machine.fetch("weights") - rooms()[1]).max()
        print(f"{name}: the weights are those of the room, within {error:.1e}")
    print(f"simulator and C differ by at most {np.abs(rest['simulator'] - rest['C']).max():.1e}")

    machines["C"].save_state(BUILD / "learned.oinf")
    print(f"what was learned is in {BUILD / 'learned.oinf'}")


if __name__ == "__main__":
    main()
