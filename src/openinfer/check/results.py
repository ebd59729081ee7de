"""The results of a step: the values of a graph's outputs."""

from collections.abc import Iterable, Iterator
from typing import SupportsIndex, overload

from openinfer.errors import nearest
from openinfer.ops import Array


class Outputs(tuple[Array, ...]):
    """The outputs of a step: a tuple of arrays in the order of ``return``, which can also be looked up by name.

    >>> import numpy as np
    >>> out = Outputs({"y": np.ones(2), "n": np.array(3)}.items())
    >>> y, n = out
    >>> out["n"], out.n is n, dict(out)["n"] is n
    (array(3), True, True)
    """

    names: tuple[str, ...]

    def __new__(cls, values: Iterable[tuple[str, Array]]) -> "Outputs":
        """Create outputs from pairs of name and value."""
        pairs = list(values)
        found = super().__new__(cls, (value for _, value in pairs))
        found.names = tuple(name for name, _ in pairs)
        return found

    def keys(self) -> tuple[str, ...]:
        """The names of the outputs, which makes ``dict(outputs)`` work."""
        return self.names

    def items(self) -> Iterator[tuple[str, Array]]:
        """Pairs of name and value."""
        return zip(self.names, self, strict=True)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Array: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Array, ...]: ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> Array | tuple[Array, ...]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"there is no output {key!r}: {nearest(key, self.names) or ', '.join(self.names)}")
        return super().__getitem__(self.names.index(key))

    def __getattr__(self, name: str) -> Array:
        if name not in self.__dict__.get("names", ()):
            message = f"there is no output {name!r}"
            raise AttributeError(message)
        return self[name]

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def given_back(pairs: Iterable[tuple[str, Array]]) -> Array | Outputs:
    """The only output of a step, or all of them if there are several."""
    found = Outputs(pairs)
    return found[0] if len(found) == 1 else found
