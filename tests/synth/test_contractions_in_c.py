"""Contractions, windows and attention in generated C: quantized weights, and extents known when the code runs."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import FAST, agree, planned
from tests.synth.in_c import Prepared, compiled

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.ir import Kernel
from openinfer.oinf import TensorSpec, save_file
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import OPS, Array, Call, Case, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.c.kernels import printed

F32, I8 = DTYPES["f32"], DTYPES["i8"]
BOUND = 9


def run(kernel: Kernel, folder: Path, arrays: Sequence[Array], shape: tuple[int, ...], *sizes: int) -> Array:
    """The only result of a kernel, f32, on inputs as they are stored."""
    code = printed(kernel, "case0")
    one = Prepared(OPS[kernel.name], Case((), ()), Call(()), code, kernel.inputs, kernel.outputs, kernel.scratch)
    library = compiled([one], folder, ("-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"))
    result = np.full(shape, np.nan, np.float32)
    # Scratch memory is as large as the bounds of the sizes say.
    scratch = [np.zeros(max(int(np.prod(buffer.shape)), 1) * 8, np.uint8) for buffer in kernel.scratch]
    memory = [np.ascontiguousarray(array) for array in (*arrays, result, *scratch)]
    library.case0(*(ctypes.c_void_p(array.ctypes.data) for array in memory), *(ctypes.c_int64(size) for size in sizes))
    return np.asarray(memory[len(arrays)])


def reference(name: str, arrays: Sequence[Array], kinds: Sequence[TensorType], **params: Any) -> Array:
    record = OPS[name]
    call = infer(record, Call(tuple(kinds), complete(record, params)))
    stored: list[DType] = [I8 if array.dtype == np.int8 else F32 for array in arrays]
    with np.errstate(all="ignore"):
        return ReferenceKernel(record, call, stored)(arrays)[0]


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("name", "x", "w", "params"),
    [
        ("matmul", (3, 5), (5, 4), {}),
        ("linear", (2, 5), (4, 5), {}),
        ("conv2d", (1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "pads": 1}),
        ("conv_transpose1d", (1, 3, 5), (3, 2, 3), {"strides": 2}),
    ],
)
def test_quantized_weights_stand_for_real_numbers(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    params: dict[str, Any],
    zeros: bool,
    axis: int | None,
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(3)
    count = 1 if axis is None else w[axis]
    scales = rng.uniform(0.01, 0.1, count).astype(np.float32)
    points = rng.integers(-5, 5, count).astype(np.int32)
    quant = QuantParams(
        "asymmetric" if zeros else "symmetric",
        QuantScale(axis, scales),
        QuantZeroPoint(axis, points) if zeros else None,
    )
    arrays = rng.normal(size=x).astype(np.float32), rng.integers(-128, 128, w).astype(np.int8)
    kinds = TensorType(F32, x), TensorType(I8, w, quant)
    wanted = reference(name, arrays, kinds, **params)
    record = OPS[name]
    call = infer(record, Call(kinds, complete(record, params)))
    extra = [scales, points.astype(np.float32)] if zeros else [scales]
    got = run(kernel_of(record, call, (F32, I8)), tmp_path, [*arrays, *extra], wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


N = Dim(BOUND, Ref("N"))
"""An extent that is at most so large; the tests run with less."""


@pytest.mark.parametrize("size", [1, 4, BOUND])
@pytest.mark.parametrize(
    ("name", "shapes", "params"),
    [
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
    ],
)
def test_extents_may_be_known_only_when_the_code_runs(
    name: str, shapes: tuple[tuple[int, ...], ...], params: dict[str, Any], size: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    record = OPS[name]
    call = infer(record, Call(tuple(TensorType(F32, shape) for shape in shapes), complete(record, params)))
    real = [tuple(size if isinstance(extent, Dim) else extent for extent in shape) for shape in shapes]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in real]
    wanted = reference(name, arrays, [TensorType(F32, shape) for shape in real], **params)
    got = run(kernel_of(record, call, (F32,) * len(shapes)), tmp_path, arrays, wanted.shape, size)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bound", [8, 256])
def test_queries_and_keys_of_two_dynamic_sizes_with_the_same_bound_are_told_apart(bound: int) -> None:
    attention = graph(
        f"sizes {{ T <= {bound}; P <= {bound}; }}"
        "dynamic { q: f32[4, T, 4]; k: f32[2, P, 4]; } volatile { y: f32[4, T, 4]; }"
        "block entry { op sdpa(q, k, k, causal=true) >> y; return y; }"
    )
    keys = np.random.default_rng(5).normal(size=(4, 8, 4)).astype(np.float32)
    machines: list[Any] = [Simulator().make_executor(attention), Synthesizer().synthesize(None, attention).build()]
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
    module, executor = planned(text, model).build(), Simulator(model).make_executor(graph(text))
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
    for columns, depth in ((96, 64), (41, 130)):
        stored = rng.integers(least, most + 1, (columns, depth)).astype(kind.array)
        scale = QuantScale.per_channel(0, rng.uniform(0.01, 0.1, columns).astype(np.float32))
        zero = QuantZeroPoint.per_channel(0, rng.integers(least, most + 1, columns).astype(np.int32))
        quant = QuantParams("asymmetric", scale, zero) if has_zero else QuantParams("symmetric", scale, None)
        path = tmp_path / f"{columns}.oinf"
        save_file(path, {"w": TensorSpec(stored, dtype, quant=quant)})
        with ModelLoader.open(path) as model:
            for rows, count in (("1", 1), ("40", 40), ("T", 7)):
                text = f"""sizes {{ T <= 20; }} dynamic {{ x: f32[{rows}, {depth}]; }}
                volatile {{ y: f32[{rows}, {columns}]; }} constant {{ w: {dtype}[{columns}, {depth}]; }}
                block entry {{ op linear(x, w) >> y; return y; }}"""
                plan = planned(text, model, device)
                assert any("in panels" in line for line in plan.project.code()["src/net.c"].splitlines())
                module, executor = plan.build(flags=FAST), Simulator(model).make_executor(graph(text))
                x = rng.normal(size=(count, depth)).astype(np.float32)
                for one in (module, executor):
                    one.insert(x=x)
                    one.run_step()
                wanted = executor.fetch("y")
                assert np.abs(module.fetch("y") - wanted).max() <= 1e-6 * depth * np.abs(wanted).max()
