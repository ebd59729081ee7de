"""Contractions, windows and attention in generated C: quantized weights, and extents known when the code runs."""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.flags import LEVEL, UNDEFINED, USUAL
from tests.synth.in_c import Prepared, compiled

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.ir import Kernel
from openinfer.oinf import TensorSpec, save_file
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import OPS, Array, Call, Case, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.c.kernels import printed

F32, I8 = DTYPES["f32"], DTYPES["i8"]
BOUND = 9


Run = Callable[..., Array]
"""Called with inputs as they are stored, the shape of the result, and sizes."""


def compiled_together(kernels: Sequence[Kernel], folder: Path) -> list[Run]:
    """Kernels with one result, f32, each as a function of arrays."""
    cases = [
        Prepared(OPS[kernel.name], Case((), ()), Call(()), printed(kernel, f"case{number}"), (), (), ())
        for number, kernel in enumerate(kernels)
    ]
    library = compiled(cases, folder, (LEVEL, *UNDEFINED))
    return [partial(run, kernel, getattr(library, f"case{number}")) for number, kernel in enumerate(kernels)]


def run(kernel: Kernel, function: Any, arrays: Sequence[Array], shape: tuple[int, ...], *sizes: int) -> Array:
    result = np.full(shape, np.nan, np.float32)
    # Scratch memory is as large as the bounds of the sizes say.
    scratch = [np.zeros(max(int(np.prod(buffer.shape)), 1) * 8, np.uint8) for buffer in kernel.scratch]
    memory = [np.ascontiguousarray(array) for array in (*arrays, result, *scratch)]
    function(*(ctypes.c_void_p(array.ctypes.data) for array in memory), *(ctypes.c_int64(size) for size in sizes))
    return np.asarray(memory[len(arrays)])


def reference(name: str, arrays: Sequence[Array], kinds: Sequence[TensorType], **params: Any) -> Array:
    record = OPS[name]
    call = infer(record, Call(tuple(kinds), complete(record, params)))
    stored: list[DType] = [I8 if array.dtype == np.int8 else F32 for array in arrays]
    with np.errstate(all="ignore"):
        return ReferenceKernel(record, call, stored)(arrays)[0]


QUANTIZED: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("matmul", (3, 5), (5, 4), {}),
    ("linear", (2, 5), (4, 5), {}),
    ("conv2d", (1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "pads": 1}),
    ("conv_transpose1d", (1, 3, 5), (3, 2, 3), {"strides": 2}),
]


def test_quantized_weights_stand_for_real_numbers(tmp_path: Path) -> None:
    kernels, inputs, results = [], [], []
    for (name, x, w, params), zeros, axis in product(QUANTIZED, (False, True), (None, 0, 1)):
        rng = np.random.default_rng(3)
        count = 1 if axis is None else w[axis]
        scales = rng.uniform(0.01, 0.1, count).astype(np.float32)
        points = rng.integers(-5, 5, count).astype(np.int32)
        zero = QuantZeroPoint(axis, points) if zeros else None
        quant = QuantParams("asymmetric" if zeros else "symmetric", QuantScale(axis, scales), zero)
        arrays = rng.normal(size=x).astype(np.float32), rng.integers(-128, 128, w).astype(np.int8)
        kinds = TensorType(F32, x), TensorType(I8, w, quant)
        call = infer(OPS[name], Call(kinds, complete(OPS[name], params)))
        kernels.append(kernel_of(OPS[name], call, (F32, I8)))
        inputs.append([*arrays, scales, *([points.astype(np.float32)] if zeros else [])])
        results.append(reference(name, arrays, kinds, **params))
    for run, given, wanted in zip(compiled_together(kernels, tmp_path), inputs, results, strict=True):
        np.testing.assert_allclose(run(given, wanted.shape), wanted, rtol=1e-5, atol=1e-4)


N = Dim(BOUND, Ref("N"))
"""An extent that is at most so large; the tests run with less."""

