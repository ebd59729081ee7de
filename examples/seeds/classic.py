"""The same in the classic dialect, with a session that runs a whole graph. ``python -m examples.seeds.classic``."""

import numpy as np
from examples.seeds.model import opened

from openinfer import SimBackend, SimSession, graph

CLASSIC = graph("""
    graph! {
        model: model,

        inputs {
            x : f32 [B];
        }

        outputs {
            y : f32 [B];
        }

        block entry {
            t0 = op add(a=x, b=x);
            y  = op mul(a=t0, b=model["scale"]);
            return y;
        }
    };
""")


def main() -> None:
    session = SimSession(opened(), SimBackend.CPU)
    result = session.run(CLASSIC, {"x": np.arange(1024, dtype=np.float32)})
    print(f"y = {result.fetch('y')}")


if __name__ == "__main__":
    main()
