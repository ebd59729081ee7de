"""``NAME_fetch`` gives tables and tensors by name, with shapes and strides; the example maps its weights."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import planned
from tests.synth.flags import USUAL

from openinfer import ModelLoader
from openinfer.oinf import save_file

TEXT = """
dynamic {{ x: f32[3]; }} volatile {{ flat: i4[3]; y: f32[3]; }}
persistent {{
    t: i32; window: f32[2, 3] @init(0.5); bits: i4[3] @init(-3);
    K(l, t): f32[3] @table @init(0.5) {K}; M(k, i): i4[1, 3] @table @auto_dim(i) @init(-2) {M};
    S(t): u8[] @table {S}; E(i, j): f64[2, 2] @auto_dim(i, j) {E};
}}
block entry {{
    assign row: i4[1, 3];
    assign one: u8;
    op cast(x, to=i4) >> flat;
    op reshape(flat, shape=[1, 3]) >> row;
    loop layers (l in 0..3) {{ cache.write x >> K[l, t]; cache.write row >> M[2 * l, t..t+1]; }}
    cache.write one >> S[3];
    cache.write x >> window[1, ];
    op neg(x) >> y;
    cache.increment t;
    return y;
}}
"""
BOUNDED = {"K": "@fixed(l=3, t=7)", "M": "@fixed(k=6, i=8)", "S": "@fixed(t=4)", "E": "@fixed(i=1, j=1)"}
GROWING = {"K": "", "M": "", "S": "", "E": ""}
NAMES = ("K", "M", "S", "E", "window", "t", "bits", "y")
MAIN = r"""
#include <stdio.h>
#include "net.h"
int main(void)
{
    static _Alignas(64) unsigned char arena[NET_ARENA_BYTES], state[NET_STATE_BYTES], none[64];
    static const float x[3] = { 1, -2, 3 };
    static const char *const names[] = { NAMES };
    net_context c;
    net_outputs out;
    const net_inputs in = { x };
    if (net_init(&c, arena, sizeof arena, state, sizeof state, none, NET_WEIGHT_BYTES)) return 1;
    for (int i = 0; i < STEPS; ++i) if (net_step(&c, &in, &out)) return 2;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; ++n) {
        net_tensor t;
        if (net_fetch(&c, names[n], &t)) return 3;
        printf("%s %s %d %d %d", names[n], t.dtype, (int)t.bits, t.data != NULL, (int)t.rank);
        int64_t total = 1;
        for (int a = 0; a < t.rank; ++a) printf(" %d", (int)t.shape[a]);
        for (int a = 0; a < t.rank; ++a) total *= t.shape[a];
        for (int64_t i = 0; i < total && t.data != NULL; ++i) {
            int64_t rest = i, at = 0;
            for (int a = t.rank - 1; a >= 0; rest /= t.shape[a--]) at += rest % t.shape[a] * t.strides[a];
            const unsigned char *const p = (const unsigned char *)t.data + at * t.bits / 8;
            printf(" ");
            for (int b = 0; b < (t.bits + 7) / 8; ++b) printf("%02x", t.bits < 8 ? p[b] >> at * t.bits % 8 & 15 : p[b]);
        }
        printf("\n");
    }
    FREE
    return 0;
}
"""


def codes(array: Any) -> list[str]:
    """The elements of an array as they lie in memory."""
    if array.dtype.itemsize == 1 and array.dtype != np.uint8:
        return [f"{int(one) & 15:02x}" for one in array.reshape(-1)]
    return [one.tobytes().hex() for one in array.reshape(-1)]


def printed(folder: Path, names: list[str], steps: int, free: str) -> list[str]:
    listed = ", ".join(f'"{name}"' for name in names)
    text = MAIN.replace("NAMES", listed).replace("STEPS", str(steps)).replace("FREE", free)
    (folder / "main.c").write_text(text)
    flags = ["-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-Iinclude"]
    subprocess.run(["gcc", *flags, "main.c", "src/net.c", "src/kernels.c", "-o", "main"], cwd=folder, check=True)
    return subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("tables", [BOUNDED, GROWING], ids=["bounded", "growing"])
def test_tables_have_extents_and_strides(tables: dict[str, str], steps: int, tmp_path: Path) -> None:
    plan = planned(TEXT.format(**tables))
    plan.emit(tmp_path)
    names = [name for name in NAMES if steps > 0 or name != "y"]
    lines = printed(tmp_path, names, steps, "net_free(&c);" if tables is GROWING else "")
    module = plan.build(flags=USUAL)
    for _ in range(steps):
        module.insert(x=[1.0, -2.0, 3.0])
        module.run_step()
    for name, line in zip(names, lines, strict=True):
        found, dtype, bits, has_data, rank, *rest = line.split()
        wanted = module.fetch(name)
        assert (found, dtype) == (name, module.bound.vars[name].dtype.name)
        assert int(bits) == (4 if name == "bits" else 8 * wanted.dtype.itemsize)
        assert tuple(map(int, rest[: int(rank)])) == wanted.shape
        if int(has_data):
            assert rest[int(rank) :] == codes(wanted)
        else:  # nothing has been written there
            assert tables is GROWING
            assert steps == 0 or name == "E"


@pytest.mark.parametrize("cc", [cc for cc in ("gcc", "clang") if shutil.which(cc)])
@pytest.mark.parametrize("system", [[], ["-U__unix__"]], ids=["mapped", "read"])
def test_the_example_maps_its_weights_or_reads_them(cc: str, system: list[str], tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.arange(4, dtype=np.float32)})
    text = "dynamic { x: f32[4]; } constant { w: f32[4]; } block entry { op mul(x, w) >> x; return x; }"
    planned(text, ModelLoader.open(tmp_path / "m.oinf")).emit(tmp_path)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude", *system]
    sources = ["example/main.c", "src/net.c", "src/kernels.c"]
    subprocess.run([cc, *flags, *sources, "-o", "example.out"], cwd=tmp_path, check=True)
    symbols = subprocess.run(["nm", "-u", "example.out"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ("mmap" in symbols.stdout) == (not system)

    def run(*arguments: str) -> tuple[int, str, str]:
        ran = subprocess.run(["./example.out", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    assert run() == (0, "x: f32[4] = -0 -0.875 -1.5 -1.875\n", "")
    assert run("missing") == (1, "", "missing does not hold the weights of this program\n")
    right = (tmp_path / "src" / "weights.bin").read_bytes()
    for wrong in (b"\x01" + right[1:], right[:-1], b""):
        (tmp_path / "other.bin").write_bytes(wrong)
        assert run("other.bin") == (1, "", "other.bin does not hold the weights of this program\n")
