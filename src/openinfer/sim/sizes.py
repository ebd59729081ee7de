"""Dynamic sizes during a step, under the name that the simulator's modules know."""

from openinfer.check.step_sizes import StepSizes

__all__ = ["StepSizes"]
