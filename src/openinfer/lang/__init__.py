"""The graph language: text to graph, and the formatter. Knows nothing of models or execution."""

from openinfer.lang.source import graph, load_graph, parse

__all__ = ["graph", "load_graph", "parse"]
