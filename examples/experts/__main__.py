"""``python -m examples.experts``: a gate hands noisy waves to experts; what they make of them, and what it costs."""

from pathlib import Path

import numpy as np
from examples.experts.example import KINDS, S, Waves, mixture, waves, write_model
from examples.figures import Machine

from openinfer import Executor, ModelLoader, Simulator, Synthesizer

BUILD = Path("build/examples/experts")
ROUNDS = 100


def drawn(noisy: Waves, cleaned: Waves) -> str:
    """Two waves as rows of text: ``.`` for the noisy one, ``#`` for the clean one."""
    rows = [[" "] * S for _ in range(9)]
    for wave, sign in ((noisy, "."), (cleaned, "#")):
        for at, value in enumerate(wave):
            rows[round(float(np.clip(4 - 3 * value, 0, 8)))][at] = sign
    return "\n".join("  " + "".join(row).rstrip() for row in rows)


def shown(machine: Executor, rng: np.random.Generator) -> None:
    """One wave of each kind, with the blocks that it went through."""
    for kind in KINDS:
        noisy = waves(kind, 1, rng)[1][0]
        machine.insert(x=noisy)
        machine.run_step()
        blocks = list(dict.fromkeys(event.block_name for event in machine.events))
        print(f"a {kind}: {' -> '.join(blocks)}\n{drawn(noisy, machine.fetch('y'))}\n")


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    write_model(BUILD / "experts.oinf")
    model = ModelLoader.open(BUILD / "experts.oinf")
    simulator = Simulator(model).make_executor(mixture())
    shown(simulator, np.random.default_rng(2))

    plan = Synthesizer(name="experts").synthesize(model, mixture())
    plan.emit(BUILD / "c")  # the same as plain C
    simulator.reset()
    machines: dict[str, Machine] = {"simulator": simulator, "C": plan.build()}
    for name, machine in machines.items():
        rng, right, errors = np.random.default_rng(3), 0, {kind: np.zeros(2) for kind in KINDS}
        for at, kind in list(enumerate(KINDS)) * ROUNDS:
            clean, noisy = (one[0] for one in waves(kind, 1, rng))
            machine.insert(x=noisy)
            machine.run_step()
            right += int(machine.fetch("choice") == at)
            errors[kind] += [np.mean((one - clean) ** 2) / ROUNDS for one in (noisy, machine.fetch("y"))]
        print(f"{name}: the gate is right {right} times of {3 * ROUNDS}, calls {machine.fetch('calls')}")
        for kind, (before, after) in errors.items():
            print(f"  {kind:9} mean squared error {before:.4f} before, {after:.4f} after")


if __name__ == "__main__":
    main()
