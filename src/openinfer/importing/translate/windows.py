"""The windows of convolutions and pools: kernels, strides and padding."""

from dataclasses import dataclass

from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext
from openinfer.ir.polynomial import Form
from openinfer.loops.dim import form, is_same, is_symbolic


@dataclass(frozen=True)
class Window:
    """How a window slides over the spatial axes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def pads(self) -> tuple[int, ...]:
        """All begins, then all ends."""
        return self.begins + self.ends

    def params(self) -> dict[str, tuple[int, ...] | None]:
        """Strides, pads and dilations as the ops take them, without defaults."""
        return {
            "strides": shortened(self.strides, 1),
            "pads": shortened(self.pads, 0),
            "dilations": shortened(self.dilations, 1),
        }


def shortened(values: tuple[int, ...], default: int) -> tuple[int, ...] | None:
    """One number if all are the same, None if that is the default."""
    if all(is_same(one, values[0]) for one in values):  # sizes with equal bounds may still differ
        return None if is_same(values[0], default) else values[:1]
    return values


def window_of(n: NodeContext, kernel: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
    """The window of a convolution or pool, with automatic padding resolved."""
    count = len(kernel)
    strides, dilations = (n.ints(name) or (1,) * count for name in ("strides", "dilations"))
    if len(strides) != count or len(dilations) != count or any(one < 1 for one in (*strides, *dilations)):
        raise Unsupported("its strides or dilations do not fit its kernel")
    auto = n.text("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = n.ints("pads") or (0,) * (2 * count)
        if len(pads) != 2 * count:
            raise Unsupported("its pads do not fit its kernel")
        return Window(kernel, strides, dilations, pads[:count], pads[count:])
    if auto == "VALID":
        return Window(kernel, strides, dilations, (0,) * count, (0,) * count)
    begins, ends = [], []
    for own, size, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        reach = (size - 1) * dilation + 1
        if is_symbolic(own):
            begin, end = _same_of_all_sizes(reach, stride, auto, form(own % stride))
        else:
            begin, end = _same(max((-(-own // stride) - 1) * stride + reach - own, 0), auto)
        begins.append(begin)
        ends.append(end)
    return Window(kernel, strides, dilations, tuple(begins), tuple(ends))


def _same(total: int, auto: str) -> tuple[int, int]:
    small, large = total // 2, total - total // 2
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def _same_of_all_sizes(reach: int, stride: int, auto: str, rest: Form | int) -> tuple[int, int]:
    """Padding for an axis of any length, if the padding at its start is the same for all lengths.

    The length of the last stride, 1 to ``stride``, decides how much is padded; it is known if the remainder of the axis
    after whole strides is. Padding after the last window changes nothing, so the most that any length needs at the end
    is right for all.
    """
    if isinstance(rest, int):
        return _same(max(reach - (rest or stride), 0), auto)
    begins = {_same(max(reach - last, 0), auto)[0] for last in range(1, stride + 1)}
    if len(begins) > 1 or reach < stride:
        advice = f"fix the size, or make it a multiple: --size 'NAME={stride}*n' --size 'n<=BOUND'"
        raise Unsupported(f"its padding {auto} depends on a size", advice)
    begin = begins.pop()
    return begin, reach - 1 - begin
