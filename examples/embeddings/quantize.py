"""All-MiniLM-L6-v2 with weights of 8 bits, or half of them with 4 and a scale and a zero point for every 32.

Rounding every weight to the nearest level loses too much. Here a matrix is fitted to the inputs that it really gets,
and its columns are rounded one after the other: what a column loses, those that are still to come make up for (the
method is known as GPTQ). Layer by layer, the original and the rounded model read the same sentences side by side, and
each matrix is also asked to make up for what those before it have lost.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from examples.embeddings.example import HERE, SIZES, Precision, packed, sentences, tokenizer

from openinfer import ModelLoader
from openinfer.oinf import QuantParams, QuantScale, QuantZeroPoint, TensorSpec, save_file
from openinfer.ops import apply

GROUP = 32
BLOCK = 64
"""Columns after which the rest of a matrix is brought up to date."""
DAMPING = 0.1
"""How much of the inputs is taken for noise, of which nothing can be learned."""
FOUR_BITS = (".query.", ".key.", ".output.dense.")
EIGHT_BITS = (".attention.output.dense.",)
"""Of the matrices that the names above mean, those that have 8 bits all the same: through them much is lost."""
WORDS = "embeddings.word_embeddings.weight"
LAYERS = 6
SHORT_ROWS = 400
MARKS = (999, 1029, 1012, 1010)
"""The tokens of an exclamation mark, a question mark, a full stop and a comma."""
Array = npt.NDArray[np.float64]
Weights = dict[str, npt.NDArray[np.float32]]
Hidden = npt.NDArray[np.float32]
Pause = tuple[tuple[str, ...], Hidden]


# --- what the model reads ---------------------------------------------------------------------------------------------


def calibration() -> list[npt.NDArray[np.int64]]:
    """Sentences, short phrases, and frequent words at random, as rows of tokens; rows of one length together."""
    rng = np.random.default_rng(5)
    read = tokenizer()
    phrases = (HERE / "phrases.txt").read_text().splitlines()
    texts = [*sentences(), *(phrase + mark for phrase in phrases for mark in ("", ".", "!"))]
    rows = [read.encode(text).ids for text in texts]
    first, last = rows[0][0], rows[0][-1]
    for _ in range(SHORT_ROWS):
        # In this vocabulary words follow on 1996, the most frequent first.
        words = 1996 + (rng.pareto(0.6, rng.integers(1, 6)) * 60 % 10_000).astype(int)
        mark = rng.choice(MARKS, int(rng.random() < 0.5))
        rows.append([first, *words, *mark, last])
    lengths = sorted({len(row) for row in rows})
    return [np.array([row for row in rows if len(row) == length]) for length in lengths]


# --- the model, one op after the other --------------------------------------------------------------------------------


def embedded(weights: Weights, ids: npt.NDArray[np.int64]) -> Hidden:
    """What goes into the first layer."""
    here = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    h = weights[WORDS][ids] + here + weights["embeddings.token_type_embeddings.weight"][0]
    return _normed(weights, h, "embeddings.LayerNorm")


def layer(weights: Weights, number: int, h: Hidden) -> Iterator[Pause]:
    """A layer, which pauses before matrices are used: their names, and their input. At last no names, and the result.

    It goes on with what the weights are by then.
    """
    own = f"encoder.layer.{number}"
    batch, length, _ = h.shape

    def linear(x: Hidden, name: str) -> Hidden:
        return np.asarray(apply("linear", x, weights[f"{own}.{name}.weight"], weights[f"{own}.{name}.bias"]))

    def heads(name: str) -> Hidden:
        return linear(h, f"attention.self.{name}").reshape(batch, length, SIZES["H"], -1).transpose(0, 2, 1, 3)

    yield tuple(f"{own}.attention.self.{name}" for name in ("query", "key", "value")), h
    mixed = np.asarray(apply("sdpa", heads("query"), heads("key"), heads("value")))
    mixed = mixed.transpose(0, 2, 1, 3).reshape(h.shape)
    yield (f"{own}.attention.output.dense",), mixed
    h = _normed(weights, h + linear(mixed, "attention.output.dense"), f"{own}.attention.output.LayerNorm")
    yield (f"{own}.intermediate.dense",), h
    wide = np.asarray(apply("gelu", linear(h, "intermediate.dense")))
    yield (f"{own}.output.dense",), wide
    yield (), _normed(weights, h + linear(wide, "output.dense"), f"{own}.output.LayerNorm")


def _normed(weights: Weights, h: Hidden, name: str) -> Hidden:
    return np.asarray(apply("layer_norm", h, weights[f"{name}.weight"], weights[f"{name}.bias"], eps=1e-12))


# --- rounding ---------------------------------------------------------------------------------------------------------


def levels(weights: Array, importance: Array, most: int) -> tuple[Array, Array]:
    """Scale and zero point of each row: of some ranges, the one that loses least, important weights counted more."""
    low, high = np.minimum(weights.min(1), 0), np.maximum(weights.max(1), 0)
    best = np.full(len(weights), np.inf)
    scale, zero = np.ones(len(weights)), np.zeros(len(weights))
    for share in np.linspace(0.5, 1, 21) if most < 255 else (1.0,):
        step = np.maximum(share * (high - low) / most, 1e-9)
        point = np.rint(-share * low / step)
        whole = stored(weights, step[:, None], point[:, None], most)
        loss = ((((whole - point[:, None]) * step[:, None]) - weights) ** 2 * importance).sum(1)
        better = loss < best
        best, scale, zero = (np.where(better, *pair) for pair in ((loss, best), (step, scale), (point, zero)))
    return scale.astype(np.float32).astype(np.float64), zero


def stored(weights: Array, scale: Array, zero: Array, most: int) -> Array:
    """The integers from 0 to ``most`` that stand for weights."""
    return np.asarray(np.clip(np.rint(weights / scale) + zero, 0, most))


def quantized(weights: Array, moments: Array, bits: int) -> TensorSpec:
    """A matrix [out, in] as u8, with a scale and a zero point for each row; as u4[out*in/32, 32], for each 32."""
    width, most = (GROUP if bits == 4 else weights.shape[1]), (1 << bits) - 1
    importance = np.tile(np.diag(moments), len(weights)).reshape(-1, width)
    scale, zero = levels(weights.reshape(-1, width), importance, most)
    whole = np.empty(weights.shape)
    order = np.argsort(-np.diag(moments))  # what matters most first, while there is most to make up for it
    steps, points = (np.repeat(each, width).reshape(weights.shape)[:, order] for each in (scale, zero))
    whole[:, order] = rounded(weights[:, order], moments[np.ix_(order, order)], steps, points, most)
    return _spec(whole.reshape(-1, width), scale, zero, bits)


def nearest(weights: Array) -> TensorSpec:
    """A matrix as u8, each weight rounded to the nearest level of its row."""
    scale, zero = levels(weights, np.ones(weights.shape), 255)
    return _spec(stored(weights, scale[:, None], zero[:, None], 255), scale, zero, 8)


def _spec(whole: Array, scale: Array, zero: Array, bits: int) -> TensorSpec:
    points = QuantZeroPoint.per_channel(0, zero.astype(np.int32))
    parameters = QuantParams("asymmetric", QuantScale.per_channel(0, scale), points)
    return TensorSpec(whole.astype(np.uint8), f"u{bits}", quant=parameters)


def meant(spec: TensorSpec, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The numbers that a quantized matrix stands for."""
    assert spec.quant is not None
    assert spec.quant.zero_point is not None
    scale, zero = (np.asarray(each.values)[:, None] for each in (spec.quant.scale, spec.quant.zero_point))
    found: npt.NDArray[np.float32] = ((np.asarray(spec.values) - zero) * scale).reshape(shape).astype(np.float32)
    return found


