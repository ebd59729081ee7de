"""A program without persistent variables needs no memory for a state, and says so."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.synth.both_ways import planned
from tests.synth.flags import USUAL

from openinfer import Synthesizer, graph

TEXT = "dynamic { x: f32[3]; } volatile { y: f32[3]; } block entry { op exp(x) >> y; return y; }"
MAIN = r"""
#include <string.h>
#include "net.h"
#define CHECK(one) do { if (!(one)) return __LINE__; } while (0)
_Static_assert(NET_STATE_BYTES == 0, "nothing is persistent");
int main(void)
{
    static _Alignas(64) unsigned char arena[NET_ARENA_BYTES];
    static const float x[3] = { 0, 0, 0 };
    unsigned char saved[NET_SAVED_BYTES];
    net_context c;
    net_outputs out;
    const net_inputs in = { x };
    CHECK(net_init(&c, arena, sizeof arena - 1, NULL, 0, NULL, 0) == NET_ERROR_MEMORY);
    CHECK(net_init(&c, arena, sizeof arena, NULL, 0, NULL, 0) == NET_OK);
    CHECK(net_step(&c, &in, &out) == NET_OK && out.y[2] == 1);
    CHECK(net_saved_bytes(&c) == sizeof saved);
    CHECK(net_save_state(&c, saved, sizeof saved - 1) == NET_ERROR_MEMORY);
    CHECK(net_save_state(&c, saved, sizeof saved) == NET_OK);
    CHECK(net_load_state(&c, saved, sizeof saved) == NET_OK);
    CHECK(net_load_state(&c, saved, sizeof saved - 1) == NET_ERROR_STATE);
    saved[20] ^= 1;
    CHECK(net_load_state(&c, saved, sizeof saved) == NET_ERROR_STATE);
    CHECK(net_reset(&c) == NET_OK);
    return 0;
}
"""


@pytest.mark.parametrize("device", ["generic", "cortex-m4"])
def test_there_is_no_memory_for_what_there_is_not(device: str, tmp_path: Path) -> None:
    plan = Synthesizer(device, name="net").synthesize(None, graph(TEXT))
    assert plan.facts()["bytes"]["state"] == 0
    plan.emit(tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsanitize=address,undefined", "-Iinclude"]
    subprocess.run(["gcc", *flags, "main.c", "src/net.c", "src/kernels.c", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path, check=False).returncode == 0
    example = (tmp_path / "example" / "main.c").read_text()
    assert "arena, sizeof arena, NULL, 0, weights" in example
    assert " state[" not in example


def test_its_saved_state_is_taken_back_and_no_other() -> None:
    plan = planned(TEXT)
    module = plan.build(flags=USUAL)
    saved = module.save_state()
    assert saved is not None
    module.load_state(saved)
    assert np.array_equal(module(x=np.zeros(3, np.float32)), np.ones(3, np.float32))
