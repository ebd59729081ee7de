"""Graphs over data that does not fit one step, or one machine: files of columns in, files of columns out."""

from openinfer.scale.predictor import Predictor
from openinfer.scale.run import BatchRun, run_local

__all__ = ["BatchRun", "Predictor", "run_local"]
