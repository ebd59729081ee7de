"""Facts about a finished circuit, and the clocks it takes: for the plan, the README and the report."""

from typing import Any

from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.lanes import LaneUnit
from openinfer.synth.targets.vhdl.outside import image
from openinfer.synth.targets.vhdl.project import VhdlProject
from openinfer.synth.targets.vhdl.unit import KernelUnit


def circuit_facts(project: VhdlProject) -> dict[str, Any]:
    """All facts. Clocks are a number, or the least and the most where they depend on data."""
    places, sequencer = project.places, project.sequencer
    units = [*sequencer.units.values()]
    found: dict[str, Any] = {
        "clocks": _clocks(sequencer.clocks),
        "ram_bytes": places.ram_bytes,
        "ram_word_bytes": places.shape.ram_bytes,
        "ram_has_write_port": places.shape.has_write_port,
        "rom_bytes": places.rom_bytes,
        "outside": _outside(project),
        "rom_word_bytes": places.shape.rom_bytes,
        "sequencer_states": len(sequencer.code.machine.states),
        "kernels": [_unit(unit, project.about(unit)) for unit in units],
    }
    lanes = places.shape.lanes
    if lanes is not None:
        on_lanes = [unit for unit in units if isinstance(unit, LaneUnit)]
        found["lanes"] = {
            "count": lanes.count,
            "factor_bits": lanes.factor_bits,
            "weight_bits": lanes.weight_bits,
            "sum_bits": lanes.sum_bits,
            "words": lanes.words,
            "use": lane_use(on_lanes, lanes.count),
        }
    return found


def _outside(project: VhdlProject) -> dict[str, Any] | None:
    """The weights that do not fit on the device. Clocks spent waiting for them are not counted."""
    shape = project.places.shape
    if not shape.has_enable:
        return None
    nbytes = len(image(project.places, project.blob))
    return {"bytes": nbytes, "elements": shape.rom_is_outside, "lanes": shape.lanes_are_outside}


def lane_use(units: list[LaneUnit], lanes: int) -> float:
    """The fraction of lane clocks of some kernels that add a term; terms of padding count."""
    spent = sum(len(unit.calls) * unit.clocks.least for unit in units) * lanes
    return round(sum(len(unit.calls) * unit.terms_of_a_call for unit in units) / spent, 4) if spent else 0.0


def _unit(unit: KernelUnit, nodes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": unit.name,
        "nodes": nodes,
        "states": len(unit.machine.states),
        "calls": len(unit.calls),
        "clocks": _clocks(unit.clocks),
    }
    lanes = unit.shape.lanes
    if isinstance(unit, LaneUnit) and lanes is not None:
        found["lanes"] = min(lanes.count, unit.terms.features)
        found["use"] = lane_use([unit], lanes.count)
    return found


def _clocks(clocks: Clocks) -> int | list[int | None]:
    return clocks.least if clocks.exact is not None else [clocks.least, clocks.most]
