"""A step that fails in generated C has not happened, wherever it fails and whatever it had changed by then."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.synth.both_ways import agree, compare, planned
from tests.synth.flags import TRAPS, USUAL

from openinfer import Code, Simulator, graph
from openinfer.errors import ExecutionError
from openinfer.synth.targets.target import Passes

EVERYTHING = """
sizes {{ T <= 16; }}
dynamic {{ x: f32[4]; at: i32; }}
volatile {{ y: f32[4]; }}
constant {{ zero: i32 @init(0); }}
persistent {{
    step: i32;
    total: f32[4] @init(1.0);
    K(l, t): f32[4] @table {bound};
    P(t): i4[3] @table @init(-2) @fixed(t=20);
    A(i, j): f32[2, 2] @auto_dim(i, j) {matrix};
    C(l, i, j): f32[1, 2] @table @auto_dim(i, j) {matrices};
    window: f32[3, 4] @init(0.5);
    bits: i4[7];
}}
block entry {{
    assign k: f32[T, 4];
    assign a: f32[2, 2];
    assign row: f32[1, 2];
    assign q: i4[3];
    assign late: bool;
    {fails[0]}
    op add(x, total) >> total;
    cache.write x >> K[0, 0];
    loop layers (l in 0..3) {{
        cache.write x >> K[l, step];
        cache.read K[l, 0..step+1] >> k;
        op neg(k) >> k;
        cache.write k >> K[l, 0..step+1];
        {fails[1]}
    }}
    cache.read A[0..2, 0..2] >> a;
    cache.write a >> A[step..step+2, 0..2];
    cache.write row >> C[step, 0..1, 0..2];
    cache.write q >> P[step];
    cache.write q >> bits[2..5];
    {fails[2]}
    cache.write x >> window[1, ];
    cache.reset K[0];
    cache.increment step;
    op is_finite(total) >> late;
    branch late[0] good bad;
    {fails[3]}
    transfer total >> y;
    return y;
}}
block good {{ cache.increment 2 step; op add(total, total) >> total; cache.reset window[0..2, 1..3]; return; }}
block bad {{ cache.reset step; cache.reset A; cache.reset C; cache.reset total; return; }}
"""
EVERYTHING = EVERYTHING.replace("op is_finite(total) >> late;\n    branch late[0] good bad;", "{branch}")
BRANCHES = ("op lt(step, at) >> late; branch late good bad;", "op ge(at, step) >> late; branch late bad good;")
FAILURE = "cache.read P[at] >> q;"
BOUNDED = {"bound": "@fixed(l=3, t=16)", "matrix": "@fixed(i=16, j=2)", "matrices": "@fixed(l=16, i=2, j=2)"}
GROWING = {"bound": "", "matrix": "", "matrices": ""}


def text_of(tables: dict[str, str], place: int, branch: str) -> str:
    fails = [FAILURE if one == place else "" for one in range(4)]
    return EVERYTHING.format(fails=fails, branch=branch, **tables)


def inputs(step: int) -> dict[str, object]:
    return {"x": np.full(4, 0.25 * (step + 1), np.float32), "at": (3, 0, 99, 2, -1, 19, 20)[step % 7]}


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("tables", [BOUNDED, GROWING], ids=["bounded", "growing"])
def test_a_step_that_fails_has_not_happened(tables: dict[str, str], place: int, branch: str) -> None:
    text = text_of(tables, place, branch)
    executor = Simulator().with_trace("off").make_executor(graph(text))
    module = planned(text).build(flags=TRAPS)
    failed = 0
    for step in range(10):
        for one in (executor, module):
            one.insert(inputs(step))
        before, errors = module.save_state(), []
        for one in (executor, module):
            try:
                one.run_step()
            except ExecutionError as error:
                errors.append(error.code)
        assert len(errors) in (0, 2), (step, errors)
        failed += bool(errors)
        compare(executor, module, step, outputs=not errors)
        assert not errors or module.save_state() == before
    assert 0 < failed < 10


def test_what_cannot_fail_after_a_change_needs_no_memory_for_it() -> None:
    text = """dynamic { x: f32[2]; i: i32; } persistent { n: i32; K(t): f32[2] @table @fixed(t=4); }
    block entry { cache.write x >> K[i]; cache.increment n; return; }"""
    plan = planned(text)
    assert plan.placed.rollback_bytes == 0
    assert "is_broken = 1" not in plan.project.code()["src/net.c"]
    agree(text, inputs=lambda step: {"x": np.ones(2, np.float32), "i": step}, steps=7)


TWICE = """dynamic { i: i32; } volatile { v: f32; } persistent { n: i32; K(t): f32[] @table @fixed(t=2); }
block entry { cache.write v >> K[0]; cache.write v >> K[i]; cache.increment n; return; }"""


def test_memory_for_it_is_as_much_as_a_step_can_change() -> None:
    assert 64 <= planned(TWICE).project.placed.rollback_bytes <= 512
    assert planned(TWICE, device="generic").project.placed.rollback_bytes == 0
    assert planned(TWICE, device="generic", passes=Passes(rollback=True)).project.placed.rollback_bytes > 0


def test_code_that_keeps_nothing_says_so_and_refuses_to_go_on() -> None:
    code = planned(TWICE, device="generic").project.code()
    assert "persistent variables are undefined" in re.sub(r"\s+", " ", code["include/net.h"])
    assert "the last step failed: reset or load the state first" in code["src/net.c"]


def test_code_that_keeps_nothing_is_taken_back_by_the_module() -> None:
    module = planned(TWICE, device="generic").build(flags=USUAL)
    module.insert(i=1)
    module.run_step()
    for _ in range(2):
        module.insert(i=5)
        with pytest.raises(ExecutionError) as caught:
            module.run_step()
        assert caught.value.code is Code.INDEX_OUT_OF_RANGE
        assert "cache.write v >> K[i]" in str(caught.value)
        assert module.fetch("n") == 1
    module.insert(i=0)
    module.run_step()
    assert module.fetch("n") == 2


@pytest.mark.parametrize("table", ["@fixed(t=900)", ""], ids=["bounded", "growing"])
def test_loops_of_unknown_length_are_taken_back_too(table: str) -> None:
    """More is changed than there is memory for, so the module keeps the state itself."""
    text = f"""dynamic {{ m: i32; x: f32[64]; }} volatile {{ v: f32[64]; }}
    persistent {{ n: i32; K(t): f32[64] @table {table}; }}
    block entry {{
        cache.increment n; loop a (i in 0..m) {{ cache.write x >> K[i]; }} cache.read K[m-1] >> v; return v;
    }}"""
    plan = planned(text)
    assert plan.placed.can_tear
    agree(text, inputs=lambda step: {"m": (3, 900, 0, 500, -2)[step], "x": np.full(64, step, np.float32)}, steps=5)


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
int main(void)
{
    static _Alignas(64) unsigned char arena[NET_ARENA_BYTES], state[NET_STATE_BYTES], none[64];
    static const int32_t at[] = { 3, 0, 99, 2, -1, 19, 20, 1 };
    static float x[4];
    net_context c;
    net_outputs out;
    int failed = 0;
    if (net_init(&c, arena, sizeof arena, state, sizeof state, none, NET_WEIGHT_BYTES)) return 1;
    unsigned char *const saved = malloc(1 << 20), *const again = malloc(1 << 20);
    for (int i = 0; i < 40; ++i) {
        const net_inputs in = { x, &at[i % 8] };
        const size_t bytes = net_saved_bytes(&c);
        if (net_save_state(&c, saved, bytes)) return 2;
        if (net_step(&c, &in, &out) == NET_OK) continue;
        ++failed;
        if (net_saved_bytes(&c) != bytes || net_save_state(&c, again, bytes)) return 3;
        for (size_t k = 0; k < bytes; ++k) if (saved[k] != again[k]) return 4;
    }
    free(saved);
    free(again);
    net_free(&c);
    printf("%d steps failed\\n", failed);
    return failed == 0;
}
"""


@pytest.mark.parametrize("place", range(4))
def test_sanitizers_find_nothing_in_steps_that_fail(place: int, tmp_path: Path) -> None:
    planned(text_of(GROWING, place, BRANCHES[0])).emit(tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-std=c11", "-O0", "-g1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    command = ["gcc", *flags, "-Iinclude", "-Isrc", "main.c", "src/net.c", "src/kernels.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
