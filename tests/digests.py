"""Hashes of what is written from the same input: graphs as JSON and text, errors, model files, emitted projects.

``test_determinism`` runs this as a process in many surroundings (``python -m tests.digests SEED``) and compares.
"""

import hashlib
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import field, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.lang.sources import sources
from tests.synth.test_project import RICH

from openinfer import ModelLoader, graph
from openinfer.lang import parse
from openinfer.oinf import (
    Bitset,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    ScalarValue,
    SizeVar,
    TensorSpec,
    UninitializedTensor,
    Writer,
    dataclass_to_oinf,
    save_file,
    write_oinf,
)
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.project import Golden


def texts() -> Iterator[tuple[str, str]]:
    """What the parser makes of every graph of the tests, and of what is left of it when something is missing."""
    document, canonical, spans, errors = (hashlib.sha256() for _ in range(4))
    for text in sources():
        parsed = parse(text, "g.oig")
        document.update(json.dumps(parsed.graph.to_json(), sort_keys=True).encode())
        canonical.update(parsed.graph.to_text().encode())
        spans.update(json.dumps(parsed.graph.to_json(spans=True)).encode())
        for broken in (text, text[: len(text) // 2], text.replace(";", "", 1), text.replace("x", "q"), text + "}"):
            for problem in parse(broken, "g.oig").problems:
                errors.update(problem.render().encode())
    yield "JSON of graphs", document.hexdigest()
    yield "canonical text", canonical.hexdigest()
    yield "spans", spans.hexdigest()
    yield "errors", errors.hexdigest()


def _shuffled(entries: Mapping[str, Any], seed: int) -> dict[str, Any]:
    names = list(entries)
    random.Random(seed).shuffle(names)
    return {name: entries[name] for name in names}


def models(seed: int) -> Iterator[tuple[str, str]]:
    """One model, made in four ways, whose parts are added in an order of the seed."""
    quant = QuantParams("asymmetric", QuantScale.per_channel(0, [0.5, 0.25]), QuantZeroPoint.per_channel(0, [1, -1]))
    dtypes = enumerate(("f32", "bf16", "f8", "u4", "i8", "f16"))
    tensors: dict[str, Any] = {f"w.{at}": TensorSpec(np.arange(at, at + 6).reshape(2, 3), to) for at, to in dtypes}
    tensors["q"] = TensorSpec([[1, 2], [3, 4]], "i8", quant=quant)
    tensors["later"] = UninitializedTensor("f32", (4, 4))
    tensors["none"] = np.empty((0, 3), np.float32)
    metadata: dict[str, Any] = {"mode": "clamp_up", "on": True, "rate": 0.1, "mask": Bitset([True, False, True])}
    metadata |= {"axes": [3, 1, 2], "tag": ScalarValue(3, "i64"), "grid": [[1.0, 0.5], [0.25, 0.0]]}
    sizevars, metadata, tensors = (
        _shuffled(entries, seed) for entries in ({"B": 4, "D": 16, "H": 2**63}, metadata, tensors)
    )
    save_file("saved.oinf", tensors, sizevars, metadata)
    with Writer("written.oinf") as writer:
        for name, value in tensors.items():
            writer.add_tensor(name, value)
        for name, value in metadata.items():
            writer.add_metadata(name, value)
        for name, value in sizevars.items():
            writer.add_sizevar(name, value)
    fields = _shuffled({**{name: SizeVar(value) for name, value in sizevars.items()}, **metadata}, seed)
    kinds = [(name, object, field(default_factory=partial(copy, value))) for name, value in fields.items()]
    instance: Any = make_dataclass("Model", kinds)()
    instance.tensors = tensors
    write_oinf(instance, "authored.oinf")
    files = [Path(f"{name}.oinf").read_bytes() for name in ("saved", "written", "authored")]
    assert len({*files, dataclass_to_oinf(instance)}) == 1, "four ways to write a model, and more than one file"
    yield "model", hashlib.sha256(files[0]).hexdigest()


def projects() -> Iterator[tuple[str, str]]:
    """Every file of a project with weights, tables and a test, and constants that are computed when code is made."""
    rng = np.random.default_rng(1)
    tensors = {f"W.{layer}": rng.normal(size=(4, 4)).astype(np.float32) for layer in range(3)}
    save_file("net.oinf", {**tensors, "bias": np.ones(4, np.float32)})
    plan = Synthesizer("x86-avx2", name="net", weights="incbin").synthesize(ModelLoader.open("net.oinf"), graph(RICH))
    ones = {"x": np.ones(4, np.float32), "m": np.ones((2, 4), np.float32), "go": np.array(True)}
    for path, content in sorted(plan.files([Golden(ones, {"y": np.ones(4, np.float32)})]).items()):
        data = content if isinstance(content, bytes) else content.encode("ascii")
        yield path, hashlib.sha256(data).hexdigest()
    mel = "op mel_filterbank(p, bins=8, rate=8000.0, low=100, high=3000) >> m"
    spectrum = graph(f"dynamic {{ p: f32[17]; }} volatile {{ m: f32[8]; }} block entry {{ {mel}; return m; }}")
    kernels = Synthesizer("x86-avx2").synthesize(None, spectrum).files()["src/kernels.c"]
    assert isinstance(kernels, str)
    yield "constants", hashlib.sha256(kernels.encode("ascii")).hexdigest()
    yield from other_languages()


def other_languages() -> Iterator[tuple[str, str]]:
    """Every file of a project as a circuit and for GPUs: kernels with several indices, and several kept elements."""
    moved_and_normed = graph("""dynamic { x: i32[2, 5, 3]; a: f32[64, 768]; b: f32[64, 768]; }
        volatile { y: i32[3, 2, 5]; s: f32[64, 768]; z: f32[64, 768]; }
        block entry { op transpose(x, perm=[2, 0, 1]) >> y; op add(a, b) >> s; op layer_norm(s) >> z; return y, z; }""")
    moved = graph("""dynamic { x: i32[2, 5, 3]; } volatile { y: i32[3, 2, 5]; }
        block entry { op transpose(x, perm=[2, 0, 1]) >> y; return y; }""")
    for device, one in (("ecp5-85k", moved), ("h200", moved_and_normed), ("vulkan", moved_and_normed)):
        for path, content in sorted(Synthesizer(device, name="net").synthesize(None, one).files().items()):
            data = content if isinstance(content, bytes) else content.encode()
            yield f"{device}/{path}", hashlib.sha256(data).hexdigest()


def main(seed: int) -> None:
    """All hashes, a line each, at a time of the seed's own."""
    time.time = lambda: seed * 1e8
    time.time_ns = lambda: seed * 10**17
    for name, digest in (*texts(), *models(seed), *projects()):
        print(f"{name}: {digest}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
