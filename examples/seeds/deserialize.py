"""A graph from JSON, run like the one it was written from. ``python -m examples.seeds.deserialize``."""

import json

import numpy as np
from examples.seeds import serialize
from examples.seeds.model import BUILD, opened

from openinfer import Device, Graph, Simulator, format_truncated


def main() -> None:
    serialize.main()
    graph = Graph.from_json(json.loads((BUILD / "minimal-graph.json").read_text()))
    executor = Simulator(opened(), Device.CPU).make_executor(graph)
    executor.insert(x=np.zeros(1024, np.float32))
    executor.run_step()
    print(f"y = {format_truncated(executor.fetch('y'))}")


if __name__ == "__main__":
    main()
