"""A model's files for every engine: generated code and its weights, ONNX, safetensors, inputs, and the right answer."""

import filecmp
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.cpu.convert import converted
from bench.cpu.engines.base import RESULT
from bench.cpu.peers import PEERS
from bench.models import Model

from openinfer import DeviceArch, Divide, Executor, ModelLoader, Passes, Plan, Simulator, Synthesizer, graph
from openinfer.synth.run.library import FLAGS
from openinfer.synth.targets.target import Allowed

Array = Any
CONTEXT = """#include "net.h"
const size_t net_context_bytes = sizeof(net_context);
"""


@dataclass(frozen=True)
class Prepared:
    """What is in a folder, and what it took."""

    folder: Path
    reference: Array
    """The output that the simulator gives."""
    original: Array | None
    """The output of the f32 model, where the weights are smaller."""
    built_s: float | None
    """Seconds for synthesizing and compiling our code."""
    model_bytes: dict[str, int]
    """The size of what must be shipped beside the engine; for ours, that and the compiled code."""
    first: Array | None = None
    """The logits after the first tokens of a fresh context, for an engine that makes its own keys and values."""
    cannot: dict[str, str] = field(default_factory=dict)
    """Why the model could not be made into an engine's own format."""


def prepared(
    model: Model,
    folder: Path,
    engines: Collection[str],
    threads: Sequence[int],
    allow: frozenset[Allowed] = frozenset(),
) -> Prepared:
    """Write what some engines need into a folder; what is there already and would be the same stays."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "feeds.npz", **model.given)
    np.savez(folder / "inputs.npz", **model.inputs)
    built_s = None
    if "ours" in engines:
        start = time.perf_counter()
        loader = model.saved(folder)
        for count in threads:
            plan = synthesized(model, loader, count, allow)
            own = folder / f"ours-{count}"
            compiled(plan, own)
            described(model, plan.facts(), own)
            if model.plain or model.tables:
                module = plan.build()
                model.begin(module)
                module._state.tofile(own / "state.bin")
        share_equal([folder / f"ours-{count}" / "weights.bin" for count in threads])
        built_s = (time.perf_counter() - start) / len(threads)
    if set(engines) - {"ours", "torch", "llama.cpp"}:
        data = model.onnx()
        _write(folder / "model.onnx", data)
        (folder / RESULT).write_text(result_of(data), encoding="utf-8")
    if "torch" in engines:
        from safetensors.numpy import save_file

        save_file(dict(model.tensors), folder / "weights.safetensors")
    original = model.original and simulated(model.original, model.original.saved(folder))
    reference = simulated(model, model.saved(folder))
    (folder / "model.oinf").unlink()
    cannot = {engine: converted(engine, folder) for engine in engines if PEERS[engine].is_converted}
    refused = {engine: why for engine, why in cannot.items() if why}
    return Prepared(folder, reference, original, built_s, _sizes(folder), cannot=refused)


def tidied(folder: Path) -> None:
    """Remove what the next run writes anew; what converters have made stays."""
    for pattern in (
        "model.onnx",
        "model.oinf",
        "weights.safetensors",
        "state.oinf",
        "ours-*/weights.bin",
        "ours-*/state.bin",
    ):
        for path in folder.glob(pattern):
            path.unlink()


def result_of(data: bytes) -> str:
    """The name of the first result of an ONNX model."""
    import onnx

    return str(onnx.load_from_string(data).graph.output[0].name)


def _write(path: Path, data: bytes) -> None:
    """Write a file, unless it is there and the same."""
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)


def synthesized(model: Model, loader: ModelLoader, threads: int, allow: frozenset[Allowed] = frozenset()) -> Plan:
    """Generated code for this machine and some threads."""
    passes = replace(Passes.preferred(DeviceArch.detect()), divide=Divide(threads=threads), allow=allow)
    return Synthesizer(name="net", passes=passes).synthesize(loader, graph(model.text), sizes=model.settled)


def compiled(plan: Plan, folder: Path) -> None:
    """The project, compiled as a stripped library ``program.so``, beside its weights."""
    project = folder / "project"
    plan.emit(project)
    (project / "src" / "context.c").write_text(CONTEXT, encoding="ascii")
    shutil.move(project / "src" / "weights.bin", folder / "weights.bin")
    sources = ["src/net.c", "src/kernels.c", "src/context.c"]
    line = ["gcc", *FLAGS, *plan.project.build_options.flags, "-shared", "-fPIC", "-s", "-Iinclude", *sources]
    files = [*(project / name for name in sources), *sorted(project.glob("include/*"))]
    wanted = hashlib.sha256(" ".join(line).encode())
    for path in files:
        wanted.update(path.read_bytes())
    note = folder / "made_of"
    if not note.exists() or note.read_text(encoding="ascii") != wanted.hexdigest():
        subprocess.run([*line, "-o", "../program.so"], check=True, cwd=project)
        note.write_text(wanted.hexdigest(), encoding="ascii")


def share_equal(files: Sequence[Path]) -> None:
    """Weights that are the same for every number of threads are stored once: those of a decoder are large."""
    first, *others = files
    for path in others:
        if not path.samefile(first) and filecmp.cmp(first, path, shallow=False):
            path.unlink()
            path.hardlink_to(first)


def described(model: Model, facts: Mapping[str, Any], folder: Path) -> None:
    """What the worker must know of the code, by the facts of its plan."""
    outputs = [one["variable"] for one in facts["outputs"]]
    at = outputs.index(model.output)
    restored = [
        (one["offset"], one["offset"] + one["bytes"]) for one in facts["state"] if one["variable"] in model.plain
    ]
    description = {
        **{name: facts["bytes"][name] for name in ("arena", "state", "weights")},
        "inputs": [one["variable"] for one in facts["inputs"]],
        "outputs": outputs,
        "output": at,
        "shape": list(map(int, facts["outputs"][at]["shape"])),
        "restored": restored,
    }
    (folder / "program.json").write_text(json.dumps(description), encoding="ascii")


def begun(model: Model, loader: ModelLoader) -> Executor:
    """A simulation before the step that is measured."""
    executor = Simulator(loader, sizes=model.settled).with_trace("off").make_executor(graph(model.text))
    model.begin(executor)
    return executor


def simulated(model: Model, loader: ModelLoader) -> Array:
    executor = begun(model, loader)
    executor.run_step()
    return executor.fetch(model.output)


def _sizes(folder: Path) -> dict[str, int]:
    """What each engine reads. Of the formats of their own, everything in the engine's folder."""
    ours = max(folder.glob("ours-*"), default=folder)
    files = {
        "ours": (ours / "program.so", ours / "weights.bin"),
        "onnxruntime": (folder / "model.onnx",),
        "openvino": (folder / "model.onnx",),
        "torch": (folder / "weights.safetensors",),
        "llama.cpp": (folder / "model.gguf",),
        **{name: tuple((folder / name).glob("model.*")) for name, peer in PEERS.items() if peer.is_converted},
    }
    return {
        engine: sum(path.stat().st_size for path in paths)
        for engine, paths in files.items()
        if paths and all(path.exists() for path in paths)
    }