def rounded(weights: Array, moments: Array, scale: Array, zero: Array, most: int) -> Array:
    """The stored integers, column by column; the columns to come make up for what one loses."""
    rest, columns = weights.copy(), len(moments)
    upper = np.linalg.cholesky(np.linalg.inv(_damped(moments, moments))).T
    whole = np.empty(weights.shape)
    for first in range(0, columns, BLOCK):
        end = min(first + BLOCK, columns)
        errors = np.zeros((len(weights), end - first))
        for at in range(first, end):
            whole[:, at] = stored(rest[:, at], scale[:, at], zero[:, at], most)
            lost = rest[:, at] - (whole[:, at] - zero[:, at]) * scale[:, at]
            errors[:, at - first] = lost / upper[at, at]
            rest[:, at + 1 : end] -= np.outer(errors[:, at - first], upper[at, at + 1 : end])
        rest[:, end:] -= errors @ upper[first:end, end:]
    return whole


def _damped(products: Array, moments: Array) -> Array:
    return np.asarray(products + DAMPING * np.diag(moments).mean() * np.eye(len(moments)))


# --- the whole model --------------------------------------------------------------------------------------------------


def moments_of(true: Sequence[Hidden], own: Sequence[Hidden]) -> tuple[Array, Array]:
    """The sums of ``y yT`` and of ``x yT``: x is what the original model's matrices get, y what the rounded one's do.

    Sentences count alike, however long they are.
    """
    width = own[0].shape[-1]
    squares, products = np.zeros((width, width)), np.zeros((width, width))
    for one, other in zip(true, own, strict=True):
        x, y, share = one.reshape(-1, width), other.reshape(-1, width), 1 / one.shape[1]
        squares += share * (y.T @ y)
        products += share * (x.T @ y)
    return squares, products


