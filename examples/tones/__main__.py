"""``python -m examples.tones``: dial a number over a noisy line into a WAV file and decode it chunk by chunk.

``python -m examples.tones CALL.wav`` decodes a file of yours.
"""

import argparse
from pathlib import Path

import numpy as np
from examples.figures import Machine
from examples.tones.example import chunks, heard, listener, trained
from examples.tones.signals import CHUNK, HIGH, KEYS, LOW, RATE, Line, chunks_of, dialled, random_number, write_wav

from openinfer import Simulator, Synthesizer

BUILD = Path("build/examples/tones")
LEVELS = (20, 10, 5, 0, -2, -4, -6)
NUMBERS = 10
SHADES = " .:-=+*#%@"


def show(machine: Machine, path: Path) -> None:
    """What the graph hears, one line for each chunk: how strong the eight tones are, and the key when it is pressed."""
    machine.reset()
    print(" seconds  " + " ".join(f"{pitch:4}" for pitch in LOW + HIGH))
    for at, chunk in enumerate(chunks_of(path)):
        machine.insert(samples=chunk)
        machine.run_step()
        shares = np.clip(machine.fetch("features")[:8] * 2.5, 0, 0.99)
        tones = " ".join(SHADES[int(share * len(SHADES))] * 4 for share in shares)
        pressed = int(machine.fetch("pressed"))
        print(f"{at * CHUNK / RATE:8.3f}  {tones}  {KEYS[pressed] if pressed >= 0 else ''}".rstrip())


def survey(machines: dict[str, Machine]) -> None:
    """How many numbers of ten keys are decoded without a mistake, by noise."""
    print(f"\n{NUMBERS} random numbers of 10 keys at each noise level, tones of -40 to -10 dB; right in")
    for snr in LEVELS:
        rng = np.random.default_rng([snr + 100])
        calls = []
        for _ in range(NUMBERS):
            number = random_number(rng)
            calls.append((number, dialled(number, Line(snr, rng.uniform(-40, -10)), rng)[0]))
        right = [
            f"{name} {sum(heard(machine, chunks(samples)) == number for number, samples in calls):2}"
            for name, machine in machines.items()
        ]
        print(f"  SNR {snr:3} dB: {', '.join(right)}")


def main() -> None:
    """Dial, decode, count."""
    asked = argparse.ArgumentParser(prog="python -m examples.tones", description=__doc__)
    asked.add_argument("wav", nargs="?", type=Path, help="a call to decode: one channel, 16 bits, 8000 Hz")
    asked.add_argument("--dial", default="1800#*", help=f"a number of the keys {KEYS}")
    asked.add_argument("--snr", type=float, default=0.0, help="signal to noise of the line in dB")
    given = asked.parse_args()
    if not set(given.dial) <= set(KEYS):
        asked.error(f"a telephone has the keys {KEYS}")
    if given.wav is not None and not given.wav.is_file():
        asked.error(f"there is no file {str(given.wav)!r}")

    BUILD.mkdir(parents=True, exist_ok=True)
    model = trained()
    plan = Synthesizer(name="tones").synthesize(model, listener())
    plan.emit(BUILD / "c")
    machines: dict[str, Machine] = {
        "simulator": Simulator(model).with_trace("off").make_executor(listener()),
        "C": plan.build(),
    }
    path = given.wav or BUILD / "call.wav"
    if given.wav is None:
        write_wav(path, dialled(given.dial, Line(given.snr), np.random.default_rng(1))[0])
        print(f"{path}: {given.dial} at {given.snr:g} dB signal to noise")
    show(machines["C"], path)
    for name, machine in machines.items():
        print(f"{name:10} {heard(machine, chunks_of(path))}")
    if given.wav is None:
        survey(machines)


if __name__ == "__main__":
    main()
