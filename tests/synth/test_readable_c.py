"""Emitted C as its reader sees it: intermediate values have names, numbers are folded, nothing is spelled out twice."""

import re
from pathlib import Path

from tests.synth.golden_emit import Choice
from tests.synth.golden_emit import emitted as projects
from tests.synth.golden_inputs import watched

from openinfer import Synthesizer, graph

LSTM = """
dynamic { x: f32[4]; w: f32[12, 4]; u: f32[12, 3]; }
persistent { h: f32[3] @init(0); c: f32[3] @init(0); }
volatile { h2: f32[3]; c2: f32[3]; }
block entry {
    op lstm_cell(x, h, c, w, u) >> h2, c2;
    transfer h2 >> h;
    return h2, c2;
}
"""
ROWS = """
sizes { T <= 9; }
dynamic { table: f32[8, 4]; ids: i64[T]; }
volatile { y: f32[T, 4]; }
block entry { op embedding(table, ids) >> y; return y; }
"""


def emitted(text: str, path: str) -> str:
    return str(Synthesizer("generic", name="net").synthesize(None, graph(text)).files()[path])


def test_gates_of_recurrent_cells_have_names() -> None:
    code = emitted(LSTM, "src/kernels.c")
    for gate in ("input", "forget", "candidate", "output", "cell"):
        assert f"const float {gate}" in code


def test_an_index_that_counts_from_the_end_is_loaded_once() -> None:
    code = emitted(ROWS, "src/kernels.c")
    assert "= ids_0 < 0 ? ids_0 + 8 : ids_0;" in code


def test_loops_over_the_first_elements_of_an_output_do_not_spell_its_size_twice() -> None:
    assert "for (int64_t i = 0; i < 8 && i < 4 * out.T; ++i)" in emitted(ROWS, "example/main.c")


def test_the_start_of_the_state_has_no_offset() -> None:
    code = emitted(LSTM, "src/net.c")
    assert "memset(c->state, 0, 12);" in code
    assert "state + 0" not in code


def test_a_sum_that_is_the_result_has_no_name_of_its_own() -> None:
    code = emitted(
        "dynamic { a: f32[6, 32]; b: f32[32, 48]; } volatile { y: f32[6, 48]; }"
        "block entry { op matmul(a, b) >> y; return y; }",
        "src/kernels.c",
    )
    assert "acc" not in code
    assert re.search(r"y\[.*\] = tile\[.*\];", code)


def test_blocks_are_defined_before_the_blocks_that_run_them_and_declared_nowhere_else() -> None:
    text = """
    dynamic { x: f32[4]; }
    volatile { y: f32[4]; }
    block outer { branch inner; return; }
    block inner { op relu(x) >> y; op exp(y) >> y; return; }
    block entry { branch outer; return y; }
    """
    code = emitted(text, "src/net.c")
    names = [line.removeprefix("static int ") for line in code.splitlines() if line.startswith("static int block_")]
    assert names == [f"block_{name}(net_context *c)" for name in ("inner", "outer", "entry")]


def test_fourier_transforms_add_no_negatives() -> None:
    code = emitted(
        "dynamic { x: f32[16, 2]; } volatile { y: f32[16, 2]; } block entry { op fft(x, axis=0) >> y; return y; }",
        "src/kernels.c",
    )
    assert "(-v" not in code


def test_the_runtime_has_only_the_kinds_of_indices_that_the_graph_has() -> None:
    text = """
    dynamic { x: f32[6]; }
    volatile { y: f32[2]; }
    block entry { op relu(x[2..4]) >> y; return y; }
    """
    code = emitted(text, "src/runtime.h")
    found = [name for name in ("one", "slice", "from", "upto", "all", "grown") if f"oi_pick oi_{name}(" in code]
    assert found == ["slice"]
    assert "oi_last_kept" not in code


def test_positions_of_a_window_are_computed_once(tmp_path: Path) -> None:
    source = watched()["example-digits-digits_i8"].write(tmp_path)
    [(_, files)] = projects(source, [Choice("cortex-m4", "default")])
    assert b"t0 >= 0 && t0 < 8 && t1 >= 0 && t1 < 8 ? (int32_t)x[t0 * 8 + t1] : 0;" in files["src/kernels.c"]


def test_a_remainder_of_one_iteration_is_no_loop() -> None:
    text = """
    dynamic {{ x: f32[5, {0}]; }}
    volatile {{ y: f32[5]; }}
    block entry {{ op norm_axis(x, p=2.0, axes=[1]) >> y; return y; }}
    """
    loop, alone, whole = (emitted(text.format(count), "src/kernels.c") for count in (34, 33, 32))
    assert "= 32; i3 < 34; ++i3) {" in loop
    assert "i3 = 32" not in alone
    assert "const float v4 = x[i1 * 33 + 32];" in alone
    assert "i3 = 32" not in whole
