"""Cases that are large enough to have tiles, bands and windows of their own, as the records' own cases are not.

Convolutions of every kind (few channels, groups, depthwise, strides, dilations, one to three axes, channels last,
transposed), products of many and of few rows, attention, and what reduces, scans, sorts or pools long rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.ops import Case
from openinfer.ops.cases import case
from openinfer.ops.linear import spread_values

_Shape = tuple[int, ...]
_Setting = tuple[tuple[_Shape, ...], Mapping[str, Any]]

FLOATS = ("f32", "f64", "f16", "bf16")
BYTES = ("i8", "u8")

CONVOLUTIONS: Mapping[str, tuple[_Setting, ...]] = {
    "conv1d": (
        (((1, 4, 602), (24, 4, 11)), {"strides": 2}),
        (((2, 24, 130), (24, 1, 5)), {"groups": 24, "pads": 2}),
        (((1, 40, 100), (52, 40, 3), (52,)), {"pads": 1}),
        (((1, 12, 90), (24, 3, 4)), {"groups": 4, "dilations": 3}),
        (((1, 90, 12), (24, 3, 4)), {"groups": 4, "strides": 2, "layout": "NHWC"}),
    ),
    "conv2d": (
        (((1, 3, 33, 35), (16, 3, 3, 3), (16,)), {"strides": 2, "pads": 1}),
        (((1, 2, 5, 402), (384, 2, 3, 3)), {}),
        (((1, 4, 20, 70), (20, 4, 3, 3)), {"pads": 2, "dilations": 2}),
        (((1, 1, 30, 17), (7, 1, 5, 4)), {"pads": (2, 1, 0, 3)}),
        (((1, 32, 19, 23), (32, 1, 3, 3), (32,)), {"groups": 32, "pads": 1}),
        (((2, 8, 17, 18), (16, 1, 5, 5)), {"groups": 8, "pads": 2, "strides": 2}),
        (((1, 16, 14, 15), (24, 4, 3, 3)), {"groups": 4, "pads": 1}),
        (((1, 32, 9, 11), (48, 32, 3, 3), (48,)), {"pads": 1}),
        (((1, 64, 14, 14), (48, 64, 1, 1)), {}),
        (((1, 16, 28, 28), (96, 16, 1, 1)), {}),
        (((3, 8, 12, 13), (20, 8, 3, 2)), {"strides": (2, 1)}),
        (((1, 48, 7, 7), (64, 48, 3, 3)), {"pads": 1}),
        (((1, 9, 11, 32), (48, 32, 3, 3), (48,)), {"pads": 1, "layout": "NHWC"}),
        (((1, 19, 23, 16), (16, 1, 3, 3)), {"groups": 16, "pads": 1, "layout": "NHWC"}),
        (((1, 20, 21, 3), (16, 3, 3, 3)), {"strides": 2, "layout": "NHWC"}),
    ),
    "conv3d": (
        (((1, 3, 7, 10, 13), (8, 3, 3, 3, 3)), {"pads": 1}),
        (((1, 8, 5, 9, 10), (8, 1, 3, 3, 3)), {"groups": 8, "pads": 1, "strides": (1, 2, 1)}),
        (((1, 16, 4, 7, 8), (24, 16, 2, 3, 3)), {}),
    ),
    "conv_transpose1d": (
        (((1, 16, 40), (16, 20, 4)), {"strides": 2}),
        (((2, 8, 33), (8, 3, 3)), {"groups": 4, "pads": 1}),
    ),
    "conv_transpose2d": (
        (((1, 16, 9, 10), (16, 24, 3, 3), (24,)), {"strides": 2, "pads": 1}),
        (((1, 12, 8, 9), (12, 1, 3, 3)), {"groups": 12}),
        (((1, 3, 20, 21), (3, 8, 2, 2)), {"strides": 2}),
    ),
    "conv_transpose3d": ((((1, 6, 4, 5, 6), (6, 8, 2, 3, 2)), {"strides": 2}),),
}
PRODUCTS: Mapping[str, tuple[_Setting, ...]] = {
    "matmul": (
        (((70, 90), (90, 100)), {}),
        (((3, 33, 64), (3, 64, 65)), {}),
        (((1, 256), (256, 300)), {}),
        (((130, 7), (7, 130)), {}),
        (((37, 64), (70, 64)), {"transpose_b": True}),
        (((2, 5, 64), (2, 96, 64)), {"transpose_b": True}),
    ),
    "linear": (
        (((5, 96), (130, 96), (130,)), {}),
        (((1, 200), (97, 200)), {}),
        (((65, 48), (51, 48), (51,)), {}),
    ),
}
ROWS: Mapping[str, tuple[_Setting, ...]] = {
    "sdpa": (
        (((2, 33, 16), (2, 40, 16), (2, 40, 24)), {}),
        (((3, 20, 32), (3, 20, 32), (3, 20, 32)), {"causal": True}),
        (((4, 1, 16), (4, 65, 16), (4, 65, 16)), {}),
    ),
    "softmax": ((((9, 130),), {}), (((5, 40, 7),), {"axis": 1})),
    "layer_norm": ((((11, 96), (96,), (96,)), {}),),
    "rms_norm": ((((11, 96), (96,)), {}),),
    "sum_axis": ((((7, 130, 5),), {"axis": 1}), (((40, 3),), {"axis": 1}), (((200, 31),), {"axis": 0})),
    "mean_axis": ((((7, 130, 5),), {"axis": 1}), (((100, 3),), {"axis": 1}), (((4000,),), {"axis": 0})),
    "var_axis": ((((7, 130, 5),), {"axis": 1}), (((100, 3),), {"axis": 1})),
    "max_axis": ((((7, 130, 5),), {"axis": 1}), (((100, 3),), {"axis": 1})),
    "argmax_axis": ((((7, 130, 5),), {"axis": 1}), (((100, 3),), {"axis": 1})),
    "cumsum": ((((9, 130),), {"axis": 1}), (((130, 9),), {"axis": 0})),
    "sort": ((((9, 65),), {}),),
    "topk": ((((9, 65),), {"k": 7}),),
    "max_pool": ((((1, 8, 17, 19),), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),),
    "avg_pool": ((((1, 8, 17, 19),), {"kernel": (3, 3), "strides": (1, 2), "pads": (1, 1, 1, 1)}),),
    "transpose": ((((9, 33, 17),), {"perm": (2, 0, 1)}),),
}


def large_cases(name: str, dtype: DType) -> Iterator[Case]:
    """The large cases of an op for a dtype; none for most."""
    settings = (*CONVOLUTIONS.get(name, ()), *PRODUCTS.get(name, ()))
    if settings and dtype.name in (*FLOATS, *BYTES):
        acc = {} if dtype.name in FLOATS else {"acc": (DTYPES["i32"],)}
        for arrays, params in _made(name, dtype, settings):
            if len(arrays) < 3 or dtype.name in FLOATS:
                yield case(dtype, *arrays, **params, **acc)
            else:
                bias = arrays[2].astype(np.int32)
                yield Case((*arrays[:2], bias), (dtype, dtype, DTYPES["i32"]), {**params, **acc})
    if dtype.name in ("f32", "f16"):
        for arrays, params in _made(name, dtype, ROWS.get(name, ())):
            yield case(dtype, *arrays, **params)


def _made(name: str, dtype: DType, settings: tuple[_Setting, ...]) -> Iterator[tuple[list[Any], Mapping[str, Any]]]:
    rng = np.random.default_rng([22, crc32(f"{name} {dtype.name}".encode())])
    for shapes, params in settings:
        yield [spread_values(rng, dtype, shape) for shape in shapes], params
