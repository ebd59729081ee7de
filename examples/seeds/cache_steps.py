"""Several steps with a cache: every step reads what earlier ones wrote. ``python -m examples.seeds.cache_steps``."""

import numpy as np
from examples.seeds.model import opened

from openinfer import Device, Simulator, format_truncated, graph

DECODE = graph("""
    graph! {
        sizes {
            B := 1;
            T <= 2048;    // tokens so far
        }

        dynamic {
            x: f32[B, D];
        }

        volatile {
            z: f32[B, D];
            W(l): f32[D, D] @pattern("W.{l}");
        }

        persistent {
            step: i32 @init(0);
            K(l, t): f16[H, Dh] @table;
            V(l, t): f16[H, Dh] @table;
        }

        block entry {
            assign h: f32[B, D];
            assign half: f16[B, D];
            assign entry_of: f16[H, Dh];
            assign k: f16[T, H, Dh];
            assign v: f16[T, H, Dh];

            transfer x >> h;
            loop layers (l in 0..10) {
                op cast(h, to=f16) >> half;
                op reshape(half, shape=[H, Dh]) >> entry_of;
                cache.write entry_of >> K[l, step];
                cache.write entry_of >> V[l, step];
                cache.read K[l, 0..step+1] >> k;
                cache.read V[l, 0..step+1] >> v;
                op attn(h, k, v, W[l]) >> h;
            }
            transfer h >> z;
            cache.increment step;
            return z;
        }
    }
""")


def main() -> None:
    executor = Simulator(opened(), Device.CPU).make_executor(DECODE)
    first_token, second_token = np.random.default_rng(2).normal(size=(2, 1, 8)).astype(np.float32)

    executor.insert(x=first_token)
    executor.run_step()
    print(f"step {executor.fetch('step')}, K {executor.fetch('K').shape}, z = {format_truncated(executor.fetch('z'))}")

    executor.insert(x=second_token)
    executor.run_step()
    print(f"step {executor.fetch('step')}, K {executor.fetch('K').shape}, z = {format_truncated(executor.fetch('z'))}")


if __name__ == "__main__":
    main()
