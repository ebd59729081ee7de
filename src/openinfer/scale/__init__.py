"""Graphs over data too large for one step or one machine: columnar files in, columnar files out."""

from openinfer.scale.predictor import Predictor
from openinfer.scale.run import BatchRun, run_local

__all__ = ["BatchRun", "Predictor", "run_local"]
