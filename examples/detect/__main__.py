"""``python -m examples.detect [PICTURE]``: the faces in a picture, and a copy of it with boxes."""

import argparse
from pathlib import Path

import numpy as np
from examples.detect.example import built, faces, picture
from PIL import Image, UnidentifiedImageError

BUILD = Path("build/examples/detect")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.detect", description="Find the faces in a picture.")
    parser.add_argument(
        "picture", nargs="?", type=Path, help="any picture; an astronaut of scikit-image if none is given"
    )
    parser.add_argument("-t", "--least", type=float, default=0.7, help="the least score of a face (0.7)")
    parser.add_argument("-o", "--output", type=Path, default=BUILD / "faces.png", help="the picture with boxes")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    path = given.picture or picture("astronaut.png")
    try:
        pixels = np.asarray(Image.open(path).convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise SystemExit(f"{path} is not a picture that can be read: {error}") from None
    found, drawn = faces(built(BUILD), pixels, given.least)
    for face in found:
        print(f"a face of {face.width} x {face.height} pixels at {face.left}, {face.top} (score {face.score:.2f})")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(drawn).save(given.output)
    print(f"{len(found)} face{'' if len(found) == 1 else 's'}; drawn in {given.output}")


if __name__ == "__main__":
    main()
