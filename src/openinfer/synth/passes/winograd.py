"""Computes convolutions by Winograd's algorithm, where the user allows it and it is less work.

Rounding errors exceed those of reordering a sum, so this needs the user's permission.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from openinfer.dtypes import Array
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Kernel
from openinfer.loops.text import kernel_text
from openinfer.ops.lower.kernel import kernel_of
from openinfer.ops.shapes import pads_of, per_axis
from openinfer.synth.passes.fuse.ledger import InexactNode
from openinfer.synth.passes.winograd_kernels import (
    F2,
    F4,
    F32,
    ConvShape,
    Winograd,
    input_kernel,
    product_kernel,
    result_kernel,
)
from openinfer.synth.program.constraints import ProgramConstraints
from openinfer.synth.program.ir import FOLDED, KernelStep, Program, Step, StepOperand, Value, Weight
from openinfer.tensor import Tensor

_PER_WEIGHT = 6
"""The cost of reading a weight, in products: it comes from memory, and is used for few tiles."""
_PER_ELEMENT = 16
"""The cost of transforming an element, in products."""


@dataclass(frozen=True)
class AllowedWinograd:
    """The pass: every eligible convolution, or only those with the constraint, in the cheapest form."""

    everywhere: bool = False

    def run(self, program: Program) -> tuple[Program, tuple[InexactNode, ...]]:
        """The program with eligible convolutions as transforms and products, and the list of these convolutions."""
        return _Rewrite(program, self.everywhere).run()


class _Rewrite:
    def __init__(self, program: Program, everywhere: bool) -> None:  # noqa: FBT001  (option of the pass)
        self._program = program
        self._constraints = ProgramConstraints(program)
        self._everywhere = everywhere
        self._folded = dict(program.folded)
        self._made: list[InexactNode] = []

    def run(self) -> tuple[Program, tuple[InexactNode, ...]]:
        program = self._program.map_steps(self._step)
        return replace(program, folded=self._folded), tuple(self._made)

    def _step(self, step: Step) -> tuple[Step, ...]:
        if not isinstance(step, KernelStep) or not self._constraints.allows_winograd(step.node, self._everywhere):
            return (step,)
        shape = self._shape(step)
        form = None if shape is None else best_form(shape)
        return (step,) if shape is None or form is None else self._steps(step, shape, form)

    def _shape(self, step: KernelStep) -> ConvShape | None:
        """The convolution that a step computes, if it is 3 x 3 with constant weights and all in f32."""
        own = self._program.bound.ops.get(step.node)
        if own is None or own.call is None or own.is_dynamic or own.record.name != "conv2d":
            return None
        if not _is_plain(own.call.params):
            return None
        x, w = own.call.input(0), own.call.input(1)
        kinds = (*own.stored, *(kind.dtype for kind in own.call.outputs))
        if any(kind is not None and kind is not F32 for kind in kinds) or own.call.params["acc"] not in (None, (F32,)):
            return None
        if any(map(is_symbolic, x.shape)) or w.shape[2:] != (3, 3) or not own.call.outputs[0].size:
            return None
        weight = step.inputs[1]
        if not isinstance(weight, Weight) or weight.index or weight.part not in ("data", FOLDED):
            return None
        if kernel_text(step.kernel) != kernel_text(kernel_of(own.record, own.call, own.stored)):
            return None
        (top, left), _ = pads_of(own.call.params["pads"], 2)
        height, width = own.call.outputs[0].shape[2:]
        batch, channels, *extents = x.shape
        return ConvShape(batch, channels, w.shape[0], extents[0], extents[1], top, left, (height, width))

    def _array(self, weight: Weight) -> Array:
        if weight.part == FOLDED:
            return self._folded[weight.names[0]].to_numpy()
        assert self._program.bound.model is not None
        return self._program.bound.model.load(weight.names[0]).to_numpy()

    def _steps(self, step: KernelStep, shape: ConvShape, form: Winograd) -> tuple[Step, ...]:
        x, weight, *bias = step.inputs
        assert isinstance(weight, Weight)
        name, (out,) = f"node {step.node}, Winograd F({form.size}x{form.size})", step.outputs
        array = form.transformed(self._array(weight))
        found = f"{error_bound(shape.channels, form):.1g} of the largest sum of magnitudes in the sample"
        self._made.append(InexactNode(step.node, f"Winograd F({form.size}x{form.size}, 3x3)", found))
        self._folded[name] = Tensor.from_numpy(array, F32)
        own = Weight((name,), F32, array.shape, part=FOLDED)
        first, second = input_kernel(shape, form), product_kernel(shape, form)
        tiles = Value(f"{out.name}_tiles", F32, first.outputs[0].shape)
        sums = Value(f"{out.name}_sums", F32, second.outputs[0].shape)
        last = result_kernel(shape, form, has_bias=bool(bias))
        return (
            _called(step, first, (x,), tiles),
            _called(step, second, (tiles, own), sums),
            _called(step, last, (sums, *bias), out),
        )


def _called(step: KernelStep, kernel: Kernel, inputs: tuple[StepOperand, ...], output: Value) -> KernelStep:
    """A replacement step, with memory for what its kernel allocates."""
    scratch = tuple(Value(f"{output.name}_{one.name}", one.dtype, one.shape) for one in kernel.scratch)
    return replace(step, kernel=kernel, inputs=inputs, outputs=(output,), scratch=scratch)


def _is_plain(params: Mapping[str, Any]) -> bool:
    """Whether strides and dilations are 1, groups are 1, and channels come first."""
    strides, dilations = (per_axis(params[name], 2, name, 1) for name in ("strides", "dilations"))
    return strides == dilations == (1, 1) and params["groups"] == 1 and params["layout"] == "NCHW"


def error_bound(channels: int, form: Winograd) -> float:
    """The largest measured error, with a margin: relative to the largest sum of magnitudes of products.

    >>> f"{error_bound(64, F2):.1e} {error_bound(64, F4):.1e}"
    '4.8e-06 7.6e-06'
    """
    return (channels + (16 if form.size == F2.size else 64)) * 2.0**-24


def best_form(shape: ConvShape) -> Winograd | None:
    """The cheapest form; None if direct convolution is cheaper.

    >>> early, late = ConvShape(1, 64, 64, 56, 56, 1, 1, (56, 56)), ConvShape(1, 512, 512, 7, 7, 1, 1, (7, 7))
    >>> best_form(early) is F4, best_form(late) is F2, best_form(replace(late, result=(2, 2)))
    (True, True, None)
    """
    pairs = shape.channels * shape.features
    down, across = shape.result
    direct = 9 * pairs * (shape.batch * down * across + _PER_WEIGHT)

    def work(form: Winograd) -> int:
        count, tiles, _ = shape.products(form)
        return count * (pairs * (tiles + _PER_WEIGHT) + _PER_ELEMENT * tiles * (shape.channels + shape.features))

    best = min((F2, F4), key=work)
    return best if work(best) < direct else None
