"""Lists of numbers that steps look things up in, each printed once however many steps use it."""

_NARROW = 32


class NumberLists:
    r"""Constant arrays of a source file, by what they belong to.

    With ``bits`` of 32, numbers that fit are of 32 bits: those of a microcontroller take half of its memory then.

    >>> lists = NumberLists(32)
    >>> lists.name("offsets", "w", (0, 64)), lists.code()
    ('offsets0', 'static const int32_t offsets0[] = { 0, 64 };\n')
    """

    def __init__(self, bits: int = 64) -> None:
        self._bits = bits
        self._names: dict[object, str] = {}
        self._definitions: list[str] = []

    def name(self, kind: str, owner: object, numbers: tuple[int, ...]) -> str:
        """The array of an owner's numbers. The owner stands for them, so that they are looked at only once."""
        key = (kind, owner)
        if key not in self._names:
            self._names[key] = f"{kind}{len(self._names)}"
            listed = ", ".join(map(str, numbers))
            is_narrow = self._bits == _NARROW and all(-(2**31) <= one < 2**31 for one in numbers)
            width = "int32_t" if is_narrow else "int64_t"
            self._definitions.append(f"static const {width} {self._names[key]}[] = {{ {listed} }};\n")
        return self._names[key]

    def code(self) -> str:
        """The arrays in C."""
        return "".join(self._definitions)
