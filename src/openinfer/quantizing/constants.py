"""Scales and zero points as constants of the integer graph: one per group, in loops a table of them."""

from collections.abc import Iterator, Mapping

import numpy as np

from openinfer.ir import Access
from openinfer.quantizing.calibrate import Calibration, LoopPlace
from openinfer.quantizing.declarations import Dims, NewDeclarations
from openinfer.quantizing.ranges import Codes
from openinfer.quantizing.sites import CodeGroup, QuantLayer


class Constants:
    """The scales of a calibration, declared on first use."""

    def __init__(
        self, codes: Mapping[tuple[int, LoopPlace], Codes], calibration: Calibration, declarations: NewDeclarations
    ) -> None:
        self._codes = codes
        self._calibration = calibration
        self._declarations = declarations
        self._scales: dict[int, Access] = {}
        self._zeros: dict[int, tuple[Access, ...]] = {}

    def scale(self, group: CodeGroup) -> Access:
        """The scale of a group."""
        if group.number not in self._scales:
            values = {place: codes.steps for place, codes in self.by_place(group).items()}
            of = group.sites[0].access.base
            dims: Dims = ()
            if self.is_smoothed(group):
                dims = self._declarations.dims(of)[-1:]
                (shape,) = {steps.shape for steps in values.values() if steps.ndim}
                values = {place: np.broadcast_to(steps, shape).copy() for place, steps in values.items()}
            self._scales[group.number] = self._declarations.constant(f"{of}_scale", None, group.path, values, dims)
        return self._scales[group.number]

    def zero(self, group: CodeGroup) -> tuple[Access, ...]:
        """The zero point of a group; none if zero has the code 0."""
        if group.number not in self._zeros:
            values = {place: np.asarray(codes.zero, np.int8) for place, codes in self.by_place(group).items()}
            name = f"{group.sites[0].access.base}_zero"
            is_needed = any(array.any() for array in values.values())
            found = (self._declarations.constant(name, None, group.path, values),) if is_needed else ()
            self._zeros[group.number] = found
        return self._zeros[group.number]

    def is_smoothed(self, group: CodeGroup) -> bool:
        """Whether a group has one scale per channel."""
        return any(codes.smoothing is not None for codes in self.codes_in(group))

    def by_place(self, group: CodeGroup) -> dict[LoopPlace, Codes]:
        """The scale and zero point at each place of a group."""
        return {place: codes for (number, place), codes in self._codes.items() if number == group.number}

    def codes_in(self, group: CodeGroup) -> Iterator[Codes]:
        """The scales and zero points of a group."""
        return iter(self.by_place(group).values())

    def at(self, group: CodeGroup, place: LoopPlace) -> Codes:
        """The scale and zero point at a place in the loops, which may include loops inside those of the group."""
        return self._codes[group.number, place[: len(group.path)]]

    def places(self, layer: QuantLayer) -> list[LoopPlace]:
        """Where a layer was executed."""
        return list(self._calibration.places[layer.node])