def bits_of(name: str, precision: Precision) -> int:
    """The bits of a matrix."""
    is_small = any(part in name for part in FOUR_BITS) and not any(part in name for part in EIGHT_BITS)
    return 4 if precision == "u4" and is_small else 8


def matrices(original: Weights, precision: Precision) -> Iterator[tuple[str, TensorSpec]]:
    """The table of words and all matrices of the layers, quantized."""
    spec = nearest(original[WORDS].astype(np.float64))
    yield WORDS, spec
    mine = original | {WORDS: meant(spec, original[WORDS].shape)}
    rows = calibration()
    true, own = [embedded(original, ids) for ids in rows], [embedded(mine, ids) for ids in rows]
    for number in range(LAYERS):
        sides = [[layer(weights, number, h) for h in hidden] for weights, hidden in ((original, true), (mine, own))]
        for pauses in zip(*(zip(*side, strict=True) for side in sides), strict=True):
            true, own = ([x for _, x in side] for side in pauses)
            names = [f"{name}.weight" for name in pauses[0][0][0]]
            squares, products = moments_of(true, own) if names else (np.zeros(0), np.zeros(0))
            for name in names:
                wanted = original[name] @ _damped(products, squares)
                fitted = np.linalg.solve(_damped(squares, squares), wanted.T).T.astype(np.float64)
                spec = quantized(fitted, squares, bits_of(name, precision))
                yield name, spec
                mine[name] = meant(spec, original[name].shape)


def model_of(folder: Path, precision: Precision) -> ModelLoader:
    """The model in a precision, made and kept in a folder unless it is there."""
    if precision == "f32":
        return packed(folder)
    path = folder / f"minilm_{precision}.oinf"
    if not path.exists():
        write_model(path, folder, precision)
    return ModelLoader.open(path)


def write_model(path: Path, folder: Path, precision: Precision) -> None:
    """The model with quantized weights, made of the one in f32."""
    with packed(folder) as model:
        weights = {name: model.load(name).to_numpy() for name in model.tensors}
        metadata = {name: model.metadata[name] for name in ("layers", "layer_norm_eps")}
    tensors = {name: TensorSpec(array) for name, array in weights.items()} | dict(matrices(weights, precision))
    save_file(path, tensors, sizevars={**SIZES, "G": GROUP}, metadata=metadata)
