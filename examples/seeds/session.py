"""A session that gives its events one at a time, blocks among them. ``python -m examples.seeds.session``."""

import numpy as np
from examples.seeds.classic import CLASSIC
from examples.seeds.model import opened

from openinfer import SimBackend, SimSession, TraceLevel


def main() -> None:
    session = SimSession(opened(), SimBackend.CPU).with_trace(TraceLevel.VERBOSE).with_timing(True)  # noqa: FBT003  (documented)
    run = session.prepare(CLASSIC, {"x": np.ones(1024, np.float32)})
    while run.is_running():
        event = run.step()
        print(f"[{event.kind}] {event.block_name} :: {event.op_name}  ({event.micros} ms, us, ns)")
    print(f"final y = {run.finish().fetch('y')}")


if __name__ == "__main__":
    main()
