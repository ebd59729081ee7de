"""The comment above a kernel in emitted C: its nodes, its algorithms, the parameters in use, how weights are stored."""

import re
from pathlib import Path

import numpy as np
import pytest

from openinfer import ModelLoader, Synthesizer, graph
from openinfer.oinf import save_file

ORDER = """
dynamic { x: f32[40]; like: f32[40]; }
volatile { y: f32[40]; z: f32[40]; }
block entry {
    assign i: f32[40]; assign o: i64[40];
    op sort(x, axis=0) >> y, o;
    op iota(like, axis=0) >> i;
    op mul(x, i) >> z;
    op mul(z, i) >> z;
    return y, z;
}
"""
DENSE = """
dynamic { x: f32[64]; }
constant { w: f32[48, 64]; }
volatile { y: f32[48]; }
block entry { op linear(x, w) >> y; op relu(y) >> y; return y; }
"""


def kernels_of(text: str, model: ModelLoader | None = None, device: str = "generic") -> list[str]:
    """The functions of kernels, each with the comment above it."""
    code = Synthesizer(device).synthesize(model, graph(text)).project.code()["src/kernels.c"]
    return re.split(r"(?m)^(?=/\*$)", code)[1:]


def test_a_kernel_says_its_nodes_as_they_stand_in_the_graph_and_names_its_algorithm_once() -> None:
    sort, scaled = kernels_of(ORDER)
    assert re.match(r"/\*\n \* Node \d+, line 6: op sort\(x, axis=0\) >> y, o\n \*\n", sort)
    assert sort.count("merge sort") == 1
    assert [*re.findall(r"line (\d+): op", scaled)] == ["7", "8", "9"]
    assert scaled.count("The product") == 1


@pytest.mark.parametrize(
    ("call", "formula"),
    [
        ("gelu(x)", "y = x * erfc(-x / sqrt(2)) / 2"),
        ('gelu(x, approximate="tanh")', "y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))"),
        ("tri(x)", "j - i <= diagonal ?"),
        ("tri(x, upper=true)", "j - i >= diagonal ?"),
        ("cumsum(x, axis=1)", "y[i] = x[0] + ... + x[i]"),
        ("cumsum(x, axis=1, exclusive=true)", "y[i] = x[0] + ... + x[i - 1]"),
        ("cumsum(x, axis=1, reverse=true)", "y[i] = x[i] + ... + x[n - 1]"),
        ("cumprod(x, axis=1, exclusive=true, reverse=true)", "y[i] = x[i + 1] * ... * x[n - 1]"),
        ("norm_axis(x)", "y = sum(|x|**p) ** (1/p)"),
        ("norm_axis(x, p=0.0)", "y = sum(x != 0)"),
        ("norm_axis(x, p=inf)", "y = max(|x|)"),
        ("norm_axis(x, p=-inf)", "y = min(|x|)"),
        ("matmul(x, x)", "a[..., i, k] * b[..., k, j]"),
        ("matmul(x, x, transpose_a=true)", "a[..., k, i] * b[..., k, j]"),
        ("matmul(x, x, transpose_b=true)", "a[..., i, k] * b[..., j, k]"),
    ],
)
def test_a_kernel_says_what_its_parameters_make_of_the_op(call: str, formula: str) -> None:
    [code] = kernels_of(f"dynamic {{ x: f32[4, 4]; }} block entry {{ y = op {call}; return y; }}")
    doc, _, _ = code.partition("*/")
    assert formula in doc
    assert doc.count("`y") == 1


def test_a_value_of_which_only_the_shape_matters_is_no_parameter() -> None:
    scaled = kernels_of(ORDER)[-1]
    assert "(const float *restrict a, float *restrict y)" in scaled
    assert re.findall(r"(?m)^ \* (\w+): f32", scaled) == ["a", "y"]
    assert "(void)" not in scaled


def test_a_kernel_says_that_weights_are_in_panels(tmp_path: Path) -> None:
    save_file(tmp_path / "model.oinf", {"w": np.ones((48, 64), np.float32)})
    with ModelLoader.open(tmp_path / "model.oinf") as model:
        [dense] = kernels_of(DENSE, model, "x86-avx2")
        found = re.search(r" \* w: f32\[(\d+), 64, (\d+)\], weights in panels of (\d+) columns\n", dense)
        assert found is not None
        assert found[2] == found[3]
        assert " * x: f32[64]\n" in dense
