"""The trace of a step as JSON. ``python -m examples.seeds.trace_export``."""

import json

import numpy as np
from examples.seeds.minimal import MINIMAL
from examples.seeds.model import BUILD, opened

from openinfer import Device, Simulator


def main() -> None:
    executor = Simulator(opened(), Device.CPU).make_executor(MINIMAL)
    executor.insert(x=np.ones(1024, np.float32))
    executor.run_step()
    (BUILD / "trace.json").write_text(json.dumps(executor.trace(), indent=2))
    print(f"{len(executor.trace())} events in {BUILD / 'trace.json'}")


if __name__ == "__main__":
    main()
