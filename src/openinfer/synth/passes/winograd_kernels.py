"""Winograd's minimal filtering for 3 x 3 convolutions: the matrices, and the kernels that apply them.

A tile of ``m`` x ``m`` results takes ``(m + 2)`` squared products per channel instead of ``9 * m * m``: the input and
the weights are transformed, multiplied element by element, and transformed back. F(2x2) needs 2.25 times fewer products
and F(4x4) four times fewer, at the cost of transforms and of rounding errors that grow with ``m``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from openinfer.dtypes import DTYPES, Array
from openinfer.loops.build import Builder, const, index, load, pair
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, Kernel, LoopKind, Scalar, ScalarVar

F32 = DTYPES["f32"]
Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Winograd:
    """A filter size: the results of a tile along each axis, and the three transform matrices."""

    size: int
    inputs: Rows
    """The transform of input elements along an axis."""
    weights: Rows
    """The transform of the three weights along an axis."""
    results: Rows
    """The transform of products to results along an axis."""

    @property
    def points(self) -> int:
        """The number of products along each axis."""
        return self.size + 2

    def transformed(self, weights: Array) -> Array:
        """The transformed weights, products x channels x features; computed in f64."""
        matrix = np.array(self.weights)
        wide = np.einsum("ri,ocij,sj->rsco", matrix, weights.astype(np.float64), matrix, optimize=True)
        return wide.reshape(self.points**2, *wide.shape[2:]).astype(np.float32)


F2 = Winograd(
    2,
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, -1)),
)
F4 = Winograd(
    4,
    (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
)


@dataclass(frozen=True)
class ConvShape:
    """A 3 x 3 convolution with stride 1, channels first."""

    batch: int
    channels: int
    features: int
    height: int
    width: int
    top: int
    left: int
    result: tuple[int, int]

    def tiles(self, form: Winograd) -> tuple[int, int]:
        """The number of tiles along each axis."""
        down, across = self.result
        return -(-down // form.size), -(-across // form.size)

    def products(self, form: Winograd) -> tuple[int, int, int]:
        """The number of products per tile and channel, of tiles, and of features."""
        down, across = self.tiles(form)
        return form.points**2, self.batch * down * across, self.features


def input_kernel(shape: ConvShape, form: Winograd) -> Kernel:
    """Transforms the input: for each product and channel, a row of tiles."""
    x = Buffer("x", F32, (shape.batch, shape.channels, shape.height, shape.width))
    count, tiles, _ = shape.products(form)
    out = Buffer("tiles", F32, (count, shape.channels, tiles))
    builder, (down, across) = Builder(), shape.tiles(form)
    with builder.loops((shape.batch, shape.channels), LoopKind.PARALLEL) as (sample, channel):
        image = _image(builder, shape, form, x, (sample, channel))
        lines = builder.buffer(F32, (form.points, form.size, across + 1), "lines")
        with builder.loop(down) as tile_row:
            with builder.loops((form.size, across + 1)) as (phase, place):
                seen = [
                    builder.let(load(image, tile_row * index(form.size) + index(line), phase, place))
                    for line in range(form.points)
                ]
                for line, factors in enumerate(form.inputs):
                    builder.store(lines, (line, phase, place), _combined(factors, seen))
            with builder.loops((form.points, across)) as (row, tile):
                seen = [
                    builder.let(load(lines, row, at % form.size, tile + index(at // form.size)))
                    for at in range(form.points)
                ]
                position = (sample * index(down) + tile_row) * index(across) + tile
                for at, factors in enumerate(form.inputs):
                    where = row * index(form.points) + index(at), channel, position
                    builder.store(out, where, _combined(factors, seen))
    doc = f"Tiles of {form.points} x {form.points} of the input, transformed for Winograd's F({form.size}x{form.size})."
    return Kernel("winograd_input", (x,), (out,), builder.body, (doc,))


def _image(builder: Builder, shape: ConvShape, form: Winograd, x: Buffer, where: tuple[ScalarVar, ScalarVar]) -> Buffer:
    """A padded channel, deinterleaved by columns modulo ``size``, so that adjacent tiles are contiguous in memory."""
    down, across = shape.tiles(form)
    image = builder.buffer(F32, (down * form.size + 2, form.size, across + 1), "image")
    with builder.loops(image.shape) as place:
        builder.store(image, place, const(0, F32))
    rows = min(shape.height, image.shape[0] - shape.top)
    with builder.loop(rows) as row:
        for phase in range(form.size):
            first = max(0, -(-(shape.left - phase) // form.size))
            until = min(across + 1, -(-(shape.width + shape.left - phase) // form.size))
            if until > first:
                with builder.loop(until - first) as place:
                    column = (place + first) * index(form.size) + index(phase - shape.left)
                    value = load(x, *where, row, column)
                    builder.store(image, (row + shape.top, index(phase), place + first), value)
    return image


def product_kernel(shape: ConvShape, form: Winograd) -> Kernel:
    """Reduces over channels: one matrix product per product of a tile."""
    count, tiles, features = shape.products(form)
    a = Buffer("tiles", F32, (count, shape.channels, tiles))
    b = Buffer("w", F32, (count, shape.channels, features))
    out = Buffer("sums", F32, (count, tiles, features))
    t, p, o, c = (ScalarVar(f"{stem}{number}", stem=stem) for number, stem in enumerate("iiik", 1))
    one = Contraction(
        out,
        a,
        b,
        (t, p, o),
        (count, tiles, features),
        (c,),
        (shape.channels,),
        (t, p, o),
        (t, c, p),
        (t, c, o),
        F32,
        ScalarVar(ACCUMULATOR, F32),
    )
    return Kernel("winograd_products", (a, b), (out,), (one,), ("Products of transformed tiles and weights.",))


def result_kernel(shape: ConvShape, form: Winograd, *, has_bias: bool) -> Kernel:
    """Transforms the products back to results, adds the bias, and stores them in place."""
    sums = Buffer("sums", F32, shape.products(form))
    bias = Buffer("bias", F32, (shape.features,))
    height, width = shape.result
    out = Buffer("y", F32, (shape.batch, shape.features, height, width))
    builder, (down, across), size = Builder(), shape.tiles(form), form.size
    with builder.loops((shape.batch, down), LoopKind.PARALLEL) as (sample, tile_row):
        rows = builder.buffer(F32, (size, across * size, shape.features), "rows")
        first = builder.let(tile_row * index(size), "first")
        with builder.loops((across, shape.features)) as (tile, feature):
            position = (sample * index(down) + tile_row) * index(across) + tile
            products = [builder.let(load(sums, at, position, feature)) for at in range(form.points**2)]
            for down_at, across_at, value in _results(builder, form, products):
                builder.store(rows, (down_at, tile * index(size) + index(across_at), feature), value)
        inside = builder.let(pair("min", index(height) - first, size), "inside") if height % size else index(size)
        with builder.loops((shape.features, inside, width)) as (feature, row, column):
            total: Scalar = load(rows, row, column, feature)
            total = total + load(bias, feature) if has_bias else total
            builder.store(out, (sample, feature, first + row, column), total)
    inputs = (sums, bias) if has_bias else (sums,)
    return Kernel("winograd_results", inputs, (out,), builder.body, ("Products, transformed back to results.",))


def _results(builder: Builder, form: Winograd, products: Sequence[Scalar]) -> Iterator[tuple[int, int, Scalar]]:
    """The results of a tile, by row and column: transformed first along columns, then along rows."""
    columns = [products[at :: form.points] for at in range(form.points)]
    for row, factors in enumerate(form.results):
        half = [builder.let(_combined(factors, column)) for column in columns]
        for column, others in enumerate(form.results):
            yield row, column, _combined(others, half)


def _combined(factors: Sequence[float], values: Sequence[Scalar]) -> Scalar:
    """A linear combination; factors of 1 take no multiplication."""
    total: Scalar | None = None
    for factor, value in sorted(zip(factors, values, strict=True), key=lambda one: one[0] < 0):
        if factor:
            term = value if abs(factor) == 1 else value * const(abs(factor), F32)
            if total is None:
                total = term if factor > 0 else term * const(-1.0, F32)
            else:
                total = total + term if factor > 0 else total - term
    assert total is not None
    return total
