"""Ops of ONNX Runtime's own domain become ops here and compute what ONNX Runtime computes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.importing.models import imported, model, node, require_agreement, text

from openinfer import ImportingError, ModelLoader, Simulator, load_graph

RNG = np.random.default_rng(5)
HEADS, WIDTH = 4, 16


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def own(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return node(kind, inputs, outputs, domain="com.microsoft", **attributes)


SIMPLE: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "Gelu": (own("Gelu", ["x"], ["y"]), {"x": normal(2, 6)}, {}),
    "BiasGelu": (own("BiasGelu", ["x", "b"], ["y"]), {"x": normal(2, 6)}, {"b": normal(6)}),
    "FastGelu": (own("FastGelu", ["x", "b"], ["y"]), {"x": normal(2, 6)}, {"b": normal(6)}),
    "QuickGelu": (own("QuickGelu", ["x"], ["y"], alpha=1.5), {"x": normal(2, 6)}, {}),
    "SimplifiedLayerNormalization": (
        node("SimplifiedLayerNormalization", ["x", "g"], ["y"], epsilon=1e-6),
        {"x": normal(2, 6)},
        {"g": normal(6)},
    ),
    "SkipLayerNormalization": (
        own("SkipLayerNormalization", ["x", "s", "g", "b", "c"], ["y", "", "", "z"], epsilon=1e-5),
        {"x": normal(2, 3, 6), "s": normal(2, 3, 6)},
        {"g": normal(6), "b": normal(6), "c": normal(6)},
    ),
    "SkipSimplifiedLayerNormalization": (
        own("SkipSimplifiedLayerNormalization", ["x", "s", "g"], ["y", "", "", "z"]),
        {"x": normal(2, 3, 6), "s": normal(2, 3, 6)},
        {"g": normal(6)},
    ),
    "FusedMatMul": (
        own("FusedMatMul", ["x", "w"], ["y"], alpha=0.5, transB=1),
        {"x": normal(2, 3, 4)},
        {"w": normal(5, 4)},
    ),
    "FusedGemm": (
        own("FusedGemm", ["x", "w", "b"], ["y"], transB=1, activation="LeakyRelu", activation_alpha=0.3),
        {"x": normal(3, 4)},
        {"w": normal(5, 4), "b": normal(5)},
    ),
    "FusedConv": (
        own("FusedConv", ["x", "w", "b"], ["y"], activation="Clip", activation_params=[0.0, 1.5], pads=[1, 1, 1, 1]),
        {"x": normal(1, 2, 5, 5)},
        {"w": normal(3, 2, 3, 3), "b": normal(3)},
    ),
}
KINDS = {np.dtype(np.float32): "f32", np.dtype(np.int64): "i64", np.dtype(np.int32): "i32", np.dtype(np.uint8): "u8"}


def agreement(
    made: Any,
    feeds: dict[str, Any],
    weights: dict[str, Any],
    folder: Path,
    tolerance: float = 1e-4,
    kinds: dict[str, str] | None = None,
    **options: Any,
) -> str:
    inputs: Any = {name: (KINDS[value.dtype], value.shape) for name, value in feeds.items()}
    outputs: Any = {name: ((kinds or {}).get(name, "f32"), None) for name in made.output if name}
    return require_agreement(model([made], inputs, outputs, weights), folder, feeds, tolerance, **options)


@pytest.mark.parametrize("kind", SIMPLE)
def test_a_fused_op_is_taken_apart(tmp_path: Path, kind: str) -> None:
    agreement(*SIMPLE[kind], tmp_path)


def test_embeddings_are_added_and_normalised(tmp_path: Path) -> None:
    names = ["x", "s", "words", "places", "kinds", "g", "b", "mask"]
    weights = {"words": normal(9, 6), "places": normal(8, 6), "kinds": normal(2, 6), "g": normal(6), "b": normal(6)}
    ids = RNG.integers(0, 9, (2, 5)).astype(np.int32)
    feeds = {"x": ids, "s": ids % 2, "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}
    made = own("EmbedLayerNormalization", names, ["y", "lengths"], epsilon=1e-5)
    agreement(made, feeds, weights, tmp_path, kinds={"lengths": "i32"})


# --- quantized --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "points"), [(4, False), (4, True), (8, True)])
def test_weights_of_a_few_bits_in_blocks(tmp_path: Path, bits: int, points: bool) -> None:
    rows, columns, block = 5, 48, 32
    count, size = 2, block * bits // 8
    weights: dict[str, Any] = {
        "w": RNG.integers(0, 256, (rows, count, size), np.uint8),
        "s": np.abs(normal(rows * count)) / 10,
    }
    if points:
        weights["z"] = RNG.integers(0, 256, rows * (-(-count * bits // 8)), np.uint8)
    made = own(
        "MatMulNBits",
        ["x", "w", "s", *(["z"] if points else [])],
        ["y"],
        K=columns,
        N=rows,
        bits=bits,
        block_size=block,
    )
    agreement(made, {"x": normal(2, 3, columns)}, weights, tmp_path)


QUANTIZED = {"s": np.float32(0.02), "z": np.uint8(120), "t": np.float32(0.03), "u": np.uint8(100)}


@pytest.mark.parametrize("kind", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products_of_codes(tmp_path: Path, kind: str) -> None:
    feeds = {"x": RNG.integers(0, 256, (3, 4)).astype(np.uint8), "v": RNG.integers(0, 256, (3, 4)).astype(np.uint8)}
    made = own(kind, ["x", "s", "z", "v", "t", "u", "t", "z"], ["y"])
    agreement(made, feeds, QUANTIZED, tmp_path, 1, {"y": "u8"})


@pytest.mark.parametrize("kind", ["QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool"])
def test_functions_of_codes(tmp_path: Path, kind: str) -> None:
    made = own(kind, ["x", "s", "z", "t", "u"], ["y"])
    agreement(made, {"x": RNG.integers(0, 256, (1, 3, 4, 4)).astype(np.uint8)}, QUANTIZED, tmp_path, 1, {"y": "u8"})


def test_codes_of_different_scales_are_joined(tmp_path: Path) -> None:
    feeds = {"x": RNG.integers(0, 256, (3, 4)).astype(np.uint8), "v": RNG.integers(0, 256, (3, 2)).astype(np.uint8)}
    made = own("QLinearConcat", ["t", "u", "x", "s", "z", "v", "t", "u"], ["y"], axis=1)
    agreement(made, feeds, QUANTIZED, tmp_path, 1, {"y": "u8"})


@pytest.mark.parametrize("wanted", [True, False])
def test_a_product_of_codes_with_a_bias(tmp_path: Path, wanted: bool) -> None:
    """Weights have seven bits: without VNNI, ONNX Runtime adds pairs of products in 16 bits, which saturate."""
    weights = {
        **QUANTIZED, "w": RNG.integers(-64, 65, (5, 4)).astype(np.int8), "p": np.float32(0.01), "o": np.int8(0),
        "b": RNG.integers(-900, 900, 5).astype(np.int32),
    }  # fmt: skip
    ends = ["t", "u"] if wanted else []
    made = own("QGemm", ["x", "s", "z", "w", "p", "o", "b", *ends], ["y"], transB=1)
    feeds = {"x": RNG.integers(0, 256, (3, 4)).astype(np.uint8)}
    agreement(made, feeds, weights, tmp_path, 1 if wanted else 1e-4, {"y": "u8"} if wanted else None)


def test_a_product_with_codes_that_are_made_for_it(tmp_path: Path) -> None:
    """Of seven bits, as above."""
    weights = {"w": RNG.integers(-64, 65, (6, 5)).astype(np.int8), "p": np.abs(normal(5)) / 50, "b": normal(5)}
    made = own("DynamicQuantizeMatMul", ["x", "w", "p", "", "b"], ["y"])
    agreement(made, {"x": normal(3, 6)}, weights, tmp_path)
    codes = {"x": RNG.integers(0, 256, (3, 6)).astype(np.uint8)}
    made = own("MatMulIntegerToFloat", ["x", "w", "s", "p", "z", "", "b"], ["y"])
    agreement(made, codes, {**weights, **QUANTIZED}, tmp_path)


# --- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["", "m"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_one_product_for_all(tmp_path: Path, mask: str, unidirectional: int) -> None:
    size = HEADS * WIDTH
    weights = {"w": normal(12, 3 * size), "b": normal(3 * size)}
    feeds = {"x": normal(2, 5, 12)}
    if mask:
        feeds["m"] = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    made = own("Attention", ["x", "w", "b", mask], ["y"], num_heads=HEADS, unidirectional=unidirectional)
    assert "op sdpa(" in agreement(made, feeds, weights, tmp_path)


def test_attention_over_heads_with_a_past_and_biases(tmp_path: Path) -> None:
    size = HEADS * WIDTH
    feeds = {
        "q": normal(2, 3, size), "k": normal(2, 3, size), "v": normal(2, 3, size), "a": normal(1, HEADS, 3, 7),
        "pk": normal(2, HEADS, 4, WIDTH), "pv": normal(2, HEADS, 4, WIDTH),
    }  # fmt: skip
    names = ["q", "k", "v", "b", "", "a", "pk", "pv"]
    made = own("MultiHeadAttention", names, ["y", "nk", "nv"], num_heads=HEADS)
    agreement(made, feeds, {"b": normal(3 * size)}, tmp_path)


def grouped(past: int, length: int, rotary: int, packed: bool, window: int) -> tuple[Any, dict[str, Any], Any]:
    """A node of grouped queries for a batch of 1, its inputs and its weights."""
    shared = 2
    sizes = (HEADS * WIDTH, shared * WIDTH, shared * WIDTH)
    feeds = {"q": normal(1, length, sum(sizes))} if packed else {
        name: normal(1, length, size) for name, size in zip("qkv", sizes, strict=True)
    }  # fmt: skip
    if past:
        feeds |= {"pk": normal(1, shared, past, WIDTH), "pv": normal(1, shared, past, WIDTH)}
    weights = {
        "lengths": np.array([past + length - 1], np.int32), "total": np.int32(past + length),
        "cos": np.cos(normal(16, WIDTH // 2)), "sin": np.sin(normal(16, WIDTH // 2)),
    }  # fmt: skip
    names = [name if name in feeds else "" for name in ("q", "k", "v", "pk", "pv")]
    attributes = {"num_heads": HEADS, "kv_num_heads": shared, "do_rotary": rotary, "local_window_size": window}
    inputs = [*names, "lengths", "total", *(["cos", "sin"] if rotary else [])]
    return own("GroupQueryAttention", inputs, ["y", "nk", "nv"], **attributes), feeds, weights


@pytest.mark.parametrize(
    ("past", "length", "rotary", "packed", "window"),
    [(0, 5, 1, False, -1), (6, 1, 1, True, -1), (0, 5, 0, True, 2), (6, 1, 0, False, 3)],
)
def test_grouped_queries_see_a_past_with_rotary_embeddings_and_windows(
    tmp_path: Path, past: int, length: int, rotary: int, packed: bool, window: int
) -> None:
    agreement(*grouped(past, length, rotary, packed, window), tmp_path)


def test_a_past_of_grouped_queries_that_grows_becomes_a_table(tmp_path: Path) -> None:
    made, feeds, weights = grouped(1, 1, 1, False, -1)
    nodes = [
        node("Shape", ["k"], ["shape"]),
        node("Gather", ["shape", "one"], ["new"]),
        node("Shape", ["pk"], ["past_shape"]),
        node("Gather", ["past_shape", "two"], ["old"]),
        node("Add", ["new", "old"], ["sum"]),
        node("Cast", ["sum"], ["total"], to=6),
        made,
    ]
    inputs: Any = {name: ("f32", [1, "now", value.shape[-1]]) for name, value in feeds.items() if len(name) == 1}
    inputs |= {name: ("f32", [1, 2, "past", WIDTH]) for name in ("pk", "pv")}
    inputs["lengths"] = ("i32", [1])
    numbers = {"one": np.int64(1), "two": np.int64(2), "cos": weights["cos"], "sin": weights["sin"]}
    outputs: Any = dict.fromkeys(made.output, ("f32", None))
    sizes: Any = {"now": "<=3", "past": "<=8"}
    found = imported(model(nodes, inputs, outputs, numbers), tmp_path, sizes=sizes, states=[("n*", "p*")])
    assert "pk(t): f32[1, 2, 16] @table" in text(found)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    past = {name: np.zeros((1, 2, 0, WIDTH), np.float32) for name in ("pk", "pv")}
    with ModelLoader.open(found.model) as model_file:
        executor = Simulator(model_file).make_executor(load_graph(found.graph))
        for now in (3, 1, 1):
            step = {name: normal(1, now, value.shape[-1]) for name, value in feeds.items() if len(name) == 1}
            lengths = {"lengths": np.array([past["pk"].shape[2] + now - 1], np.int32)}
            want, *rest = session.run(None, {**step, **past, **lengths})
            executor.insert(
                **{found.inputs[name]: value for name, value in (step | lengths).items() if name in found.inputs}
            )
            executor.run_step()
            assert np.allclose(executor.fetch(found.outputs["y"]), want, atol=1e-5)
            past = dict(zip(("pk", "pv"), rest, strict=True))


def test_a_past_that_is_a_buffer_is_refused(tmp_path: Path) -> None:
    made, feeds, weights = grouped(6, 1, 0, False, -1)
    inputs: Any = {name: ("f32", value.shape) for name, value in feeds.items()}
    outputs: Any = dict.fromkeys(made.output, ("f32", None))
    with pytest.raises(ImportingError, match="buffer"):
        imported(model([made], inputs, outputs, {**weights, "total": np.int32(5)}), tmp_path)


@pytest.mark.parametrize(("shape", "heads"), [((2, 3, HEADS * WIDTH), HEADS), ((2, HEADS, 3, WIDTH), 0)])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings_in_both_layouts(
    tmp_path: Path, shape: tuple[int, ...], heads: int, interleaved: int
) -> None:
    caches = {"cos": np.cos(normal(16, WIDTH // 2)), "sin": np.sin(normal(16, WIDTH // 2))}
    feeds = {"x": normal(*shape), "ids": np.array([[0, 1, 2], [4, 5, 6]])}
    attributes = {"num_heads": heads, "interleaved": interleaved}
    made = own("RotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], **attributes)
    assert "op rope_cached(" in agreement(made, feeds, caches, tmp_path)


def test_op_types_of_the_domain_that_have_no_translation_are_named(tmp_path: Path) -> None:
    made = model([own("NGramRepeatBlock", ["i", "x"], ["y"], ngram_size=2)],
                 {"i": ("i64", [1, 3]), "x": ("f32", [1, 4])}, {"y": ("f32", None)})  # fmt: skip
    with pytest.raises(ImportingError, match="no translation of this op type of the domain"):
        imported(made, tmp_path)
