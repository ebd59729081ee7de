"""Positions in templates of C, as sums that have no terms of nothing."""

Scaled = tuple[int | str, int | str]
"""A count and the stride it counts; both are numbers or names in the template."""


def row_of(rows: int) -> int | str:
    """The row that plain C computes: the index of a loop over rows, or the only row."""
    return "r" if rows > 1 else 0


def place(*terms: Scaled, more: int = 0) -> str:
    """A position as the sum of terms and of a number.

    >>> place((0, "a_row"), (1, "a_step")), place((2, "c_row"), more=8), place(("r", "c_row"), ("n", 1)), place()
    ('a_step', '2 * c_row + 8', 'r * c_row + n', '0')
    """
    found = [_term(*term) for term in terms if term[0] != 0]
    return " + ".join([*found, str(more)] if more or not found else found)


def ahead(pointer: str, *terms: Scaled, more: int = 0) -> str:
    """A pointer that is advanced to a position.

    >>> ahead("c", (0, "c_row")), ahead("c", (1, "c_row"), more=4)
    ('c', 'c + c_row + 4')
    """
    found = place(*terms, more=more)
    return pointer if found == "0" else f"{pointer} + {found}"


def vector_at(vector: str, pointer: str, *terms: Scaled, more: int = 0) -> str:
    """The vector at a position.

    >>> vector_at("oi_f32x8", "c", (0, "c_row")), vector_at("const oi_f32x8", "b", (1, "b_row"), more=8)
    ('*(oi_f32x8 *)c', '*(const oi_f32x8 *)(b + b_row + 8)')
    """
    found = ahead(pointer, *terms, more=more)
    return f"*({vector} *){found if found == pointer else f'({found})'}"


def _term(count: int | str, stride: int | str) -> str:
    if count == 1:
        return str(stride)
    if isinstance(count, int) and isinstance(stride, int):
        return str(count * stride)
    return str(count) if stride == 1 else f"{count} * {stride}"
