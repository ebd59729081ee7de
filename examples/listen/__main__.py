"""``python -m examples.listen [IN.wav]``: where there is speech in a sound, and what is said."""

import argparse
from pathlib import Path

from examples.listen.example import built, heard
from examples.voice import read_wav, spoken

BUILD = Path("build/examples/listen")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.listen", description="Write down what is said.")
    about = "speech: 16 bits, one channel, 16 kHz, 30 s at most; if none is given, a voice says a sentence"
    parser.add_argument("sound", nargs="?", type=Path, help=about)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    sound = spoken() if given.sound is None else read_wav(given.sound)
    print("\n".join(heard(built(BUILD), sound)))


if __name__ == "__main__":
    main()
