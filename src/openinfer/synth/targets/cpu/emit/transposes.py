"""Square blocks transposed in vector registers, in C."""

from dataclasses import dataclass

from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS, VectorType
from openinfer.synth.targets.cstyle.support import Need


@dataclass(frozen=True)
class Transpose:
    """The function that transposes a square block."""

    dtype: str
    lanes: int

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_transpose_{self.dtype}x{self.lanes}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector."""
        return (VectorType(self.dtype, self.lanes),)

    @property
    def text(self) -> str:
        """Its definition."""
        return _transposing(self.name, self.dtype, self.lanes)


def _transposing(name: str, dtype: str, lanes: int) -> str:
    """An in-register transpose: swaps off-diagonal blocks, halving them in each pass."""
    kind, vector = ELEMENTS[dtype], VectorType(dtype, lanes).name
    lines = [
        f"/* Transposes {lanes} x {lanes} elements in registers: to[j][i] = from[i][j], rows a stride apart. */",
        f"static inline void {name}(const {kind} *from, int64_t from_row, {kind} *to, int64_t to_row)",
        "{",
        "#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)",
        f"    {vector} r[{lanes}], t;",
        f"    for (int i = 0; i < {lanes}; ++i) r[i] = *(const {vector} *)(from + i * from_row);",
    ]
    far = lanes // 2
    while far:
        upper = [lane if not lane & far else lanes + (lane ^ far) for lane in range(lanes)]
        lower = [lanes + lane if lane & far else lane ^ far for lane in range(lanes)]
        lines += [
            f"    for (int i = 0; i < {lanes}; ++i) {{",
            f"        if (i & {far}) continue;",
            f"        t = __builtin_shufflevector(r[i], r[i + {far}], {', '.join(map(str, upper))});",
            f"        r[i + {far}] = __builtin_shufflevector(r[i], r[i + {far}], {', '.join(map(str, lower))});",
            "        r[i] = t;",
            "    }",
        ]
        far //= 2
    return (
        "\n".join(
            [
                *lines,
                f"    for (int i = 0; i < {lanes}; ++i) *({vector} *)(to + i * to_row) = r[i];",
                "#else",
                f"    for (int i = 0; i < {lanes}; ++i)",
                f"        for (int j = 0; j < {lanes}; ++j) to[j * to_row + i] = from[i * from_row + j];",
                "#endif",
                "}",
            ]
        )
        + "\n"
    )
