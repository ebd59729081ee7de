"""Graphs split into pipeline stages: each a graph and a model of its own, run by its own process.

Knows how values pass between stages, but not how a stage is computed.
"""

from openinfer.stages.cut import Cut, GraphStage, split
from openinfer.stages.folder import StageFolder, write_stages
from openinfer.stages.pipeline import Pipeline

__all__ = ["Cut", "GraphStage", "Pipeline", "StageFolder", "split", "write_stages"]
