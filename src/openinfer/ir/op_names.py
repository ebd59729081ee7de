"""The names of all ops, so that unknown ops are refused without loading the op records.

A test compares this list with the records.
"""

from openinfer.errors import Advice, Fix, fixes_of, nearest

_NAMES = """
    abs acos acosh add all_axis and any_axis argmax_axis argmin_axis asin asinh atan atan2 atanh attn avg_pool
    batch_norm bitcast cast ceil celu clamp concat conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d cos cosh cumprod cumsum depth_to_space dequantize div dynamic_quantize einsum elu embedding eq
    erf exp exp2 expand expm1 fft fill fill_nan_like filter fir flatten flip floor floor_div fma gather gather_nd ge
    gelu global_avg_pool global_max_pool glu group_norm gru_cell gt hard_sigmoid hard_swish ifft instance_norm iota
    irfft is_finite is_inf is_nan is_neg l2_normalize layer_norm le linear log log10 log1p log2 log_softmax
    logsumexp_axis lstm_cell lt matmul max max_axis max_pool mean_axis mel_filterbank min min_axis mish mod mul ne
    neg norm_axis not one_hot or outer pad popcount pow prelu prod_axis quantize recip relu rem reshape resize rfft
    rms_norm rnn_cell roll rope rope_cached round rsqrt sample scatter scatter_nd sdpa selu shl shr sigmoid sign
    silu sin sinh slice softmax softplus softsign sort space_to_depth split sqrt square squeeze stack stft sub
    sum_axis take_along tan tanh threshold tile topk transpose tri trunc unsqueeze var_axis where xor
"""
OP_NAMES = frozenset(_NAMES.split())

_CALLED_ELSEWHERE = {
    "matmul": "mm bmm dot matvec mv",
    "linear": "gemm dense addmm fully_connected inner_product",
    "concat": "cat concatenate",
    "reshape": "view resize_",
    "transpose": "permute swapaxes t movedim",
    "unsqueeze": "expand_dims newaxis",
    "expand": "broadcast_to broadcast",
    "tile": "repeat tile_",
    "split": "chunk unbind",
    "sub": "subtract minus",
    "mul": "multiply times",
    "div": "divide true_divide",
    "add": "plus bias_add",
    "neg": "negative negate",
    "recip": "reciprocal inv",
    "pow": "power",
    "max": "maximum",
    "min": "minimum",
    "clamp": "clip",
    "silu": "swish",
    "hard_swish": "hardswish",
    "hard_sigmoid": "hardsigmoid",
    "sum_axis": "reduce_sum sum sum_all",
    "mean_axis": "reduce_mean mean average",
    "max_axis": "reduce_max amax",
    "min_axis": "reduce_min amin",
    "prod_axis": "reduce_prod prod",
    "norm_axis": "reduce_l2 reduce_l1 norm",
    "logsumexp_axis": "logsumexp reduce_log_sum_exp",
    "var_axis": "var variance",
    "argmax_axis": "argmax arg_max",
    "argmin_axis": "argmin arg_min",
    "all_axis": "all",
    "any_axis": "any",
    "conv2d": "conv",
    "conv_transpose2d": "conv_transpose deconv deconv2d",
    "max_pool": "max_pool2d max_pool3d maxpool maxpool2d",
    "avg_pool": "avg_pool1d avg_pool2d avg_pool3d average_pool avgpool",
    "global_avg_pool": "global_average_pool adaptive_avg_pool2d",
    "batch_norm": "batch_normalization batch_norm1d batch_norm2d",
    "layer_norm": "layer_normalization layernorm",
    "rms_norm": "rmsnorm",
    "sdpa": "attention scaled_dot_product_attention multihead_attention",
    "embedding": "embed lookup embedding_lookup",
    "gather": "index_select take",
    "take_along": "gather_elements take_along_axis",
    "scatter": "scatter_add index_add scatter_elements",
    "resize": "interpolate upsample",
    "iota": "arange range",
    "tri": "tril",
    "fill": "full full_like constant_of_shape",
    "cast": "to astype type",
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal greater_or_equal",
    "lt": "less",
    "le": "less_equal less_or_equal",
    "and": "logical_and bitwise_and",
    "or": "logical_or bitwise_or",
    "xor": "logical_xor bitwise_xor",
    "not": "logical_not bitwise_not invert",
    "shl": "left_shift",
    "shr": "right_shift",
    "where": "select",
    "is_nan": "isnan",
    "is_inf": "isinf",
    "is_finite": "isfinite",
    "lstm_cell": "lstm",
    "gru_cell": "gru",
    "rnn_cell": "rnn",
    "rope": "rotary_embedding rotary apply_rotary_pos_emb",
    "sample": "multinomial",
    "quantize": "quantize_linear",
    "dequantize": "dequantize_linear",
    "dynamic_quantize": "dynamic_quantize_linear",
    "depth_to_space": "pixel_shuffle",
    "l2_normalize": "l2_norm normalize",
}
"""Names of ops in other frameworks, in lower case with underscores."""

_WRITTEN_HERE = {
    "leakyrelu": "op relu(x, negative_slope=0.01)",
    "relu6": "op relu(x, clamp_max=6.0)",
    "hardtanh": "op clamp(x, min=-1.0, max=1.0)",
    "zeros": "op fill(x, value=0)",
    "zeroslike": "op fill(x, value=0)",
    "ones": "op fill(x, value=1)",
    "oneslike": "op fill(x, value=1)",
    "triu": "op tri(x, upper=true)",
    "maxpool1d": "op max_pool(x, kernel=[2])",
    **dict.fromkeys(("identity", "copy", "clone", "assign"), "transfer x >> y;"),
}
"""Ops of other frameworks that are more than a single op name here."""

_OTHER_NAMES = {name.replace("_", ""): name for name in sorted(OP_NAMES)} | {
    other.replace("_", ""): name for name, others in _CALLED_ELSEWHERE.items() for other in others.split()
}


def op_called(name: str) -> str:
    """Help for an unknown op: its name here, or the nearest names.

    >>> op_called("MaxPool2d")
    "it is called 'max_pool' here; see 'openinfer ops max_pool'"
    """
    plain = name.replace("_", "").lower()
    if plain in _WRITTEN_HERE:
        return f"write  {_WRITTEN_HERE[plain]}"
    found = _OTHER_NAMES.get(plain)
    if found is not None:
        return Advice(f"it is called '{found}' here; see 'openinfer ops {found}'", Fix(found, name))
    near = nearest(name.lower(), sorted(OP_NAMES))
    if near is None:
        return "'openinfer ops' lists them"
    return Advice(near, *(Fix(fix.new, name) for fix in fixes_of(near)))
