"""Source code from a graph that another tool has written as JSON. ``python -m examples.seeds.synthesize_json``."""

import json

from examples.seeds import serialize
from examples.seeds.model import BUILD, opened

from openinfer import DeviceSpec, Graph, Synthesizer


def main() -> None:
    serialize.main()
    graph = Graph.from_json(json.loads((BUILD / "minimal-graph.json").read_text()))
    plan = Synthesizer(DeviceSpec.CPU().isa("generic")).synthesize(opened(), graph)
    plan.emit(BUILD / "out_json")
    print(f"the project is in {BUILD / 'out_json'}; a step works in {plan.memory.peak} bytes")


if __name__ == "__main__":
    main()
