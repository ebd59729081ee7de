"""What llama.cpp needs of a decoder: the library, its file of the weights, and what its first tokens should give."""

import hashlib
import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bench.decoder_groups
import numpy as np
from bench.cpu.engines.base import CannotError
from bench.cpu.engines.llama import FILE, FIRST, LIBRARY, NOTE
from bench.decoder import Shape
from bench.models import Model

from bench import llama
from openinfer import Simulator, graph

Array = Any
SHIM = Path(__file__).parent / "engines" / "llama.c"


def llama_files(model: Model, shape: Shape, kind: str, folder: Path) -> Array | None:
    """Write them into a folder, and return the logits of the simulator after the first tokens of a fresh context.

    There are none where the model reads a prompt, whose logits are compared themselves.
    """
    prompt = [int(one) for one in model.inputs.get("tokens", ())]
    library = linked()
    wanted = hashlib.sha256(Path(bench.decoder_groups.__file__).read_bytes() + repr((shape, kind)).encode()).hexdigest()
    note = folder / NOTE
    if not note.exists() or json.loads(note.read_text(encoding="ascii")).get("made_of") != wanted:
        original = model.original or model
        bench.decoder_groups.write_gguf(folder / FILE, shape, dict(original.tensors), kind)
    facts = asdict(shape) | {"made_of": wanted, "library": str(library.resolve()), "prompt": prompt}
    note.write_text(json.dumps(facts), encoding="ascii")
    return None if prompt else first_logits(model, folder)


def linked() -> Path:
    """llama.cpp behind the functions that the worker calls, compiled unless it is there."""
    try:
        programs = llama.built().resolve()
    except (subprocess.CalledProcessError, FileNotFoundError, SystemExit) as error:
        raise CannotError(f"llama.cpp is not built: {error}") from None
    library, sources = programs / LIBRARY, llama.source()
    if not library.exists() or library.stat().st_mtime < SHIM.stat().st_mtime:
        include = [f"-I{sources / place}" for place in ("include", "ggml/include")]
        linking = [f"-L{programs}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{programs}"]
        line = ["gcc", "-O2", "-shared", "-fPIC", *include, str(SHIM), "-o", str(library), *linking]
        subprocess.run(line, check=True)
    return library


def first_logits(model: Model, folder: Path) -> Array:
    """The simulator's, from an empty context."""
    with model.saved(folder) as loader:
        executor = Simulator(loader, sizes=model.settled).with_trace("off").make_executor(graph(model.text))
        for token in FIRST:
            executor.insert({"token": np.array([token], np.int32)})
            executor.run_step()
        found = executor.fetch(model.output)
    (folder / "model.oinf").unlink()
    return found
