"""Attention that exporters decompose, and rotary embeddings."""

from math import sqrt

import numpy as np

from openinfer.importing.draft import DraftOp, DraftOperand, DraftPart, DraftStep, DraftValue
from openinfer.importing.idioms.activations import IdiomRewrite
from openinfer.importing.idioms.matching import Matches, first, fits, made, new, number, orders, pair, params
from openinfer.loops.dim import is_same, is_same_shape, is_symbolic


def sdpa(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``softmax(q * transpose(k) * scale + mask) * v``."""
    if root.op != "matmul" or root.params:
        return None
    weights, v = pair(root)
    softmax = _softmax(matches, weights)
    if softmax is None or params(softmax)["axis"] not in (-1, len(weights.shape) - 1):
        return None
    scores, mask = first(softmax), None
    total = matches.inner(scores, "add")
    product, scale = _scaled_product(matches, scores)
    if product is None and total is not None:
        for one, other in orders(total):
            product, scale = _scaled_product(matches, one)
            if product is not None:
                scores, mask = one, other
                break
    if product is None:
        return None
    return _attention(matches, root, product, (v, mask), scale)


def _softmax(matches: Matches, weights: DraftOperand) -> DraftOp | None:
    """The softmax, also behind a guard that zeroes rows without keys."""
    guard = matches.inner(weights, "where")
    if guard is None:
        return matches.inner(weights, "softmax")
    cond, zero, kept = guard.inputs
    test = matches.inner(cond, "is_nan")
    if test is None or number(zero) != 0 or test.inputs[0] is not kept or kept is None or matches.reads(kept) != 2:
        return None
    return matches.maker(kept, "softmax")


def _scaled_product(matches: Matches, scores: DraftOperand) -> tuple[DraftOp | None, float]:
    """The product of queries and keys, and its constant factor."""
    step = matches.inner(scores, "mul", "div")
    if step is not None:
        value, factor = pair(step)
        found = number(factor)
        if found:
            return matches.inner(value, "matmul"), found if step.op == "mul" else 1 / found
    return matches.inner(scores, "matmul"), 1.0


def _attention(
    matches: Matches,
    root: DraftOp,
    product: DraftOp,
    rest: tuple[DraftOperand, DraftOperand | None],
    scale: float,
) -> IdiomRewrite:
    v, mask = rest
    q, transposed = pair(product)
    steps: list[DraftStep] = []
    q, q_scale = _unscaled(matches, q)
    transposed, k_scale = _unscaled(matches, transposed)
    if params(product)["transpose_a"] or len(q.shape) < 3:
        return None
    k = transposed if params(product)["transpose_b"] else _keys(matches, transposed, root, steps)
    if k is None or isinstance(k, DraftPart):
        return None
    shared_k, shared_v = _ungrouped(matches, k), _ungrouped(matches, v)
    if shared_k is not None and shared_v is not None and is_same(shared_k.shape[-3], shared_v.shape[-3]):
        k, v = shared_k, shared_v
    depth = q.shape[-1]
    whole = scale * q_scale * k_scale
    if is_symbolic(depth):
        return None
    own = None if abs(whole * sqrt(depth) - 1) < 1e-6 else whole
    step = made("sdpa", [q, k, v] if mask is None else [q, k, v, mask], {"scale": own}, root)
    return [*steps, step] if fits(step) else None


def _ungrouped(matches: Matches, operand: DraftOperand) -> DraftOperand | None:
    """Keys or values before their heads were repeated for groups of queries, else None."""
    reshape = matches.maker(operand, "reshape")
    repeated = None if reshape is None else matches.maker(first(reshape), "expand")
    longer = None if repeated is None else matches.maker(first(repeated), "unsqueeze", "reshape")
    if repeated is None or longer is None:
        return None
    source = first(longer)
    rank = len(source.shape)
    wide, thin = repeated.outputs[0].shape, first(repeated).shape
    if len(operand.shape) != rank or len(wide) != rank + 1 or rank < 3:
        return None
    group = rank - 2
    kept = (*wide[:group], *wide[group + 1 :])
    is_repeat = is_same(thin[group], 1) and is_same_shape(kept, source.shape)
    return source if is_repeat and is_same_shape(operand.shape[group:], source.shape[group:]) else None


def grouped(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """Attention on keys and values with heads repeated for groups of queries; the op repeats them itself."""
    if root.op != "sdpa":
        return None
    q, k, v, *rest = root.inputs
    if k is None or v is None:
        return None
    shared_k, shared_v = _ungrouped(matches, k), _ungrouped(matches, v)
    if shared_k is None or shared_v is None or not is_same(shared_k.shape[-3], shared_v.shape[-3]):
        return None
    step = made("sdpa", [q, shared_k, shared_v, *rest], params(root), root)
    return [step] if fits(step) else None


def _unscaled(matches: Matches, operand: DraftOperand) -> tuple[DraftOperand, float]:
    """An operand without its constant factor, and that factor."""
    step = matches.inner(operand, "mul", "div")
    if step is not None:
        value, factor = pair(step)
        found = number(factor)
        if found and len(factor.shape) <= len(value.shape):
            return value, found if step.op == "mul" else 1 / found
    return operand, 1.0


def _keys(matches: Matches, operand: DraftOperand, root: DraftOp, steps: list[DraftStep]) -> DraftOperand | None:
    """The keys before their last two axes were swapped; the rest of a transpose stays a transpose."""
    step = matches.maker(operand, "transpose")
    if step is None:
        return None
    perm = tuple(params(step)["perm"] or reversed(range(len(operand.shape))))
    swapped = (*perm[:-2], perm[-1], perm[-2])
    source = first(step)
    if swapped == tuple(range(len(swapped))):
        return source
    made_step = new("transpose", [source], {"perm": swapped}, root)
    steps.append(made_step)
    result = made_step.outputs[0]
    assert isinstance(result, DraftValue)
    return result


# --- rotary embeddings ------------------------------------------------------------------------------------------------


def rope(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``x * cos + rotated(x) * sin``, where cos and sin repeat their first half."""
    if root.op != "add":
        return None
    for cos_term, sin_term in orders(root):
        left, right = matches.inner(cos_term, "mul"), matches.inner(sin_term, "mul")
        if left is None or right is None:
            continue
        for x, cos in orders(left):
            for rotated, sin in orders(right):
                found = _rotation(matches, root, (x, rotated, cos, sin))
                if found is not None:
                    return found
    return None


def _rotation(
    matches: Matches, root: DraftOp, parts: tuple[DraftOperand, DraftOperand, DraftOperand, DraftOperand]
) -> IdiomRewrite:
    x, rotated, cos, sin = parts
    depth = x.shape[-1] if x.shape else 0
    if is_symbolic(depth) or depth % 2 or not _is_rotated(matches, rotated, x, depth):
        return None
    steps: list[DraftStep] = []
    halves = []
    for table in (cos, sin):
        if not table.shape or not is_same(table.shape[-1], depth) or not _repeats(matches, table, depth):
            return None
        axis = len(table.shape) - 1
        half = new("slice", [table], {"starts": (0,), "ends": (depth // 2,), "axes": (axis,)}, root)
        steps.append(half)
        result = half.outputs[0]
        assert isinstance(result, DraftValue)
        halves.append(result)
    step = made("rope_cached", [x, *halves], {}, root)
    return [*steps, step] if fits(step) else None


def _is_rotated(matches: Matches, operand: DraftOperand, x: DraftOperand, depth: int) -> bool:
    """Whether this is ``concat(-x[half:], x[:half])`` along the last axis."""
    joined = matches.inner(operand, "concat")
    if joined is None or len(joined.inputs) != 2 or params(joined)["axis"] not in (-1, len(x.shape) - 1):
        return False
    upper, lower = pair(joined)
    negative = matches.inner(upper, "neg")
    if negative is None:
        return False
    return _is_slice(matches, first(negative), x, (depth // 2, depth)) and _is_slice(matches, lower, x, (0, depth // 2))


def _is_slice(matches: Matches, operand: DraftOperand, x: DraftOperand, ends: tuple[int, int]) -> bool:
    step = matches.inner(operand, "slice", "split")
    if step is None or step.inputs[0] is not x:
        return False
    given = params(step)
    rank = len(x.shape)
    if step.op == "split":
        place = next(at for at, one in enumerate(step.outputs) if one is operand)
        halves = (ends[1] - ends[0],) * 2
        return bool(given["axis"] % rank == rank - 1 and tuple(given["sizes"]) == halves and place == int(ends[0] > 0))
    axes = tuple(one % rank for one in given["axes"]) if given["axes"] is not None else ()
    return bool(
        axes == (rank - 1,) and (given["starts"], given["ends"]) == ((ends[0],), (ends[1],)) and not given["steps"]
    )


_SAME_LAST = ("cos", "sin", "mul", "cast", "unsqueeze", "gather", "reshape", "slice", "expand")


def _repeats(matches: Matches, operand: DraftOperand, depth: int) -> bool:
    """Whether the second half of the last axis repeats the first: it comes from a concatenation with itself."""
    for _ in range(16):
        joined = matches.maker(operand, "concat")
        if joined is not None:
            one, *others = joined.inputs
            is_last = params(joined)["axis"] in (-1, len(operand.shape) - 1)
            return is_last and len(others) == 1 and others[0] is one
        if hasattr(operand, "array"):
            array = np.asarray(operand.array)
            return bool(np.array_equal(array[..., : depth // 2], array[..., depth // 2 :]))
        step = matches.maker(operand, *_SAME_LAST)
        if step is None or not _keeps_last(step, depth):
            return False
        operand = first(step)
    return False


def _keeps_last(step: DraftOp, depth: int) -> bool:
    """Whether an op treats all elements of the last axis alike or leaves that axis unchanged."""
    source = first(step)
    if not source.shape or not is_same(source.shape[-1], depth):
        return False
    given = params(step)
    last = len(source.shape) - 1
    match step.op:
        case "mul":
            return number(step.inputs[1]) is not None
        case "unsqueeze":
            rank = len(source.shape) + len(given["axes"])
            return all(one % rank != rank - 1 for one in given["axes"])
        case "gather":
            return bool(given["axis"] % len(source.shape) != last)
        case "slice":
            axes = given["axes"] if given["axes"] is not None else tuple(range(len(given["starts"])))
            return all(one % len(source.shape) != last for one in axes)
    return True
