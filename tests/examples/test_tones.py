"""Telephone keys are decoded from a stream, chunk by chunk, through noise; the simulator and C hear the same."""

from pathlib import Path

import numpy as np
import pytest
from examples.figures import Machine
from examples.tones.example import chunks, figures, heard, listener, trained
from examples.tones.signals import CHUNK, KEYS, RATE, Line, chunks_of, dialled, random_number, write_wav

from openinfer import Simulator, Synthesizer

LEVELS = {30: -12, 10: -38, 5: -20, 3: -15, 0: -30}
"""The signal to noise that every number must survive, and how loud the tones are; all in dB."""


@pytest.fixture(scope="module")
def machines() -> dict[str, Machine]:
    model = trained()
    simulator = Simulator(model).with_trace("off").make_executor(listener())
    return {"simulator": simulator, "C": Synthesizer().synthesize(model, listener()).build()}


def test_the_simulator_and_c_agree() -> None:
    assert figures().agrees


@pytest.mark.parametrize("snr", LEVELS)
def test_random_numbers_are_decoded_through_noise(snr: int, machines: dict[str, Machine]) -> None:
    rng = np.random.default_rng([3, snr + 50])
    for count, machine in ((1, machines["simulator"]), (8, machines["C"])):
        for _ in range(count):
            number = random_number(rng)
            samples, _ = dialled(number, Line(snr, LEVELS[snr]), rng)
            assert heard(machine, chunks(samples)) == number


def test_noise_alone_is_no_number(machines: dict[str, Machine]) -> None:
    rng = np.random.default_rng(1)
    for loud in (0.001, 0.1):
        noise = (rng.normal(size=5 * RATE) * loud * 32767).clip(-32768, 32767).astype(np.int16)
        assert heard(machines["C"], chunks(noise)) == ""


def test_a_key_that_is_pressed_twice_counts_twice_and_one_that_is_held_once(machines: dict[str, Machine]) -> None:
    rng = np.random.default_rng(2)
    twice, _ = dialled("55", Line(), rng)
    assert heard(machines["C"], chunks(twice)) == "55"
    time = np.arange(2 * RATE) / RATE
    held = 3000 * (np.sin(2 * np.pi * 770 * time) + np.sin(2 * np.pi * 1336 * time))
    assert heard(machines["C"], chunks(held.astype(np.int16))) == "5"


def test_a_file_is_heard_as_its_samples_are(machines: dict[str, Machine], tmp_path: Path) -> None:
    samples, _ = dialled(KEYS, Line(6), np.random.default_rng(4))
    write_wav(tmp_path / "call.wav", samples)
    streamed = list(chunks_of(tmp_path / "call.wav"))
    assert np.array_equal(np.concatenate(streamed)[: len(samples)], samples)
    assert {chunk.shape for chunk in streamed} == {(CHUNK,)}
    assert [heard(machine, streamed) for machine in machines.values()] == [KEYS, KEYS]


def test_a_stream_goes_on_where_it_was_saved(machines: dict[str, Machine]) -> None:
    """All that the decoder remembers is in its state: C takes over from the simulator in the middle of a key."""
    samples, _ = dialled("4711", Line(3), np.random.default_rng(6))
    simulator, compiled = machines["simulator"], machines["C"]
    simulator.reset()
    keys = ""
    stream = chunks(samples)
    for at, chunk in enumerate(stream):
        machine = simulator if at < len(stream) // 2 else compiled
        if at == len(stream) // 2:
            saved = simulator.save_state()
            assert isinstance(saved, bytes)
            compiled.load_state(saved)
        machine.insert(samples=chunk)
        machine.run_step()
        pressed = int(machine.fetch("pressed"))
        keys += KEYS[pressed] if pressed >= 0 else ""
    assert keys == "4711"


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fast.wav"
    write_wav(path, np.zeros(10, np.int16))
    header = bytearray(path.read_bytes())
    header[24:28] = (16000).to_bytes(4, "little")
    path.write_bytes(header)
    with pytest.raises(SystemExit, match="8000 samples per second"):
        list(chunks_of(path))


def test_consumers_in_threads_give_the_same(machines: dict[str, Machine]) -> None:
    samples, _ = dialled("9A", Line(0), np.random.default_rng(7))
    threaded = Simulator(trained(), scheduler="threaded").with_trace("off").make_executor(listener())
    assert heard(threaded, chunks(samples)) == heard(machines["simulator"], chunks(samples)) == "9A"
