"""The resources of a circuit on an FPGA: the clocks of a step, cells, memories, multipliers, and its top speed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_COUNTED = re.compile(r"^ {5}([A-Za-z$_]\w*) +(\d+)$", re.MULTILINE)
"""A line of yosys statistics: a cell, and its count."""


@dataclass(frozen=True)
class CircuitFootprint:
    """Measurements of a circuit; None or empty for what was not measured."""

    clocks: int | None = None
    """The clocks of a step with all inputs 0, as the circuit counts them in simulation."""
    used: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """For each resource, under the tools' name: the number used, and the number available."""
    hertz: float | None = None
    unmeasured: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """The measurements as plain values."""
        used = {name: {"used": own, "available": most} for name, (own, most) in self.used.items()}
        return {"clocks": self.clocks, "used": used, "hertz": self.hertz, "unmeasured": list(self.unmeasured)}

    def text(self) -> str:
        """The measurements as lines of text.

        >>> print(CircuitFootprint(120, {"ICESTORM_LC": (900, 5280)}, 22.4e6).text())
        on the device
          step     120 clocks, counted in a simulation, all inputs 0
          takes    ICESTORM_LC 900 of 5,280
          clock    22.4 MHz at most: 5.4 us a step
        """
        lines = ["on the device"]
        if self.clocks is not None:
            lines.append(f"  step     {self.clocks:,} clocks, counted in a simulation, all inputs 0")
        if self.used:
            lines.append(f"  takes    {', '.join(_amount(name, *one) for name, one in self.used.items())}")
        if self.hertz is not None:
            step = f": {self.clocks / self.hertz * 1e6:.1f} us a step" if self.clocks is not None else ""
            lines.append(f"  clock    {self.hertz / 1e6:.1f} MHz at most{step}")
        return "\n".join([*lines, *(f"  {one}" for one in self.unmeasured)])


def _amount(name: str, own: int, most: int | None) -> str:
    return f"{name} {own:,}" if most is None else f"{name} {own:,} of {most:,}"


def mapped_cells(statistics: str) -> dict[str, tuple[int, int | None]]:
    r"""The cells of the whole design, whose statistics yosys prints last.

    >>> mapped_cells("=== a ===\n\n     SB_LUT4          1\n=== net ===\n\n     SB_LUT4         12\n")
    {'SB_LUT4': (12, None)}
    """
    last = statistics.rpartition("=== ")[2]
    return {name: (int(count), None) for name, count in _COUNTED.findall(last)}


def routed(report: str) -> tuple[dict[str, tuple[int, int | None]], float | None]:
    """The resources used according to nextpnr's report, and the lowest achieved clock, in hertz.

    >>> routed('{"fmax": {"clk": {"achieved": 22.5}}, "utilization": {"LC": {"used": 3, "available": 9}}}')
    ({'LC': (3, 9)}, 22500000.0)
    """
    found = json.loads(report)
    used = {name: (one["used"], one.get("available")) for name, one in found["utilization"].items() if one["used"]}
    reached = [one["achieved"] * 1e6 for one in found["fmax"].values()]
    return used, min(reached, default=None)
