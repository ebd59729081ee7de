"""Turns float graphs into integer graphs, with scales from samples of their inputs."""

from openinfer.quantizing.quantize import quantize
from openinfer.quantizing.report import QuantizeReport

__all__ = ["QuantizeReport", "quantize"]
