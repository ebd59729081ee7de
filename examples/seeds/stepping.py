"""Node by node, with values, events and times. ``python -m examples.seeds.stepping``."""

import numpy as np
from examples.seeds.minimal import MINIMAL
from examples.seeds.model import opened

from openinfer import Device, Simulator, format_truncated


def main() -> None:
    executor = Simulator(opened(), Device.CPU).make_executor(MINIMAL)
    executor.insert(x=np.linspace(-10, 10, 1024, dtype=np.float32))
    # The same as executor.run_step(), with a look at every node.
    for node in executor.iterate():
        event = node.event
        y = format_truncated(node.fetch("y", "f32"))
        print(f"y={y:<40} -- [{event.kind}] {event.block_name} :: {event.op_name} ({event.micros})")


if __name__ == "__main__":
    main()
