"""Graphs cut into stages: each a graph and a model of its own, which processes run one behind the other.

Knows how values are handed over; how a stage is computed is the business of what it is compiled to.
"""

from openinfer.stages.cut import Cut, GraphStage, split
from openinfer.stages.folder import StageFolder, write_stages
from openinfer.stages.pipeline import Pipeline

__all__ = ["Cut", "GraphStage", "Pipeline", "StageFolder", "split", "write_stages"]
