"""Integer division, one bit of the quotient per clock. Quotients are truncated, as in C."""

from openinfer.loops.ir import Binary
from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.expressions import Expressions, Wire, WireVariable, number
from openinfer.synth.targets.vhdl.ranges import WireType
from openinfer.synth.targets.vhdl.states import StateMachine


def divide(machine: StateMachine, expressions: Expressions, value: Binary, into: WireVariable) -> None:
    """Divide, and keep the quotient or the remainder in a variable. Division by zero gives a meaningless result."""
    left, right = expressions.value(value.left), expressions.value(value.right)
    bits = max(left.type.bits, right.type.bits)
    words = f"unsigned({bits - 1} downto 0)"
    rest, by, over = (machine.variable(name, words) for name in ("rest", "by", "over"))
    count = machine.variable("count", f"natural range 0 to {bits}")
    is_negative = machine.variable("sign", "boolean")
    machine.step()
    machine.line(f"{rest} := {_magnitude(expressions.constant(value.left), left, bits)};")
    machine.line(f"{by} := {_magnitude(expressions.constant(value.right), right, bits)};")
    machine.line(f"{over} := (others => '0');", 0)
    machine.line(f"{count} := {bits};", 0)
    machine.line(f"{is_negative} := {_sign(expressions, value, left, right)};", 0)
    machine.step()
    loop = machine.label()
    after = machine.fresh()
    machine.at_once(f"if ({over} & {rest}({bits - 1})) >= ('0' & {by}) then")
    machine.at_once(f"  {over} := oi_u(({over} & {rest}({bits - 1})) - ('0' & {by}), {bits});")
    machine.at_once(f"  {rest} := shift_left({rest}, 1); {rest}(0) := '1';")
    machine.at_once("else")
    machine.at_once(f"  {over} := oi_u({over} & {rest}({bits - 1}), {bits});")
    machine.at_once(f"  {rest} := shift_left({rest}, 1);")
    machine.at_once("end if;")
    machine.branch(f"{count} /= 1", loop, after, (f"{count} := {count} - 1;",))
    machine.clocks += Clocks.of(bits - 1)
    machine.enter(after)
    found = rest if value.op == "div" else over
    signed = Wire(f"oi_with_sign({found}, {is_negative})", WireType("signed", bits + 1))
    machine.line(f"{into.name} := {signed.to(into.type)};", 2)


def _magnitude(known: int | None, one: Wire, bits: int) -> str:
    """The absolute value; written out for constants, since some tools do not compare constants."""
    wide = WireType("unsigned", bits)
    if known is not None:
        return number(abs(known), wide)
    return Wire(f"oi_abs({one.text})", WireType("unsigned", one.type.bits)).to(wide)


def _is_negative(known: int | None, one: Wire) -> str:
    if one.type.kind == "unsigned" or (known is not None and known >= 0):
        return "false"
    return f"({one.text} < 0)" if known is None else "true"


def _sign(expressions: Expressions, value: Binary, left: Wire, right: Wire) -> str:
    """Whether the result is negative: a quotient if signs differ, a remainder if the dividend is."""
    own = _is_negative(expressions.constant(value.left), left)
    other = _is_negative(expressions.constant(value.right), right) if value.op == "div" else "false"
    return own if other == "false" else f"({own} /= {other})"
