"""Programs whose graphs have the same persistent variables exchange states, and can work on the same memory."""

import subprocess
from pathlib import Path

import pytest

from openinfer import graph
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan

STATE = "persistent { step: i32; last: f32[2] @init(7); K(t): f32[2] @table @fixed(t=8); }"
FILL = f"""sizes {{ T <= 8; }} dynamic {{ x: f32[T, 2]; }} volatile {{ n: i32[T]; }} {STATE}
block entry {{ cache.write x >> K[step..step+T]; op iota(n, axis=0) >> n; op add(n, step) >> n; op max_axis(n) >> step;
cache.increment step; return step; }}"""
NEXT = f"""volatile {{ y: f32[2]; }} {STATE}
block entry {{ assign one: f32[2]; cache.read K[step-1] >> one; op add(one, last) >> y; transfer y >> last;
return y; }}"""

MAIN = """
#include <stdio.h>
#include <string.h>
#include "fill.h"
#include "next.h"
#if FILL_STATE_ID != NEXT_STATE_ID
#error "these programs have nothing in common"
#endif
#define CHECK(what) do { if (!(what)) { printf("line %d: %s\\n", __LINE__, #what); return 1; } } while (0)
static _Alignas(64) unsigned char arena[FILL_ARENA_BYTES], other_arena[NEXT_ARENA_BYTES];
static _Alignas(64) unsigned char state[FILL_STATE_BYTES], other_state[FILL_STATE_BYTES];
static unsigned char saved[FILL_SAVED_BYTES];
int main(void)
{
    fill_context fill;
    next_context next, apart;
    fill_outputs filled;
    next_outputs out;
    static const float x[6] = { 1, 2, 3, 4, 5, 6 };
    const fill_inputs in = { .x = x, .T = 3 };
    const next_inputs none = { 0 };
    CHECK(fill_init(&fill, arena, sizeof arena, state, sizeof state, arena, 0) == FILL_OK);
    CHECK(next_init(&next, other_arena, sizeof other_arena, state, sizeof state, arena, 0) == NEXT_OK);
    CHECK(next_init(&apart, other_arena, sizeof other_arena, other_state, sizeof other_state, arena, 0) == NEXT_OK);
    fill_tensor step; /* an output that can be seen before the first step, since it is persistent */
    CHECK(fill_fetch(&fill, "step", &step) == FILL_OK && *(const int32_t *)step.data == 0);
    CHECK(fill_step(&fill, &in, &filled) == FILL_OK && filled.step[0] == 3);
    CHECK(fill_save_state(&fill, saved, sizeof saved) == FILL_OK);
    CHECK(next_step(&next, &none, &out) == NEXT_OK && out.y[0] == 12 && out.y[1] == 13);
    CHECK(next_step(&next, &none, &out) == NEXT_OK && out.y[0] == 17);
    CHECK(next_load_state(&apart, saved, sizeof saved) == NEXT_OK);
    CHECK(next_step(&apart, &none, &out) == NEXT_OK && out.y[0] == 12 && out.y[1] == 13);
    CHECK(fill_step(&fill, &in, &filled) == FILL_OK && filled.step[0] == 6);
    CHECK(next_step(&next, &none, &out) == NEXT_OK && out.y[0] == 22);
    return 0;
}
"""


def planned(text: str, name: str) -> Plan:
    return Synthesizer("generic", name=name).synthesize(None, graph(text))


def test_two_programs_share_one_state(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    sources, headers = ["main.c"], []
    for name, text in (("fill", FILL), ("next", NEXT)):
        planned(text, name).emit(tmp_path / name)
        sources += [f"{name}/src/{name}.c", f"{name}/src/kernels.c"]
        headers.append(f"-I{name}/include")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O0", "-fsanitize=address,undefined", *headers]
    subprocess.run(["gcc", *flags, *sources, "-o", "main"], cwd=tmp_path, check=True)
    ended = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def state_id(text: str) -> str:
    header = str(planned(text, "net").files()["include/net.h"])
    return header.split("NET_STATE_ID ")[1].split(maxsplit=1)[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("step: i32;", "step: i64;"),
        ("last: f32[2] @init(7);", "last: f32[4] @init(7);"),
        ("@fixed(t=8)", "@fixed(t=9)"),
        ("@table @fixed", "@init(1) @table @fixed"),
        ("K(t): f32[2]", "L(t): f32[2]"),
        ("step: i32; last: f32[2] @init(7);", "last: f32[2] @init(7); step: i32;"),
    ],
)
def test_states_of_other_variables_or_another_layout_have_another_number(one: str, other: str) -> None:
    text = f"{STATE} block entry {{ return; }}"
    assert one in text
    assert state_id(text) == state_id(f"{STATE} block entry {{ cache.increment step; return; }}")
    assert state_id(text) != state_id(text.replace(one, other))
