"""Telephone calls to decode: pairs of tones with noise and hum, as samples and as WAV files."""

import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

RATE = 8000
CHUNK = 128
KEYS = "123A456B789C*0#D"
"""The keys row by row: each row has a low tone, each column a high one."""
LOW, HIGH = (697, 770, 852, 941), (1209, 1336, 1477, 1633)
Samples = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Line:
    """A telephone line: signal to noise (white, up to 4 kHz) and how loud the tones are (0 is full scale), in dB."""

    snr_db: float = 20
    level_db: float = -20


def dialled(number: str, line: Line, rng: np.random.Generator) -> tuple[Samples, npt.NDArray[np.int64]]:
    """What a number sounds like, and for every sample which key is down (16: none).

    Tones last 65 to 120 ms and pauses 50 to 120 ms; the pitch is off by up to 1 %, the two tones of a key differ by up
    to 4 dB, and the mains hum at 50 Hz, up to twice as loud as the tones.
    """
    amplitude = 10 ** (line.level_db / 20)
    pieces: list[npt.NDArray[np.float64]] = [np.zeros(int(rng.uniform(0.1, 0.3) * RATE))]
    labels = [np.full(len(pieces[0]), 16)]
    for key in number:
        time = np.arange(int(rng.uniform(0.065, 0.12) * RATE)) / RATE
        pause = int(rng.uniform(0.05, 0.12) * RATE)
        row, column = divmod(KEYS.index(key), 4)
        tone = np.zeros(len(time))
        for pitch, twist in ((LOW[row], 0.0), (HIGH[column], rng.uniform(-4, 4))):
            turns = pitch * (1 + rng.uniform(-0.01, 0.01)) * time + rng.random()
            tone += 10 ** (twist / 20) * np.sin(2 * np.pi * turns)
        pieces += [amplitude * tone / np.sqrt(2), np.zeros(pause)]
        labels += [np.full(len(time), KEYS.index(key)), np.full(pause, 16)]
    clean = np.concatenate([*pieces, np.zeros(RATE // 10)])
    noise = rng.normal(size=len(clean)) * amplitude / np.sqrt(2) * 10 ** (-line.snr_db / 20)
    hum = rng.uniform(0, 2) * amplitude * np.sin(2 * np.pi * (50 * np.arange(len(clean)) / RATE + rng.random()))
    mixed = np.rint((clean + noise + hum) * 32767).clip(-32768, 32767).astype(np.int16)
    return mixed, np.concatenate([*labels, np.full(RATE // 10, 16)])


def random_number(rng: np.random.Generator, length: int = 10) -> str:
    """Keys at random, the same twice in a row included."""
    return "".join(KEYS[at] for at in rng.integers(0, 16, length))


def write_wav(path: Path, samples: Samples) -> None:
    """One channel of 16 bits, 8000 samples per second."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())


def chunks_of(path: Path) -> Iterator[Samples]:
    """A WAV file chunk by chunk, as a device would hear it; the last chunk is filled up with silence."""
    with wave.open(str(path), "rb") as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            raise SystemExit(f"{path}: this decoder hears one channel of 16 bits at {RATE} samples per second")
        while piece := file.readframes(CHUNK):
            samples = np.frombuffer(piece, "<i2").astype(np.int16)
            yield np.pad(samples, (0, CHUNK - len(samples)))
