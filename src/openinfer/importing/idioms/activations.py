"""Activations that exporters decompose: silu, gelu, hard_swish and so on."""

from math import pi, sqrt

from openinfer.importing.draft import DraftOp, DraftOperand, DraftStep
from openinfer.importing.idioms.matching import Matches, first, is_near, made, number, orders, pair, params

IdiomRewrite = list[DraftStep] | None


def silu(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``x * sigmoid(x)``."""
    if root.op != "mul":
        return None
    for x, other in orders(root):
        gate = matches.inner(other, "sigmoid")
        if gate is not None and gate.inputs[0] is x:
            return [made("silu", [x], {}, root)]
    return None


def hard_swish(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``x * hard_sigmoid(x)`` with the usual slope."""
    if root.op != "mul":
        return None
    for x, other in orders(root):
        gate = matches.inner(other, "hard_sigmoid")
        if gate is not None and gate.inputs[0] is x:
            given = params(gate)
            if is_near(given["alpha"], 1 / 6, x.dtype) and is_near(given["beta"], 0.5, x.dtype):
                return [made("hard_swish", [x], {}, root)]
    return None


def hard_sigmoid(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``clamp(x + 3, 0, 6) / 6``."""
    if root.op not in ("div", "mul"):
        return None
    value, divisor = pair(root)
    factor = number(divisor)
    if not is_near(factor, 6 if root.op == "div" else 1 / 6, value.dtype):
        return None
    limited = matches.inner(value, "clamp")
    if limited is None or (params(limited)["min"], params(limited)["max"]) != (0, 6):
        return None
    shifted = matches.inner(first(limited), "add")
    if shifted is None:
        return None
    for x, three in orders(shifted):
        if number(three) == 3 and len(three.shape) <= len(x.shape):
            return [made("hard_sigmoid", [x], {}, root)]
    return None


def gelu(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``x / 2 * (1 + erf(x / sqrt(2)))`` or its tanh approximation, with the factors in any order."""
    if root.op != "mul":
        return None
    factor, operands = _factors(matches, root)
    if not is_near(factor, 0.5, root.outputs[0].dtype) or len(operands) != 2:
        return None
    for x, other in (operands, operands[::-1]):
        plus = matches.inner(other, "add")
        if plus is None:
            continue
        for curve, one in orders(plus):
            if number(one) != 1:
                continue
            kind = _curve(matches, curve, x)
            if kind is not None:
                return [made("gelu", [x], {"approximate": kind}, root)]
    return None


_DEEPEST_PRODUCT = 6


def _factors(matches: Matches, step: DraftOp, depth: int = 0) -> tuple[float, list[DraftOperand]]:
    """The constant factor and the other operands of a product, through inner products that nothing else reads."""
    total, found = 1.0, []
    one, other = pair(step)
    for operand, is_divisor in ((one, False), (other, step.op == "div")):
        value = number(operand)
        if value is not None and value != 0:
            total *= 1 / value if is_divisor else value
            continue
        is_leaf = is_divisor or depth == _DEEPEST_PRODUCT
        inner = None if is_leaf else matches.inner(operand, "mul", "div")
        if inner is None or (inner.op == "div" and number(inner.inputs[1]) is None):
            found.append(operand)
            continue
        factor, operands = _factors(matches, inner, depth + 1)
        total *= factor
        found += operands
    return total, found


def _curve(matches: Matches, curve: DraftOperand, x: DraftOperand) -> str | None:
    """Which gelu curve of x this is: ``none`` for erf, ``tanh``, or None."""
    erf = matches.inner(curve, "erf")
    if erf is not None:
        scaled = matches.inner(first(erf), "mul", "div")
        if scaled is None:
            return None
        factor, operands = _factors(matches, scaled)
        return "none" if len(operands) == 1 and operands[0] is x and is_near(factor, 1 / sqrt(2), x.dtype) else None
    tanh = matches.inner(curve, "tanh")
    scaled = None if tanh is None else matches.inner(first(tanh), "mul")
    if scaled is None:
        return None
    factor, operands = _factors(matches, scaled)
    if len(operands) != 1 or not is_near(factor, sqrt(2 / pi), x.dtype):
        return None
    total = matches.inner(operands[0], "add")
    if total is None:
        return None
    for own, cube in orders(total):
        if own is x and _is_cube(matches, cube, x):
            return "tanh"
    return None


def _is_cube(matches: Matches, operand: DraftOperand, x: DraftOperand) -> bool:
    """Whether this is ``0.044715 * x ** 3``."""
    scaled = matches.inner(operand, "mul")
    if scaled is None:
        return False
    factor, operands = _factors(matches, scaled)
    if not is_near(factor, 0.044715, x.dtype):
        return False
    if len(operands) == 1:
        power = matches.inner(operands[0], "pow")
        return power is not None and power.inputs[0] is x and number(power.inputs[1]) == 3
    squares = [one for one in operands if one is not x]
    if len(operands) == 2 and len(squares) == 1:
        square = matches.inner(squares[0], "square")
        return square is not None and square.inputs[0] is x
    return len(operands) == 3 and not squares
