"""The same graph on a Vulkan device, node by node, and as shaders. ``python -m examples.seeds.vulkan``."""

import json

import numpy as np
from examples.seeds import serialize
from examples.seeds.classic import CLASSIC
from examples.seeds.minimal import MINIMAL
from examples.seeds.model import BUILD, opened

from openinfer import Device, DeviceSpec, Graph, SimBackend, SimSession, Simulator, Synthesizer, format_truncated


def main() -> None:
    model, x = opened(), np.linspace(-10, 10, 1024, dtype=np.float32)

    executor = Simulator(model, Device.VULKAN).make_executor(MINIMAL)
    executor.insert(x=x)
    for node in executor.iterate():
        event = node.event
        y = format_truncated(node.fetch("y", "f32"))
        print(f"y={y:<40} -- [{event.kind}] {event.block_name} :: {event.op_name} ({event.micros})")

    out = SimSession(model, SimBackend.VULKAN).run(MINIMAL, {"x": x})
    print(f"y = {format_truncated(out.fetch('y'))}")

    dev = DeviceSpec.GPU().api("vulkan")
    synth = Synthesizer(dev)
    plan = synth.synthesize(model, CLASSIC)
    plan.emit(BUILD / "out_gpu")
    print(f"the project is in {BUILD / 'out_gpu'}")

    serialize.main()
    g = Graph.from_json(json.loads((BUILD / "minimal-graph.json").read_text()))
    plan = Synthesizer(Device.VULKAN).synthesize(model, g)
    plan.emit(BUILD / "out_gpu_json")
    print(f"the project is in {BUILD / 'out_gpu_json'}")


if __name__ == "__main__":
    main()
