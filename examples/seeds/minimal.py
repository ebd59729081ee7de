"""The minimal example: an input, two ops, a result. ``python -m examples.seeds.minimal``."""

import numpy as np
from examples.seeds.model import opened

from openinfer import Device, Simulator, graph

MINIMAL = graph("""
    graph! {
        dynamic {
            x: f32[B];
        }

        volatile {
            a: f32[B];
            y: f32[B] @init(5.0);
        }

        block entry {
            assign t0: f32[B];
            op add(x, a) >> t0;
            op mul(y, t0) >> y;
            return;
        }
    };
""")


def main() -> None:
    model = opened()
    executor = Simulator(model, Device.CPU).make_executor(MINIMAL)

    rng = np.random.default_rng(1)
    values = [rng.uniform(-10.0, 10.0) + index * 0.001 for index in range(model.size_of("B"))]
    executor.insert(x=values)
    executor.run_step()

    y = executor.fetch("y", "f32")
    print(f"y[0..100] = {y[:100]}")


if __name__ == "__main__":
    main()
