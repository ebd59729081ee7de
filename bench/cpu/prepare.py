"""A model's files for every engine: generated code and its weights, ONNX, safetensors, inputs, and the right answer."""

import json
import shutil
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.cpu.engines import THREADS
from bench.models import Model

from openinfer import DeviceArch, Divide, ModelLoader, Passes, Plan, Simulator, Synthesizer, graph
from openinfer.synth.run.library import FLAGS

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


def prepared(model: Model, folder: Path, engines: Collection[str]) -> Prepared:
    """Write what some engines need into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    loader = model.saved(folder)
    built_s = None
    if "ours" in engines:
        start = time.perf_counter()
        plan = synthesized(model, loader)
        compiled(plan, folder)
        built_s = time.perf_counter() - start
        described(model, plan, folder)
    np.savez(folder / "feeds.npz", **model.given)
    if {"onnxruntime", "openvino"} & set(engines):
        (folder / "model.onnx").write_bytes(model.onnx())
    if "torch" in engines:
        from safetensors.numpy import save_file

        save_file(dict(model.tensors), folder / "weights.safetensors")
    original = model.original and simulated(model.original, model.original.saved(folder))
    return Prepared(folder, simulated(model, model.saved(folder)), original, built_s, _sizes(folder))


def synthesized(model: Model, loader: ModelLoader) -> Plan:
    """Generated code for this machine and two threads."""
    passes = replace(Passes.preferred(DeviceArch.detect()), divide=Divide(threads=THREADS))
    return Synthesizer(name="net", passes=passes).synthesize(loader, graph(model.text), sizes=model.settled)


def compiled(plan: Plan, folder: Path) -> None:
    """The project, compiled as a stripped library ``program.so``, beside its weights."""
    project = folder / "project"
    plan.emit(project)
    (project / "src" / "context.c").write_text(CONTEXT, encoding="ascii")
    sources = ["src/net.c", "src/kernels.c", "src/context.c"]
    line = ["gcc", *FLAGS, *plan.project.build_options.flags, "-shared", "-fPIC", "-s", "-Iinclude", *sources]
    subprocess.run([*line, "-o", "../program.so"], check=True, cwd=project)
    shutil.move(project / "src" / "weights.bin", folder / "weights.bin")


def described(model: Model, plan: Plan, folder: Path) -> None:
    """What the worker must know of the code, the inputs, and the state before a step where there is any."""
    facts, project = plan.facts(), plan.project
    outputs = [one["variable"] for one in facts["outputs"]]
    at = outputs.index(model.output)
    restored = [
        (one["offset"], one["offset"] + one["bytes"]) for one in facts["state"] if one["variable"] in model.plain
    ]
    description = {
        **{name: facts["bytes"][name] for name in ("arena", "state", "weights")},
        "threads": project.placed.threads,
        "inputs": [one["variable"] for one in facts["inputs"]],
        "outputs": outputs,
        "output": at,
        "shape": list(map(int, facts["outputs"][at]["shape"])),
        "restored": restored,
    }
    (folder / "program.json").write_text(json.dumps(description), encoding="ascii")
    np.savez(folder / "inputs.npz", **model.inputs)
    if model.plain or model.tables:
        module = plan.build()
        model.begin(module)
        module._state.tofile(folder / "state.bin")


def simulated(model: Model, loader: ModelLoader) -> Array:
    executor = Simulator(loader, sizes=model.settled).with_trace("off").make_executor(graph(model.text))
    model.begin(executor)
    executor.run_step()
    return executor.fetch(model.output)


def _sizes(folder: Path) -> dict[str, int]:
    files = {
        "ours": ("program.so", "weights.bin"),
        "onnxruntime": ("model.onnx",),
        "openvino": ("model.onnx",),
        "torch": ("weights.safetensors",),
    }
    return {
        engine: sum((folder / name).stat().st_size for name in names)
        for engine, names in files.items()
        if all((folder / name).exists() for name in names)
    }