DYNAMIC: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("matmul", ((3, N), (N, 4)), {}),
    ("matmul", ((2, N, 3), (3, N)), {}),
    ("linear", ((N, 5), (4, 5)), {}),
    ("einsum", ((N, 3), (3, N), (N,)), {"equation": "ij,jk,k->i"}),
    ("conv1d", ((1, 2, N), (3, 2, 3)), {"pads": 1}),
    ("conv2d", ((1, N, N, 4), (3, 4, 3, 3)), {"pads": 1, "layout": "NHWC"}),
    ("conv_transpose1d", ((1, 2, N), (2, 3, 3)), {"strides": 2, "pads": 1}),
    ("max_pool", ((1, 2, N),), {"kernel": 2, "strides": 1, "pads": 1}),
    ("avg_pool", ((1, 2, N),), {"kernel": 2, "strides": 1, "pads": 1, "count_include_pad": True}),
    ("global_avg_pool", ((1, 2, N, 3),), {}),
    ("resize", ((1, 2, N),), {"size": 7}),
    ("resize", ((1, 2, N),), {"size": 7, "mode": "linear"}),
    ("resize", ((1, 2, N),), {"size": 7, "mode": "cubic", "coordinates": "align_corners"}),
    ("sdpa", ((2, N, 4), (2, N, 4), (2, N, 3)), {"causal": True}),
    ("sdpa", ((2, 3, 4), (2, N, 4), (2, N, 3)), {"window": 2}),
    ("attn", ((N, 8), (N, 2, 4), (N, 2, 4), (8, 8)), {"causal": True}),
    ("rope_cached", ((2, N, 4), (N, 2), (N, 2)), {}),
]


def test_extents_may_be_known_only_when_the_code_runs(tmp_path: Path) -> None:
    kernels = []
    for name, shapes, params in DYNAMIC:
        record = OPS[name]
        call = infer(record, Call(tuple(TensorType(F32, shape) for shape in shapes), complete(record, params)))
        kernels.append(plain(kernel_of(record, call, (F32,) * len(shapes))))
    runs = compiled_together(kernels, tmp_path)
    for (name, shapes, params), run in zip(DYNAMIC, runs, strict=True):
        for size in (1, 4, BOUND):
            rng = np.random.default_rng(4)
            real = [tuple(size if isinstance(extent, Dim) else extent for extent in shape) for shape in shapes]
            arrays = [rng.normal(size=shape).astype(np.float32) for shape in real]
            wanted = reference(name, arrays, [TensorType(F32, shape) for shape in real], **params)
            got = run(arrays, wanted.shape, size)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{name} {params} {size}")


