"""``python -m examples.read [PICTURE]``: the text in a picture."""

import argparse
from pathlib import Path

import numpy as np
from examples.packages import PACKAGES, package
from examples.read.example import built, text_of
from PIL import Image, UnidentifiedImageError

BUILD = Path("build/examples/read")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.read", description="Read the text in a picture.")
    parser.add_argument("picture", nargs="?", type=Path, help="any picture; a page of scikit-image if none is given")
    parser.add_argument("-o", "--output", type=Path, default=BUILD / "lines.png", help="the picture with boxes")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    path = given.picture or package("scikit-image==0.26.0", PACKAGES) / "skimage/data/page.png"
    try:
        pixels = np.asarray(Image.open(path).convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise SystemExit(f"{path} is not a picture that can be read: {error}") from None
    lines, drawn = text_of(built(BUILD), pixels)
    print("\n".join(lines))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(drawn).save(given.output)
    print(f"{len(lines)} line{'' if len(lines) == 1 else 's'}; drawn in {given.output}")


if __name__ == "__main__":
    main()
