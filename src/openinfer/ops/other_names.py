"""What other frameworks call the inputs and parameters of ops."""

from collections.abc import Collection

from openinfer.errors import Advice, Fix, nearest

_CALLED_ELSEWHERE = {
    "pads": "padding pad paddings pad_width",
    "strides": "stride",
    "dilations": "dilation rate",
    "kernel": "kernel_size kernel_shape ksize pool_size window_shape",
    "groups": "group num_groups feature_group_count",
    "axis": "dim axes dimension",
    "axes": "dim dims axis normalized_shape dimensions",
    "keepdims": "keepdim keep_dims",
    "perm": "dims axes permutation order",
    "eps": "epsilon variance_epsilon",
    "to": "dtype type out_dtype",
    "acc": "dtype acc_dtype accumulator",
    "p": "ord order norm",
    "alpha": "negative_slope slope a",
    "negative_slope": "alpha slope leak",
    "clamp_max": "max max_value threshold",
    "min": "min_val min_value low a_min minimum",
    "max": "max_val max_value high a_max maximum",
    "scale": "scale_factor scales scaling",
    "size": "output_size sizes new_shape",
    "sizes": "split_size_or_sections split sections split_sizes num_or_size_splits chunks",
    "shape": "size new_shape newshape target_shape",
    "starts": "start begin",
    "ends": "end stop",
    "steps": "step stride strides",
    "repeats": "reps multiples repetitions",
    "shifts": "shift",
    "depth": "num_classes classes",
    "ddof": "correction unbiased",
    "causal": "is_causal",
    "equation": "subscripts",
    "transpose_a": "trans_a transA transposeA adjoint_a",
    "transpose_b": "trans_b transB transposeB adjoint_b",
    "diagonal": "k",
    "value": "fill_value constant_value constant_values",
    "interleaved": "traditional",
    "top_k": "k topk",
    "top_p": "p nucleus",
    "largest": "descending",
    "descending": "largest",
    "x": "input input_tensor tensor data X inputs",
    "a": "x lhs input self A tensor1",
    "b": "y rhs other B tensor2",
    "w": "weight weights kernel filter W",
    "bias": "b B",
    "gamma": "weight scale",
    "beta": "bias B",
    "mean": "running_mean input_mean",
    "var": "running_var input_var variance",
    "q": "query Q",
    "k": "key K",
    "v": "value V",
    "mask": "attn_mask attention_mask",
    "ids": "indices index idx",
    "table": "weight embeddings",
    "cond": "condition",
    "h": "hx hidden state",
    "w_ih": "weight_ih",
    "w_hh": "weight_hh",
    "b_ih": "bias_ih",
    "b_hh": "bias_hh",
}


def called_here(name: str, known: Collection[str]) -> str | None:
    """Help for a name that an op does not have: what the op calls it, or the nearest of the names it has.

    >>> called_here("padding", ["strides", "pads"])
    "it is called 'pads' here"
    """
    found = [own for own in known if name in _CALLED_ELSEWHERE.get(own, "").split()]
    if not found:
        return nearest(name, known)
    return Advice(f"it is called {' or '.join(map(repr, found))} here", *(Fix(own, name) for own in found))
