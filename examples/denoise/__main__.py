"""``python -m examples.denoise [IN.wav]``: speech with and without its noise."""

import argparse
from pathlib import Path

from examples.denoise.example import above_noise, built, denoised, noisy
from examples.voice import read_wav, spoken, write_wav

BUILD = Path("build/examples/denoise")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.denoise", description="Take the noise out of speech.")
    about = "speech: 16 bits, one channel, 16 kHz; if none is given, a voice says a sentence, with white noise on it"
    parser.add_argument("sound", nargs="?", type=Path, help=about)
    parser.add_argument("-o", "--output", type=Path, default=BUILD / "denoised.wav")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    speech = spoken() if given.sound is None else None
    sound = read_wav(given.sound) if speech is None else noisy(speech, 9)
    cleaned, said = denoised(built(BUILD), sound)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    write_wav(given.output, cleaned)
    print(said)
    if speech is not None:
        write_wav(BUILD / "noisy.wav", sound)
        before, after = above_noise(sound, speech), above_noise(cleaned, speech)
        print(f"{BUILD / 'noisy.wav'}: speech is {before:.1f} dB above the noise")
        print(f"{given.output}: {after:.1f} dB")
    else:
        print(f"{given.output}: without noise")


if __name__ == "__main__":
    main()
