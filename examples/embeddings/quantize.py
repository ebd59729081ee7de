"""All-MiniLM-L6-v2 with weights of 4 bits: five in six, with a scale and a zero point for every 32; the rest have 8.

Rounding every weight to the nearest of 16 levels loses too much. Here the columns of a matrix are rounded one after the
other, and what a column loses, those that are still to come make up for as well as the inputs that the layer really
gets allow (the method is known as GPTQ). The inputs come from a simulation of the f32 graph, node by node.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from examples.embeddings.example import SIZES, Precision, batch, embedder, packed, sentences, tokenizer

from openinfer import ModelLoader, Simulator
from openinfer.oinf import QuantParams, QuantScale, QuantZeroPoint, TensorSpec, save_file

GROUP = 32
BLOCK = 64
"""Columns after which the rest of a matrix is brought up to date."""
DAMPING = 0.1
"""How much of the inputs is taken for noise, of which nothing can be learned."""
KEPT = (".value.", ".attention.output.dense.")
"""Matrices that stay in 8 bits: few weights, through which much is lost."""
SENTENCES = 40
"""How many sentences are simulated at a time."""
Array = npt.NDArray[np.float64]
CALLS = ("Good morning", "Thank you", "Sorry", "Welcome", "Yes", "Listen", "Well done", "Please")
NAMES = ("everyone", "friends", "captain", "dear neighbour", "Anna")
INPUTS = {
    "attention.self.query": "h",
    "attention.self.key": "h",
    "attention.self.value": "h",
    "attention.output.dense": "rows",
    "intermediate.dense": "h",
    "output.dense": "wide",
}
"""The matrices of a layer in the order of the graph, and the variable that holds the input of each."""


def calibration() -> list[list[int]]:
    """What the layers are shown: our sentences, beginnings of them, calls, and words at random."""
    rng = np.random.default_rng(0)
    read = tokenizer()
    texts = sentences()
    for text in sentences():
        words = text.split()
        texts.append(" ".join(words[: rng.integers(1, len(words))]) + str(rng.choice(list("!?.:,;&()"))))
    texts += [f"{call}, {name}{mark}" for call in CALLS for name in NAMES for mark in "!?."]
    rows: list[list[int]] = [read.encode(text).ids for text in texts]
    first, last = rows[0][0], rows[0][-1]
    words_at = [rng.integers(1000, read.get_vocab_size(), rng.integers(1, 24)).tolist() for _ in range(200)]
    return [*rows, *([first, *row, last] for row in words_at)]


def second_moments(model: ModelLoader, rows: list[list[int]]) -> dict[tuple[int, str], Array]:
    """For each matrix, the mean of ``x xT`` over the inputs x that it gets."""
    executor = Simulator(model, sizes={"B": SENTENCES}).with_trace("basic").make_executor(embedder("f32"))
    sums: dict[tuple[int, str], Array] = {}
    ordered = sorted(rows, key=len)
    count = 0
    for start in range(0, len(ordered) - SENTENCES + 1, SENTENCES):
        inputs = batch(ordered[start : start + SENTENCES])
        executor.insert(inputs)
        matrices = iter([(layer, name) for layer in range(6) for name in INPUTS])
        for node in executor.iterate():
            if node.event.op_name == "linear":
                layer, name = next(matrices)
                x = np.asarray(node.fetch(INPUTS[name])).reshape(*inputs["mask"].shape, -1)[inputs["mask"]]
                known = sums.get((layer, name), np.zeros(()))
                sums[layer, name] = known + (x.T @ x).astype(np.float64)
        count += int(inputs["mask"].sum())
    return {key: total / count for key, total in sums.items()}


def levels(weights: Array, importance: Array) -> tuple[Array, Array]:
    """Scale and zero point of each row: of some ranges, the one that loses least, important weights counted more."""
    low, high = np.minimum(weights.min(1), 0), np.maximum(weights.max(1), 0)
    best = np.full(len(weights), np.inf)
    scale, zero = np.ones(len(weights)), np.zeros(len(weights))
    for share in np.linspace(0.5, 1, 21):
        step = np.maximum(share * (high - low) / 15, 1e-9)
        point = np.rint(-share * low / step)
        whole = stored(weights, step[:, None], point[:, None])
        loss = ((((whole - point[:, None]) * step[:, None]) - weights) ** 2 * importance).sum(1)
        better = loss < best
        best, scale, zero = (np.where(better, *pair) for pair in ((loss, best), (step, scale), (point, zero)))
    return scale.astype(np.float32).astype(np.float64), zero


def stored(weights: Array, scale: Array, zero: Array) -> Array:
    """The integers from 0 to 15 that stand for weights."""
    return np.asarray(np.clip(np.rint(weights / scale) + zero, 0, 15))


def quantized(weights: Array, moments: Array) -> TensorSpec:
    """A matrix [out, in] as u4[out*in/32, 32], whose rows are the groups, each with a scale and a zero point."""
    importance = np.tile(np.diag(moments), len(weights)).reshape(-1, GROUP)
    scale, zero = levels(weights.reshape(-1, GROUP), importance)
    whole = np.empty(weights.shape)
    order = np.argsort(-np.diag(moments))  # what matters most first, while there is most to make up for it
    wide = (np.repeat(each, GROUP).reshape(weights.shape)[:, order] for each in (scale, zero))
    whole[:, order] = rounded(weights[:, order], moments[np.ix_(order, order)], *wide)
    parameters = QuantParams(
        "asymmetric",
        QuantScale.per_channel(0, scale),
        QuantZeroPoint.per_channel(0, zero.astype(np.int32)),
    )
    return TensorSpec(whole.reshape(-1, GROUP).astype(np.uint8), "u4", quant=parameters)


def rounded(weights: Array, moments: Array, scale: Array, zero: Array) -> Array:
    """The stored integers, column by column; the columns to come make up for what one loses."""
    rest, columns = weights.copy(), len(moments)
    damped = moments + DAMPING * np.diag(moments).mean() * np.eye(columns)
    upper = np.linalg.cholesky(np.linalg.inv(damped)).T
    whole = np.empty(weights.shape)
    for first in range(0, columns, BLOCK):
        end = min(first + BLOCK, columns)
        errors = np.zeros((len(weights), end - first))
        for at in range(first, end):
            whole[:, at] = stored(rest[:, at], scale[:, at], zero[:, at])
            lost = rest[:, at] - (whole[:, at] - zero[:, at]) * scale[:, at]
            errors[:, at - first] = lost / upper[at, at]
            rest[:, at + 1 : end] -= np.outer(errors[:, at - first], upper[at, at + 1 : end])
        rest[:, end:] -= errors @ upper[first:end, end:]
    return whole


def matrices(folder: Path) -> Iterator[tuple[str, TensorSpec]]:
    """The matrices in 4 bits, by the names of their tensors."""
    with packed(folder, "f32") as model:
        for (layer, name), moments in second_moments(model, calibration()).items():
            tensor = f"encoder.layer.{layer}.{name}.weight"
            yield tensor, quantized(model.load(tensor).to_numpy().astype(np.float64), moments)


def model_of(folder: Path, precision: Precision) -> ModelLoader:
    """The model in a precision, made and kept in a folder unless it is there."""
    if precision != "u4":
        return packed(folder, precision)
    path = folder / "minilm_u4.oinf"
    if not path.exists():
        write_model(path, folder)
    return ModelLoader.open(path)


def write_model(path: Path, folder: Path) -> None:
    """The model in 4 bits, made of the other two."""
    small = dict(matrices(folder))
    with packed(folder, "u8") as model:
        for name, info in model.tensors.items():
            if name not in small or any(part in name for part in KEPT):
                small[name] = TensorSpec(model.load(name), quant=info.quant)
        metadata = {name: model.metadata[name] for name in ("layers", "layer_norm_eps")}
    save_file(path, small, sizevars={**SIZES, "G": GROUP}, metadata=metadata)
