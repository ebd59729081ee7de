"""Compiled graphs in processes of their own: one that is killed or crashes affects no other.

Knows neither requests nor columnar files; servers, pipelines and runs over files are built on it.
"""

from openinfer.workers.recipe import Recipe
from openinfer.workers.worker import Worker, WorkerGroup, WorkerModule

__all__ = ["Recipe", "Worker", "WorkerGroup", "WorkerModule"]
