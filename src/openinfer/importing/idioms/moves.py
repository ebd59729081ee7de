"""Removes neutral ops and merges consecutive moves."""

from openinfer.importing.draft import DraftOp, DraftOperand
from openinfer.importing.idioms.activations import IdiomRewrite
from openinfer.importing.idioms.matching import Matches, first, fits, is_known_as, made, params
from openinfer.loops.dim import is_same_shape

_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1, "and": 1, "or": 0}


def neutral(matches: Matches, root: DraftOp) -> DraftOperand | None:
    """The operand that an op leaves unchanged: a sum with 0, a product with 1, a reshape to the same shape."""
    if root.op in ("reshape", "expand"):
        return first(root) if is_same_shape(first(root).shape, root.outputs[0].shape) else None
    wanted, kind = _NEUTRAL.get(root.op), root.outputs[0].dtype.kind
    if wanted is None or len(root.inputs) != 2 or (root.op == "and" and kind != "bool"):
        return None
    if kind not in ("float", "bool") or (root.op == "add" and kind == "float"):
        return None  # -0 + 0 is 0; integers may be neutral in one layer and not in the next
    return _left_by(matches, root, wanted)


def neutral_integers(matches: Matches, root: DraftOp) -> DraftOperand | None:
    """The integers that an op leaves unchanged: zero points differ between layers and may be 0 or 1 in some."""
    wanted, kind = _NEUTRAL.get(root.op), root.outputs[0].dtype.kind
    if wanted is None or len(root.inputs) != 2 or kind not in ("int", "uint") or root.op in ("and", "or"):
        return None
    if root.op == "add":
        for kept, other in (root.inputs, root.inputs[::-1]):
            product = matches.maker(other, "mul")
            if product is not None and any(is_known_as(one, 0) for one in product.inputs) and kept is not None:
                return kept if is_same_shape(kept.shape, root.outputs[0].shape) else None
    return _left_by(matches, root, wanted)


def _left_by(matches: Matches, root: DraftOp, wanted: int) -> DraftOperand | None:
    """The operand next to one whose elements all equal ``wanted``."""
    one, other = root.inputs
    pairs = [(one, other)] if root.op in ("sub", "div") else [(one, other), (other, one)]
    for kept, number in pairs:
        filled = matches.maker(number, "expand")
        source = number if filled is None else filled.inputs[0]
        if kept is not None and is_known_as(source, wanted) and is_same_shape(kept.shape, root.outputs[0].shape):
            return kept
    return None


def joined_moves(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """Merge a transpose of a transpose, a reshape of a reshape, an unsqueeze of an unsqueeze."""
    if root.op not in ("transpose", "reshape", "unsqueeze", "squeeze"):
        return None
    inner = matches.inner(first(root), "transpose" if root.op == "transpose" else "reshape", "unsqueeze", "squeeze")
    if inner is None or (root.op == "transpose") != (inner.op == "transpose"):
        return None
    source = first(inner)
    if root.op == "transpose":
        outer, own = params(root)["perm"], params(inner)["perm"]
        if outer is None or own is None:
            return None
        return [made("transpose", [source], {"perm": tuple(own[one] for one in outer)}, root)]
    if root.op == inner.op == "unsqueeze":
        step = _unsqueezed(source, root, inner)
        return [step] if fits(step) else None
    if root.op == inner.op == "squeeze":
        return None
    step = made("reshape", [source], {"shape": tuple(root.outputs[0].shape)}, root)
    return [step] if fits(step) else None


def _unsqueezed(source: DraftOperand, root: DraftOp, inner: DraftOp) -> DraftOp:
    rank = len(root.outputs[0].shape)
    outer = {one % rank for one in params(root)["axes"]}
    rest = [one for one in range(rank) if one not in outer]
    own = {rest[one % len(rest)] for one in params(inner)["axes"]}
    return made("unsqueeze", [source], {"axes": tuple(sorted(outer | own))}, root)


def batched_transpose(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """A swap of the last two axes between two reshapes that only merge and split the axes before them."""
    if root.op != "reshape":
        return None
    middle = matches.inner(first(root), "transpose")
    joined = None if middle is None else matches.inner(first(middle), "reshape")
    if middle is None or joined is None or tuple(params(middle)["perm"] or ()) != (0, 2, 1):
        return None
    source, flat, result = first(joined), first(middle).shape, root.outputs[0].shape
    rank = len(source.shape)
    if rank < 3 or len(result) != rank or not is_same_shape(source.shape[-2:], flat[-2:]):
        return None
    if not is_same_shape(result, (*source.shape[:-2], source.shape[-1], source.shape[-2])):
        return None
    return [made("transpose", [source], {"perm": (*range(rank - 2), rank - 1, rank - 2)}, root)]
