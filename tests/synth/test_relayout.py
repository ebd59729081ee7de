"""Tensors that are only put into another order before or after a product: they are read and written as they lie."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned

from openinfer import Simulator, graph
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Kernel
from openinfer.synth.program.ir import KernelStep, steps_in

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Operands of a product with shapes, what is done before and after it, and the shape of the result."""

    x: Shape
    w: Shape
    y: Shape
    body: str
    between: tuple[Shape, ...]

    @property
    def text(self) -> str:
        extents = {name: ", ".join(map(str, shape)) for name, shape in (("x", self.x), ("w", self.w), ("y", self.y))}
        temporaries = "".join(
            f"assign {name}: f32[{', '.join(map(str, shape))}]; "
            for name, shape in zip("ab", self.between, strict=False)
        )
        return (
            f"dynamic {{ x: f32[{extents['x']}]; w: f32[{extents['w']}]; }} volatile {{ y: f32[{extents['y']}]; }}"
            f" block entry {{ {temporaries}{self.body} return y; }}"
        )

    def inputs(self, step: int) -> dict[str, Any]:
        """Whole numbers, so that sums are exact in any order."""
        rng = np.random.default_rng(step)
        return {name: rng.integers(-9, 9, shape).astype(np.float32) for name, shape in (("x", self.x), ("w", self.w))}


READ = {
    "axes in another order": Case(
        (3, 2, 16), (2, 16, 5), (2, 3, 5), "op transpose(x, perm=[1, 0, 2]) >> a; op matmul(a, w) >> y;", ((2, 3, 16),)
    ),
    "heads side by side": Case(
        (1, 3, 32),
        (1, 2, 16, 5),
        (1, 2, 3, 5),
        "op reshape(x, shape=[1, 3, 2, 16]) >> a; op transpose(a, perm=[0, 2, 1, 3]) >> b; op matmul(b, w) >> y;",
        ((1, 3, 2, 16), (1, 2, 3, 16)),
    ),
    "the right factor": Case(
        (2, 3, 5), (5, 2, 16), (2, 3, 16), "op transpose(w, perm=[1, 0, 2]) >> a; op matmul(x, a) >> y;", ((2, 5, 16),)
    ),
}
WRITTEN = {
    "axes in another order": Case(
        (2, 3, 5), (2, 5, 16), (3, 2, 16), "op matmul(x, w) >> a; op transpose(a, perm=[1, 0, 2]) >> y;", ((2, 3, 16),)
    ),
    "heads side by side": Case(
        (1, 2, 3, 5),
        (1, 2, 5, 16),
        (1, 3, 32),
        "op matmul(x, w) >> a; op transpose(a, perm=[0, 2, 1, 3]) >> b; op reshape(b, shape=[1, 3, 32]) >> y;",
        ((1, 2, 3, 16), (1, 3, 2, 16)),
    ),
    "three axes as one": Case(
        (2, 3, 5), (2, 5, 16), (96,), "op matmul(x, w) >> a; op reshape(a, shape=[96]) >> y;", ((2, 3, 16),)
    ),
}
KEPT = {
    "rows are short": Case(
        (2, 3, 5), (2, 5, 15), (3, 2, 15), "op matmul(x, w) >> a; op transpose(a, perm=[1, 0, 2]) >> y;", ((2, 3, 15),)
    ),
    "rows become columns": Case(
        (2, 3, 5), (2, 5, 16), (2, 16, 3), "op matmul(x, w) >> a; op transpose(a, perm=[0, 2, 1]) >> y;", ((2, 3, 16),)
    ),
    "columns become rows": Case(
        (2, 16, 3), (2, 16, 5), (2, 3, 5), "op transpose(x, perm=[0, 2, 1]) >> a; op matmul(a, w) >> y;", ((2, 3, 16),)
    ),
    "rows are cut": Case(
        (3, 5), (5, 32), (3, 2, 16), "op matmul(x, w) >> a; op reshape(a, shape=[3, 2, 16]) >> y;", ((3, 32),)
    ),
    "rows are turned round": Case(
        (2, 3, 5), (2, 5, 16), (2, 3, 16), "op matmul(x, w) >> a; op flip(a, axes=[0]) >> y;", ((2, 3, 16),)
    ),
    "rows are repeated": Case(
        (3, 5), (5, 16), (6, 16), "op matmul(x, w) >> a; op tile(a, repeats=[2, 1]) >> y;", ((3, 16),)
    ),
    "rows are left out": Case(
        (3, 5), (5, 16), (2, 16), "op matmul(x, w) >> a; op slice(a, starts=[0], ends=[2]) >> y;", ((3, 16),)
    ),
    "both factors are the same": Case(
        (16, 2, 16), (1,), (2, 16, 16), "op transpose(x, perm=[1, 0, 2]) >> a; op matmul(a, a) >> y;", ((2, 16, 16),)
    ),
    "only one row is left": Case(
        (3, 5),
        (5, 16),
        (16,),
        "op matmul(x, w) >> a; op slice(a, starts=[0], ends=[1]) >> b; op reshape(b, shape=[16]) >> y;",
        ((3, 16), (1, 16)),
    ),
}


def kernels(text: str, device: str = "cpu") -> list[Kernel]:
    program = planned(text, device=device).project.program
    steps = [step for block in program.blocks.values() for step in steps_in(block)]
    return [step.kernel for step in steps if isinstance(step, KernelStep)]


@pytest.mark.parametrize(
    "case", [*READ.values(), *WRITTEN.values()], ids=[*READ, *(f"written {one}" for one in WRITTEN)]
)
def test_a_product_works_on_rows_where_they_lie(case: Case) -> None:
    assert [one.name for one in kernels(case.text)] == ["matmul"]
    agree(case.text, inputs=case.inputs)


@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT)
def test_what_is_no_other_order_of_long_rows_is_moved_apart(case: Case) -> None:
    assert len(kernels(case.text)) == 2
    agree(case.text, inputs=case.inputs)


def test_attention_stores_heads_beside_each_other() -> None:
    """A device with a template for attention: its result is in the order of the op that reads it."""
    text = """
        dynamic { q: f32[1, 2, 9, 16]; k: f32[1, 2, 11, 16]; v: f32[1, 2, 11, 16]; } volatile { y: f32[1, 9, 32]; }
        block entry {
            assign a: f32[1, 2, 9, 16]; assign b: f32[1, 9, 2, 16];
            op sdpa(q, k, v) >> a; op transpose(a, perm=[0, 2, 1, 3]) >> b; op reshape(b, shape=[1, 9, 32]) >> y;
            return y;
        }
    """
    (kernel,) = kernels(text, "h200-vulkan")
    assert kernel.name == "sdpa"
    assert [buffer.shape for buffer in kernel.outputs] == [(1, 9, 32)]
    rng = np.random.default_rng(5)
    given = {one.name: rng.standard_normal(one.shape, np.float32) for one in kernel.inputs}
    executor = Simulator().make_executor(graph(text))
    executor.insert(given)
    executor.run_step()
    (found,) = interpret(kernel, [given[one.name] for one in kernel.inputs])
    assert np.allclose(found, executor.fetch("y"), 1e-5, 1e-6)
