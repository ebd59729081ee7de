"""Compiled graphs in processes of their own: one that is killed, or that its code brings down, takes no other with it.

Knows neither requests nor files of columns; servers, pipelines and runs over files are built on it.
"""

from openinfer.workers.recipe import Recipe
from openinfer.workers.worker import Worker, WorkerGroup, WorkerModule

__all__ = ["Recipe", "Worker", "WorkerGroup", "WorkerModule"]
