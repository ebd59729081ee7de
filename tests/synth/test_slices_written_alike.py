"""Slices that one op reads and that are written alike: their ends may count from different extents.

Ends below zero, ends left out and tables that have grown differently give them different lengths. Compiled code has
the results and the codes of the simulator at all of them: where an op stretches a length of 1, joins what is not
equal, or needs lengths to be equal. One graph has all cases; the input ``case`` chooses the one that runs.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import planned
from tests.synth.flags import TRAPS

from openinfer import Simulator, graph
from openinfer.errors import Code, GraphError, OpenInferError

DECLARED = """
sizes { T <= 3; R <= 12; Q <= 12; }
dynamic {
    one: i32[1]; two: i32[2]; four: i32[4]; x: i32[T]; c: i32[3, 4]; d: i32[2, 2]; f: f32[2, 4]; g: f32[4, 2];
    n: i32; case: i32;
}
volatile { y: i32[R]; z: i32[R, Q]; w: f32[R, Q]; }
persistent {
    K(t): i32 @table @fixed(t=4); V(t): i32 @table @fixed(t=4);
    M(i, j): i32[1, 2] @auto_dim(i, j) @fixed(i=2, j=2);
}
"""
FILLED = "cache.write one >> K[0..1]; cache.write four[0..3] >> V[0..3]; cache.write c[0, 0..3] >> M[0, 0..3];"
FORMS = ("0..n", "n..", "1..n")
VECTORS = ("one[#]", "two[#]", "four[#]", "x[#]", "c[0, #]", "K[#]", "V[#]", "M[0, #]")
PAIRS = [(left, VECTORS[(at + step) % len(VECTORS)]) for step in (1, 3) for at, left in enumerate(VECTORS)]
CASES = [
    # --- equal, or one of them is 1 ---
    *(f"op sub({one}, {two}) >> y;".replace("#", FORMS[at % 3]) for at, (one, two) in enumerate(PAIRS)),
    "op add(K[], V[]) >> y;",
    "op fma(two[0..n], V[0..n], x[0..n]) >> y;",
    "op fma(one[n..], two[n..], four[n..]) >> y;",
    "op sub(c[0..n, 0..n], d[0..n, 0..n]) >> z;",
    "op sub(c[n.., 1..n], M[n.., 1..n]) >> z;",
    "op sub(c[0..n, 0..n], four[0..n]) >> z;",
    "op prelu(f[0..n, 0..n], g[0..n, 0..n]) >> w;",
    # --- whatever they are ---
    "op neg(c[0..n, 0..n]) >> z;",
    "op concat(K[], M[0, ], axis=0) >> y;",
    "op concat(two[n..], x[n..], V[n..], axis=0) >> y;",
    "transfer c[0..n, 0..n] >> z;",
    # --- equal ---
    "op concat(c[0..n, 0..n], d[0..n, 0..n], axis=1) >> z;",
    "op stack(two[0..n], V[0..n], axis=0) >> z;",
    "op matmul(f[0..n, 0..n], g[0..n, 0..n]) >> w;",
    "op matmul(f[n.., n..], g[n.., n..], transpose_b=true) >> w;",
    "op sdpa(f[0..n, 0..n], g[0..n, 0..n], g[0..n, 0..n]) >> w;",
]
INPUTS: dict[str, Any] = {
    "one": np.array([7], np.int32),
    "two": np.array([5, 6], np.int32),
    "four": np.arange(10, 14, dtype=np.int32),
    "c": np.arange(20, 32, dtype=np.int32).reshape(3, 4),
    "d": np.arange(40, 44, dtype=np.int32).reshape(2, 2),
    "f": np.arange(8, dtype=np.float32).reshape(2, 4),
    "g": np.arange(8, dtype=np.float32).reshape(4, 2),
}


def text(cases: list[str]) -> str:
    """A graph where ``case`` chooses what runs: all loops but one have no iteration."""
    chosen = (f"loop l{at} (i in 0..1-(case-{at})*(case-{at})) {{ {node} }}" for at, node in enumerate(cases))
    return f"{DECLARED} block entry {{ {FILLED} {' '.join(chosen)} return; }}"


def outcome(module: Any, name: str, inputs: dict[str, Any]) -> Any:
    try:
        module.insert(inputs)
        module.run_step()
        found = np.round(module.fetch(name), 3).tolist()
    except OpenInferError as error:
        found = error.code
    module.reset()
    return found


def test_slices_of_different_lengths_have_the_results_of_the_simulator() -> None:
    executor = Simulator().with_trace("off").make_executor(graph(text(CASES)))
    module = planned(text(CASES)).build("gcc", TRAPS)
    results = 0
    for (at, node), n in product(enumerate(CASES), (-3, -2, -1, 0, 1, 2, 4)):
        for size in (0, 1, 3) if "x[" in node else (3,):
            given = {**INPUTS, "x": np.arange(size, dtype=np.int32), "n": np.int32(n), "case": np.int32(at)}
            wanted, found = (outcome(one, node.split()[-1].strip(";"), given) for one in (executor, module))
            assert found == wanted, (node, n, size)
            results += isinstance(wanted, list)
    assert results > 150


@pytest.mark.parametrize("node", ["op add(c[, 0], c[0..n, 1]) >> y;", "op add(c[0..n, 1], x) >> y;"])
def test_a_length_that_must_fit_another_one_is_refused(node: str) -> None:
    """At the bounds, and a little below them, these fit: a length of 1 would be stretched by accident."""
    with pytest.raises(GraphError) as caught:
        planned(text([node]))
    assert caught.value.code is Code.NOT_SYNTHESIZED
    assert caught.value.diagnostics[0].span is not None
    assert "must match others" in caught.value.diagnostics[0].message
