"""Lists of numbers that steps look things up in, each printed once however many steps use it."""


class NumberLists:
    """Constant arrays of a source file, by what they belong to."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._definitions: list[str] = []

    def name(self, kind: str, owner: object, numbers: tuple[int, ...]) -> str:
        """The array of an owner's numbers. The owner stands for them, so that they are looked at only once."""
        key = (kind, owner)
        if key not in self._names:
            self._names[key] = f"{kind}{len(self._names)}"
            listed = ", ".join(map(str, numbers))
            self._definitions.append(f"static const int64_t {self._names[key]}[] = {{ {listed} }};\n")
        return self._names[key]

    def code(self) -> str:
        """The arrays in C."""
        return "".join(self._definitions)
