"""The examples that fetch a published model, import it and run it as a C program: ``make test-models``."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from examples.chat import example as chat
from examples.chat.emit import emit
from examples.denoise import example as denoise
from examples.detect import example as detect
from examples.embeddings.example import Precision, embedder, packed
from examples.figures import Figures
from examples.listen import example as listen
from examples.read import example as read
from examples.voice import spoken
from PIL import Image, ImageDraw, ImageFont
from tests.examples.llama_reference import LlamaReference
from tests.examples.test_embeddings import require_agreement

from openinfer import ModelLoader, Synthesizer
from openinfer.tokenizer import Message


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return detect.built(tmp_path_factory.mktemp("detect"))


def pixels_of(name: str) -> detect.Pixels:
    return np.asarray(Image.open(detect.picture(name)).convert("RGB"))


def test_the_face_of_the_astronaut_is_found_and_drawn(detector: Path) -> None:
    pixels = pixels_of("astronaut.png")
    (face,), drawn = detect.faces(detector, pixels)
    assert face.score >= 0.9
    assert (face.left, face.top, face.width, face.height) == pytest.approx((179, 63, 91, 111), abs=3)
    side = drawn[face.top + 1, face.left + 2 : face.left + face.width - 2]
    assert (side == side[0]).all()
    assert (drawn != pixels).any(axis=2).mean() < 0.02


def test_faces_are_found_at_other_sizes_and_none_where_there_is_none(detector: Path) -> None:
    pixels = pixels_of("astronaut.png")
    small = np.ascontiguousarray(pixels[::2, ::2])
    (face,), _ = detect.faces(detector, small)
    assert (face.left, face.top) == pytest.approx((90, 32), abs=4)
    beside = np.concatenate([pixels, pixels], axis=1)
    assert len(detect.faces(detector, beside)[0]) == 2
    assert detect.faces(detector, pixels_of("coffee.png"))[0] == []


def test_a_file_that_is_no_picture_is_refused(detector: Path) -> None:
    with pytest.raises(SystemExit, match="not a PPM file"):
        detect.faces(detector, np.zeros((0, 4, 3), np.uint8))


def test_speech_stands_out_of_the_noise_afterwards(tmp_path: Path) -> None:
    speech = spoken()
    sound = denoise.noisy(speech, 9)
    cleaned, said = denoise.denoised(denoise.built(tmp_path), sound)
    assert len(cleaned) == len(sound)
    assert denoise.above_noise(sound, speech) == pytest.approx(9, abs=0.1)
    assert denoise.above_noise(cleaned, speech) > 15
    assert said.startswith("2.44 s of sound in 154 frames")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return read.built(tmp_path_factory.mktemp("read"))


def test_lines_are_read_from_the_top_to_the_bottom(reader: Path) -> None:
    page = Image.new("RGB", (500, 300), "white")
    draw = ImageDraw.Draw(page)
    lines = ["Hello compiler 2026", "one step of C", "A1 B2 C3"]
    for at, line in enumerate(lines):
        draw.text((30, 30 + 90 * at), line, "black", font=ImageFont.load_default(32))
    assert read.text_of(reader, np.asarray(page))[0] == lines
    assert read.text_of(reader, np.full((200, 200, 3), 255, np.uint8))[0] == []


def test_the_page_of_scikit_image_is_read(reader: Path) -> None:
    lines, drawn = read.text_of(reader, pixels_of("page.png"))
    assert lines[0] == "Region-based segmentation"
    assert lines[1:4] == [
        "Let us first determine markers of the coins and the",
        "background. These markers are pixels that we can label",
        "unambiguously as either object or background. Here,",
    ]
    assert (drawn != pixels_of("page.png")).any()


def test_smollm2_answers(tmp_path: Path) -> None:
    emit(chat.imported_model(chat.model_file(), tmp_path), tmp_path, chat.SYSTEM)
    subprocess.run(["make", "-s", "-C", str(tmp_path)], check=True)
    readme = (chat.HERE / "README.md").read_text()
    shown = re.findall(r'--prompt "(.*?)"\n```\n\n```text\n(.*?)```', readme, re.DOTALL)
    assert len(shown) == 2
    for prompt, wanted in shown:
        command = ["./chat", "--greedy", "--prompt", prompt]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == wanted


def test_smollm2_says_the_same_200_tokens_as_a_reference() -> None:
    file = chat.model_file()
    model = chat.imported_model(file)
    asked = [Message("system", chat.SYSTEM), Message("user", "What is the capital of France?")]
    prompt = model.form.encode(model.tokenizer, asked)
    with ModelLoader.open(model.imported.model) as weights:
        prefill, decode = (plan.build() for plan in model.plans(weights))
        said, _ = chat.greedy(prefill, decode, prompt, 200)
    assert said == LlamaReference(file).greedy(prompt, 200)


EXAMPLES = (chat, detect, denoise, read)


def test_what_is_said_is_written_down(tmp_path: Path) -> None:
    program = listen.built(tmp_path)
    *speech, text = listen.heard(program, spoken())
    assert text == " Hello world, this is a test of speech."
    assert [line.split()[:2] for line in speech] == [["speech", "from"]] * 2
    assert listen.heard(program, np.zeros(20000, np.float32)) == []


@pytest.mark.parametrize("precision", ["u8", "u4"])
def test_embeddings_of_few_bits_agree_with_the_original(precision: Precision, tmp_path: Path) -> None:
    with packed(tmp_path) as model:
        module = Synthesizer().synthesize(model, embedder("f32")).build()
        require_agreement(precision, tmp_path, module)


@pytest.mark.parametrize("figures", [one.figures for one in EXAMPLES], ids=["chat", "detect", "denoise", "read"])
def test_simulator_and_c_agree(figures: Callable[[], Figures]) -> None:
    assert figures().agrees
