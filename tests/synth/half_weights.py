"""A contraction of every kind whose weights are floats of 16 bits and whose activations have 32."""

from typing import Any

import numpy as np
from tests.synth.small_models import SmallModel

from openinfer import dtype_of
from openinfer.oinf import TensorSpec

WEIGHTS: dict[str, tuple[int, ...]] = {
    "w": (72, 48), "b": (72,), "table": (50, 48), "kernel": (20, 6, 3, 3), "taps": (12, 1, 3, 3), "batch": (2, 48, 24),
    "long_w": (20, 9000), "wide": (70, 3, 3, 3),
}  # fmt: skip
INPUTS = {
    "rows": (19, 48), "columns": (48, 21), "image": (1, 6, 16, 16), "colours": (1, 3, 15, 15),
    "channels": (1, 12, 9, 9), "long": (3, 9000),
}  # fmt: skip
OUTPUTS: dict[str, tuple[int, ...]] = {
    "y": (19, 72), "transposed": (19, 72), "left": (72, 21), "logits": (50,), "single": (72,),
    "convolved": (1, 20, 16, 16), "strided": (1, 70, 8, 8), "depthwise": (1, 12, 9, 9), "batched": (2, 19, 24),
    "added": (3, 20),
}  # fmt: skip
_BODY = """
    op cast(w, to=f32) >> w_f32;
    op cast(b, to=f32) >> b_f32;
    op linear(rows, w_f32, b_f32) >> y;
    op transpose(w_f32, perm=[1, 0]) >> w_t;
    op matmul(rows, w_t) >> transposed;
    op matmul(w_f32, columns) >> left;
    op cast(table, to=f32) >> table_f32;
    op embedding(table_f32, token) >> row;
    op linear(row, table_f32) >> logits;
    op linear(row, w_f32) >> single;
    op cast(kernel, to=f32) >> kernel_f32;
    op conv2d(image, kernel_f32, pads=1) >> convolved;
    op cast(wide, to=f32) >> wide_f32;
    op conv2d(colours, wide_f32, pads=1, strides=2) >> strided;
    op cast(taps, to=f32) >> taps_f32;
    op conv2d(channels, taps_f32, pads=1, groups=12) >> depthwise;
    op cast(batch, to=f32) >> batch_f32;
    op matmul(rows, batch_f32) >> batched;
    op cast(long_w, to=f32) >> long_w_f32;
    op linear(long, long_w_f32) >> added;
"""


def _declared(shapes: dict[str, tuple[int, ...]], dtype: str = "f32") -> list[str]:
    return [f"{name}: {dtype}[{', '.join(map(str, shape))}];" for name, shape in shapes.items()]


def _text(dtype: str) -> str:
    own = {f"{name}_f32": shape for name, shape in WEIGHTS.items()} | {"w_t": (48, 72), "row": (48,)}
    return "\n".join(
        [
            f"dynamic {{ token: i64; {' '.join(_declared(INPUTS))} }}",
            f"constant {{ {' '.join(_declared(WEIGHTS, dtype))} }}",
            f"volatile {{ {' '.join(_declared(OUTPUTS))} }}",
            "block entry {",
            *(f"    assign {line}" for line in _declared(own)),
            _BODY,
            f"    return {', '.join(OUTPUTS)};",
            "}",
        ]
    )


def half_model(dtype: str) -> SmallModel:
    """The graph with weights of a dtype."""

    def tensors(rng: np.random.Generator) -> dict[str, Any]:
        kind = dtype_of(dtype).array
        return {
            name: TensorSpec((rng.standard_normal(shape) / 4).astype(kind), dtype) for name, shape in WEIGHTS.items()
        }

    def inputs(rng: np.random.Generator) -> dict[str, Any]:
        floats = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in INPUTS.items()}
        return {"token": np.int64(rng.integers(50)), **floats}

    return SmallModel(_text(dtype), tensors, inputs, tuple(OUTPUTS), steps=1)
