"""Recurrent cells: two contractions into scratch memory, then the gates, element by element."""

from openinfer.loops.build import Builder, load, math, pair
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call


def _product(builder: Builder, x: KernelInput | None, w: KernelInput | None, bias: KernelInput | None) -> Buffer:
    """``x * transpose(w) + bias`` in the compute type."""
    assert x is not None
    assert w is not None
    assert x.dequantize is None
    assert w.dequantize is None
    compute = x.dtype.compute
    rows, features = w.shape
    shape = (*x.shape[:-1], rows)
    out = builder.buffer(compute, shape, "product")
    free, k = tuple(builder.fresh("i") for _ in shape), builder.fresh("k")
    total: Scalar = ScalarVar(ACCUMULATOR, compute)
    builder.add(
        Contraction(
            out=out,
            a=x.buffer,
            b=w.buffer,
            free=free,
            extents=shape,
            bound=(k,),
            reduced=(features,),
            out_index=free,
            a_index=(*free[:-1], k),
            b_index=(free[-1], k),
            accumulator=compute,
            epilogue=total if bias is None else total + bias[free[-1]],
        )
    )
    return out


def _part(product: Buffer, gate: int, state: int, where: tuple[ScalarVar, ...]) -> Scalar:
    """The element of a gate; the gates lie one after the other along the last axis."""
    return load(product, *where[:-1], where[-1] + state * gate)


def _sigmoid(value: Scalar) -> Scalar:
    return 1 / (1 + math("exp", -value))


@lowers("lstm_cell")
def _lstm_cell(
    _call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    x, h, c, w_ih, w_hh, b_ih, b_hh = inputs
    h_out, c_out = outputs
    assert c is not None
    inside, outside = _product(builder, x, w_ih, b_ih), _product(builder, h, w_hh, b_hh)
    state = c.shape[-1]
    with builder.loops(c.shape, LoopKind.PARALLEL) as where:
        i, f, g, o = (_part(inside, gate, state, where) + _part(outside, gate, state, where) for gate in range(4))
        entering, kept = builder.let(_sigmoid(i), "input"), builder.let(_sigmoid(f), "forget")
        candidate = builder.let(math("tanh", g), "candidate")
        shown = builder.let(_sigmoid(o), "output")
        updated = builder.let(kept * c[where] + entering * candidate, "cell")
        builder.store(h_out, where, shown * math("tanh", updated))
        builder.store(c_out, where, updated)


@lowers("gru_cell")
def _gru_cell(
    _call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    x, h, w_ih, w_hh, b_ih, b_hh = inputs
    (out,) = outputs
    assert h is not None
    inside, outside = _product(builder, x, w_ih, b_ih), _product(builder, h, w_hh, b_hh)
    state = h.shape[-1]
    with builder.loops(h.shape, LoopKind.PARALLEL) as where:
        (a_r, b_r), (a_z, b_z), (a_n, b_n) = (
            (_part(inside, gate, state, where), _part(outside, gate, state, where)) for gate in range(3)
        )
        reset = builder.let(_sigmoid(a_r + b_r), "reset")
        update = builder.let(_sigmoid(a_z + b_z), "update")
        candidate = builder.let(math("tanh", a_n + reset * b_n), "candidate")
        builder.store(out, where, (1 - update) * candidate + update * h[where])


@lowers("rnn_cell")
def _rnn_cell(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    x, h, w_ih, w_hh, b_ih, b_hh = inputs
    (out,) = outputs
    inside, outside = _product(builder, x, w_ih, b_ih), _product(builder, h, w_hh, b_hh)
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        total = load(inside, *where) + load(outside, *where)
        is_tanh = call.params["activation"] == "tanh"
        builder.store(out, where, math("tanh", total) if is_tanh else pair("max", total, 0))