@pytest.mark.parametrize("bound", [8, 256])
def test_queries_and_keys_of_two_dynamic_sizes_with_the_same_bound_are_told_apart(bound: int) -> None:
    attention = graph(
        f"sizes {{ T <= {bound}; P <= {bound}; }}"
        "dynamic { q: f32[4, T, 4]; k: f32[2, P, 4]; } volatile { y: f32[4, T, 4]; }"
        "block entry { op sdpa(q, k, k, causal=true) >> y; return y; }"
    )
    keys = np.random.default_rng(5).normal(size=(4, 8, 4)).astype(np.float32)
    machines: list[Any] = [
        Simulator().make_executor(attention),
        Synthesizer().synthesize(None, attention).build(flags=USUAL),
    ]
    found = []
    for machine in machines:
        machine.insert(q=keys[:, :3], k=keys[:2, :7])
        machine.run_step()
        found.append(machine.fetch("y"))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_an_infinite_weight_meets_no_padding(tmp_path: Path) -> None:
    """Positions on the padding take no part: they are not zeros, which would make NaN of an infinity."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-3, 4, (8, 4, 3, 3)).astype(np.float32)
    weights[2, 1, 0, 0] = np.inf
    save_file(tmp_path / "conv.oinf", {"w": weights})
    text = """
    dynamic { x: f32[1, 4, 6, 6]; } constant { w: f32[8, 4, 3, 3]; } volatile { y: f32[1, 8, 6, 6]; }
    block entry { op conv2d(x, w, pads=1) >> y; return y; }
    """
    image = rng.integers(1, 4, (1, 4, 6, 6)).astype(np.float32)
    module = agree(text, ModelLoader.open(tmp_path / "conv.oinf"), lambda _step: {"x": image}, steps=1)
    found = module.fetch("y")[0, 2]
    assert np.isfinite(found[0]).all()
    assert np.isinf(found[1:, 1:]).all()


def test_weights_are_packed_for_a_number_of_rows_that_only_the_run_knows(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    save_file(tmp_path / "m.oinf", {"w": rng.normal(size=(40, 24)).astype(np.float32)})
    text = """
    sizes { T <= 21; }
    dynamic { x: f32[T, 24]; }
    constant { w: f32[40, 24]; }
    volatile { y: f32[T, 40]; }
    block entry { op linear(x, w) >> y; return y; }
    """
    model = ModelLoader.open(tmp_path / "m.oinf")
    (weight,) = planned(text, model, device="generic").facts()["weights"]
    assert weight["packed"] is not None
    module, executor = planned(text, model).build(flags=USUAL), Simulator(model).make_executor(graph(text))
    for rows in (21, 8, 1, 0):
        x = rng.normal(size=(rows, 24)).astype(np.float32)
        for runs in (module, executor):
            runs.insert(x=x)
            runs.run_step()
        assert np.allclose(module.fetch("y"), executor.fetch("y"), atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "x86-avx2", "generic"])
@pytest.mark.parametrize(
    ("dtype", "has_zero"), [("i8", False), ("u8", True), ("i4", False), ("i4", True), ("u4", True), ("u4", False)]
)
def test_integers_in_panels(dtype: str, has_zero: bool, device: str, tmp_path: Path) -> None:
    """Weights stay integers in panels of columns; for one row, for many, and for as many as there are."""
    kind, rng = DTYPES[dtype], np.random.default_rng(7)
    least, most = int(kind.minimum), int(kind.maximum)
    products = [(*shape, rows) for shape, rows in product(((96, 64), (41, 130)), ("1", "40", "T"))]
    tensors = {}
    for number, (columns, depth, _) in enumerate(products):
        stored = rng.integers(least, most + 1, (columns, depth)).astype(kind.array)
        scale = QuantScale.per_channel(0, rng.uniform(0.01, 0.1, columns).astype(np.float32))
        zero = QuantZeroPoint.per_channel(0, rng.integers(least, most + 1, columns).astype(np.int32))
        quant = QuantParams("asymmetric", scale, zero) if has_zero else QuantParams("symmetric", scale, None)
        tensors[f"w{number}"] = TensorSpec(stored, dtype, quant=quant)
    save_file(tmp_path / "w.oinf", tensors)
    forms = ("x#: f32[R, D];", f"w#: {dtype}[C, D];", "y#: f32[R, C];", "op linear(x#, w#) >> y#;")
    inputs, weights, outputs, ops = (_for_each(form, products) for form in forms)
    text = f"""sizes {{ T <= 20; }} dynamic {{ {inputs} }} constant {{ {weights} }} volatile {{ {outputs} }}
    block entry {{ {ops} return {", ".join(f"y{number}" for number in range(len(products)))}; }}"""
    with ModelLoader.open(tmp_path / "w.oinf") as model:
        plan = planned(text, model, device)
        packed = {weight["tensor"] for weight in plan.facts()["weights"] if weight["packed"] is not None}
        assert packed == set(tensors)
        module, executor = plan.build(flags=USUAL), Simulator(model).make_executor(graph(text))
        counts = {"1": 1, "40": 40, "T": 7}
        x = {
            f"x{number}": rng.normal(size=(counts[rows], depth)).astype(np.float32)
            for number, (_, depth, rows) in enumerate(products)
        }
        for one in (module, executor):
            one.insert(x)
            one.run_step()
        for number, (_, depth, _) in enumerate(products):
            wanted, found = executor.fetch(f"y{number}"), module.fetch(f"y{number}")
            assert np.abs(found - wanted).max() <= 1e-6 * depth * np.abs(wanted).max(), products[number]


def _for_each(form: str, products: Sequence[tuple[int, int, str]]) -> str:
    """The form once for each product: ``#`` is its number, ``C``, ``D`` and ``R`` its columns, depth and rows."""
    return " ".join(
        form.replace("#", str(number)).replace("C", str(columns)).replace("D", str(depth)).replace("R", rows)
        for number, (columns, depth, rows) in enumerate(products)
    )
