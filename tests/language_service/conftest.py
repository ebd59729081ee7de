"""A small model with a graph beside it, and marks in texts that say where a cursor is."""

from pathlib import Path

import numpy as np
import pytest

from openinfer.oinf import save_file

GRAPH = """\
// openinfer: --model mlp.oinf --size B=4
dynamic { x: f32[B, D]; }
constant { W(l): f32[D, D] @pattern("W.{l}"); b: f32[D] @ref("bias"); alpha: f32 @init(0.5); }
volatile { y: f32[B, D]; }
persistent { step: i32 @init(0); K(l, t): f32[D] @table; }
block entry {
    assign h: f32[B, D];
    transfer x >> h;
    loop layers (l in 0..2) {
        op matmul(h, W[l]) >> h;
        call nonlinear(h) >> h;
    }
    op add(h, b) >> y;
    cache.increment step;
    return y;
}
block nonlinear(v: f32[B, D]) {
    r = op relu(v, alpha=0.1);
    return r;
}
"""


def write_model(folder: Path) -> None:
    """The model of the graph."""
    tensors = {f"W.{layer}": np.ones((8, 8), np.float32) for layer in range(2)} | {"bias": np.ones(8, np.float32)}
    save_file(folder / "mlp.oinf", tensors, sizevars={"D": 8})


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    """The graph in a folder with its model."""
    write_model(tmp_path)
    path = tmp_path / "mlp.oig"
    path.write_text(GRAPH, encoding="utf-8")
    return path
