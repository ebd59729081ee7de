"""The folder that is emitted: complete, warning-free, without writable data, with an interface that never aborts."""

import json
import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.example_models import made_up
from tests.synth.flags import COMPILERS, dealt
from tests.synth.small_models import SMALL_MODELS

from openinfer import Code, DeviceArch, ModelLoader, Simulator, graph, load_graph
from openinfer.errors import GraphError
from openinfer.oinf import save_file
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.project import Golden

STRICT = "-Wall -Wextra -Werror"
SANITIZED = f"-g1 -O0 -fsanitize=address,undefined -fno-sanitize-recover {STRICT}"

RICH = """
sizes { T <= 16; }
dynamic { x: f32[4]; m: f32[T, 4]; go: bool; }
constant { W(l): f32[4, 4] @pattern("W.{l}"); bias: f32[4]; }
volatile { y: f32[4]; s: f32[4]; p: i4[3] @init(-3); h: f16[4]; n: f32[T, 4]; }
persistent {
    step: i32 @init(0);
    total: f32[4] @init(1.0);
    seen: f32[4] @ref("bias");
    K(l, t): f32[4] @table @fixed(l=3, t=32);
    A(i, j): f32[2, 2] @auto_dim(i, j) @fixed(i=40, j=8);
    Q(t): i4[3] @table @fixed(t=8) @init(2);
}
block entry {
    assign k: f32[4];
    assign a: f32[2, 2];
    op add(x, total) >> total;
    loop layers (l in 0..3) {
        op matmul(total, W[l]) >> k;
        op add(k, bias) >> k;
        cache.write k >> K[l, step];
    }
    cache.read A[0..2, 0..2] >> a;
    cache.write a >> A[step..step+2, 0..2];
    cache.write p >> Q[step%8];
    op softmax(k) >> s;
    op cast(s, to=f16) >> h;
    op exp(m) >> n;
    branch go good bad;
    op mul(s, total) >> y;
    cache.increment step;
    return y, s, h, p, n;
}
block good { op add(total, s) >> total; transfer x >> seen; return; }
block bad { op sub(total, s) >> total; cache.reset K[0]; return; }
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path = tmp_path_factory.mktemp("model") / "rich.oinf"
    rng = np.random.default_rng(3)
    tensors = {f"W.{layer}": rng.normal(size=(4, 4)).astype(np.float32) for layer in range(3)}
    save_file(path, {**tensors, "bias": rng.normal(size=4).astype(np.float32)})
    return ModelLoader.open(path)


def golden(text: str, model: ModelLoader | None, inputs: list[dict[str, Any]]) -> list[Golden]:
    executor = Simulator(model).make_executor(graph(text))
    found = []
    names = ("y", "s", "h", "p", "n")
    for values in inputs:
        executor.insert(values)
        executor.run_step()
        found.append(Golden(values, dict(zip(names, executor.fetch(*names), strict=True))))
    return found


def inputs() -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [
        {"x": rng.normal(size=4).astype(np.float32), "m": rng.normal(size=(rows, 4)).astype(np.float32), "go": go}
        for rows, go in ((3, True), (16, False), (0, True))
    ]


def emitted(folder: Path, model: ModelLoader | None, **options: Any) -> Plan:
    plan = planned(RICH, model, **options)
    plan.emit(folder, golden(RICH, model, inputs()))
    return plan


def make(folder: Path, target: str, cc: str, cflags: str) -> str:
    command = ["make", "-s", f"CC={cc}", f"CFLAGS={cflags}", target]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[:3000]
    return ended.stdout


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("device", ["generic", "cpu"])
def test_the_self_test_builds_without_warnings_and_passes(
    cc: str, device: str, tmp_path: Path, model: ModelLoader
) -> None:
    emitted(tmp_path, model, device=device)
    out = make(tmp_path, "selftest", cc, f"-O2 {STRICT}")
    assert re.fullmatch(r"(\d+) of \1 values are right\n", out)
    assert "y: f32[4] =" in make(tmp_path, "example", cc, f"-O0 {STRICT}")


@pytest.mark.parametrize("weights", ["array", "incbin"])
def test_weights_can_be_part_of_the_program(weights: str, tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model, weights=weights)
    assert (tmp_path / "src/weights.bin").exists() == (weights == "incbin")
    assert "values are right" in make(tmp_path, "selftest", "gcc", f"-O1 {STRICT}")


def test_sanitizers_find_nothing(tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model, device="generic")
    assert "values are right" in make(tmp_path, "selftest", "gcc", SANITIZED)


@pytest.mark.parametrize(("name", "cc"), dealt(SMALL_MODELS))
def test_sanitizers_find_nothing_in_small_models(name: str, cc: str, tmp_path: Path) -> None:
    """The arena is filled with ones at first, and what lies behind it is watched."""
    small = SMALL_MODELS[name]
    loader = small.saved(tmp_path)
    Synthesizer("generic", name=name).synthesize(loader, graph(small.text)).emit(tmp_path, small.golden(loader))
    assert "values are right" in make(tmp_path, "selftest", cc, SANITIZED)


def test_a_wrong_result_fails_the_self_test(tmp_path: Path, model: ModelLoader) -> None:
    steps = golden(RICH, model, inputs())
    wrong = {**steps[1].outputs, "y": steps[1].outputs["y"] + 1}
    planned(RICH, model).emit(tmp_path, [steps[0], Golden(steps[1].inputs, wrong)])
    make(tmp_path, "build/selftest", "gcc", "-O0")
    ended = subprocess.run(["build/selftest"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "step 1: y[0] is" in ended.stdout


def test_weights_that_are_a_pipe_or_a_folder_are_refused_at_once(tmp_path: Path, model: ModelLoader) -> None:
    text = "dynamic { x: f32[4]; } constant { bias: f32[4]; } volatile { y: f32[4]; }"
    text += "block entry { op add(x, bias) >> y; return y; }"
    ones = np.ones(4, np.float32)
    planned(text, model).emit(tmp_path, [Golden({"x": ones}, {"y": ones})])
    make(tmp_path, "build/selftest", "gcc", f"-O0 {STRICT}")
    make(tmp_path, "build/example", "gcc", f"-O0 {STRICT}")
    os.mkfifo(tmp_path / "pipe")
    for program in ("build/selftest", "build/example"):
        for path in ("pipe", "src", "missing", "/dev/zero"):
            command = [f"./{program}", path]
            ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
            assert ended.returncode == 1
            assert ended.stderr == f"{path} does not hold the weights of this program\n"


def test_cmake_builds_and_tests_it(tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model)
    for command in (["cmake", "-S", ".", "-B", "out"], ["cmake", "--build", "out"], ["ctest", "--test-dir", "out"]):
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_cmake_includes_weights_from_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a, b"
    text = "dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op add(x, x) >> y; return y; }"
    planned(text, weights="incbin").emit(folder)
    for command in (["cmake", "-S", ".", "-B", "out"], ["cmake", "--build", "out", "--target", "net_example"]):
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_programs_of_another_machine_run_in_an_emulator(tmp_path: Path) -> None:
    """``make test-aarch64`` runs it; here only what make would do counts, and what it says without the tools."""
    planned("block entry { return; }", device="aarch64-neon").emit(tmp_path / "net")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uname").write_text("#!/bin/sh\necho ${MACHINE:-x86_64}\n")
    (tmp_path / "bin/uname").chmod(0o755)
    for tool in ("mkdir", "rm", "touch", "sh", "true"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))

    def made(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(shutil.which("make")), "-C", str(tmp_path / "net"), *arguments]
        variables = {"PATH": str(tmp_path / "bin"), **environment}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    run = "qemu-aarch64 -L /usr/aarch64-linux-gnu ./build/example"
    assert run in made("-n", "example").stdout
    assert "qemu-aarch64" not in made("-n", "example", MACHINE="aarch64").stdout
    assert "apt-get install gcc-aarch64-linux-gnu" in made("example").stderr
    assert "apt-get install qemu-user" in made("example", "CC=true", "AR=true").stderr


def test_there_is_no_writable_data_and_no_call_into_libraries(tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model, device="generic")
    # Addresses in constants are relocated in programs that can lie anywhere, which nm calls data.
    make(tmp_path, "all", "gcc", f"-O1 -fno-pie {STRICT}")
    symbols = subprocess.run(["nm", "build/libnet.a"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    kinds = re.findall(r"^(?:[0-9a-f]+)? *([A-Za-z]) (\S+)$", symbols, re.MULTILINE)
    assert not [name for kind, name in kinds if kind in "dDbBcCgGsS"]
    defined = {name for kind, name in kinds if kind != "U"}
    assert {name for kind, name in kinds if kind == "U"} - defined <= {"memcpy", "memset", "memcmp", "memmove"}
    assert all(name.startswith("net_") for kind, name in kinds if kind == "T")


def test_the_plan_says_where_everything_comes_from(tmp_path: Path, model: ModelLoader) -> None:
    plan = emitted(tmp_path, model)
    facts = json.loads((tmp_path / "plan.json").read_text("ascii"))
    assert (facts["schema"], facts["version"]) == ("openinfer.plan", 1)
    assert facts["bytes"]["arena"] == plan.placed.arena_bytes
    assert {one["variable"] for one in facts["tables"]} == {"K", "A", "Q"}
    lines = {node["line"] for kernel in facts["kernels"] for node in kernel["nodes"]}
    assert {RICH[: RICH.index(text)].count("\n") + 1 for text in ("op softmax", "op exp", "op matmul")} <= lines
    assert all(kernel["operations"] >= 0 and kernel["bytes_written"] > 0 for kernel in facts["kernels"])
    header = (tmp_path / "include/net.h").read_text("ascii")
    assert f"#define NET_ARENA_BYTES {facts['bytes']['arena']}\n" in header
    assert facts["model_sha256"] in header
    assert facts["graph_sha256"] in header


def test_steps_are_shown_with_the_nodes_they_come_from(model: ModelLoader) -> None:
    source = planned(RICH, model, device="generic").project.code()["src/net.c"]
    line = RICH[: RICH.index("op softmax")].count("\n") + 1
    assert f", line {line}: op softmax(k) >> s */" in source
    assert re.search(r"float \*const t\d+ = \(float \*\)\(?c->arena( \+ \d+\))?; +/\* y: f32\[4\] \*/", source)
    assert max(map(len, source.splitlines())) <= 120
    headings = re.findall(r"/\* Node (\d+), line ", source)
    assert all(one != other for one, other in pairwise(headings)), "consecutive steps of a node share its heading"
    assert not re.search(r"[ \t]\n", source)
    assert "None" not in source
    first = [re.findall(rf" \*(?:const )?({kind}\d+) = ", block) for block in source.split("\n}\n") for kind in "tw"]
    assert all(names == [f"{names[0][0]}{number}" for number in range(len(names))] for names in first if names)


def test_layers_do_not_make_the_code_longer(tmp_path: Path) -> None:
    sizes = []
    for layers in (2, 40):
        path = tmp_path / f"{layers}.oinf"
        save_file(path, {f"W.{layer}": np.eye(4, dtype=np.float32) for layer in range(layers)}, sizevars={"L": layers})
        text = """dynamic { x: f32[4]; } constant { W(l): f32[4, 4] @pattern("W.{l}"); } volatile { y: f32[4]; }
        block entry { transfer x >> y; loop layers (l in 0..L) { op matmul(y, W[l]) >> y; } return y; }"""
        sizes.append(sum(map(len, planned(text, ModelLoader.open(path)).project.code().values())))
    assert sizes[1] - sizes[0] < 50


def test_a_graph_without_anything_is_a_project_too(tmp_path: Path) -> None:
    planned("block entry { return; }", device="generic").emit(tmp_path)
    for cc in COMPILERS:
        make(tmp_path, "clean", cc, "")
        make(tmp_path, "example", cc, STRICT)


def test_a_sum_of_everything_feeds_an_op_on_an_array() -> None:
    agree(
        "dynamic { x: f32[3]; } volatile { y: f32[3]; }"
        "block entry { assign s: f32; op sum_axis(x) >> s; op sub(x, s) >> y; return y; }",
        inputs=lambda step: {"x": [1.0, 2.0, float(step)]},
    )


def test_devices_without_a_target_are_refused() -> None:
    with pytest.raises(GraphError) as caught:
        planned("block entry { return; }", device=DeviceArch.from_json({"device": {"type": "gpu", "api": "metal"}}))
    assert caught.value.code is Code.NOT_SYNTHESIZED


# --- the interface in C -----------------------------------------------------------------------------------------------

DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); return 1; } } while (0)
#define GUARD 64
#define A NET_ARENA_BYTES
#define S NET_STATE_BYTES
#define W sizeof weights
static _Alignas(64) unsigned char arena[NET_ARENA_BYTES + GUARD], state[NET_STATE_BYTES + GUARD];
static _Alignas(64) unsigned char other_arena[NET_ARENA_BYTES], other_state[NET_STATE_BYTES];
static _Alignas(64) unsigned char weights[NET_WEIGHT_BYTES];
static unsigned char saved[NET_SAVED_BYTES + 1];
int main(void)
{
    FILE *f = fopen("src/weights.bin", "rb");
    CHECK(f != NULL && fread(weights, 1, sizeof weights, f) == sizeof weights);
    fclose(f);
    net_context c, d;
    net_outputs out, more;
    net_tensor tensor;
    memset(arena, 0xA5, sizeof arena);
    memset(state, 0xA5, sizeof state);
    /* memory */
    CHECK(net_init(&c, arena, A - 1, state, S, weights, W) == NET_ERROR_MEMORY);
    CHECK(net_init(&c, arena, A, state, S - 1, weights, W) == NET_ERROR_MEMORY);
    CHECK(net_init(&c, arena + 8, A, state, S, weights, W) == NET_ERROR_MEMORY);
    CHECK(net_init(&c, NULL, A, state, S, weights, W) == NET_ERROR_MEMORY);
    CHECK(net_init(&c, arena, A, state, S, weights, W - 1) == NET_ERROR_WEIGHTS);
    CHECK(strlen(net_last_error(&c)) > 0);
    CHECK(net_check_weights(weights, W) == NET_OK);
    weights[0] ^= 1;
    CHECK(net_check_weights(weights, W) == NET_ERROR_WEIGHTS);
    weights[0] ^= 1;
    CHECK(net_init(&c, arena, A, state, S, weights, W) == NET_OK);
    CHECK(net_init(&d, other_arena, A, other_state, S, weights, W) == NET_OK);
    CHECK(strlen(net_last_error(&c)) == 0 && net_failed_node(&c) == -1);
    /* inputs */
    static const float x[4] = { 1, 2, 3, 4 }, m[64];
    static const uint8_t go[1] = { 1 };
    net_inputs in = { .x = x, .m = m, .go = go, .T = 5 };
    CHECK(net_step(&c, NULL, &out) == NET_ERROR_INPUT);
    in.x = NULL;
    CHECK(net_step(&c, &in, &out) == NET_ERROR_INPUT && strstr(net_last_error(&c), "input x") != NULL);
    in.x = (const float *)arena;
    CHECK(net_step(&c, &in, &out) == NET_ERROR_INPUT);
    in.x = x;
    in.T = 17;
    CHECK(net_step(&c, &in, &out) == NET_ERROR_SIZE && strstr(net_last_error(&c), "T") != NULL);
    in.T = -1;
    CHECK(net_step(&c, &in, &out) == NET_ERROR_SIZE);
    in.T = 5;
    CHECK(net_fetch(&c, "y", &tensor) == NET_ERROR_NAME);
    CHECK(net_step(&c, &in, &out) == NET_OK && out.T == 5);
    CHECK(net_step(&d, &in, &more) == NET_OK && memcmp(out.y, more.y, 16) == 0);
    /* fetch */
    CHECK(net_fetch(&c, "y", &tensor) == NET_OK && tensor.data == out.y && tensor.rank == 1 && tensor.shape[0] == 4);
    CHECK(net_fetch(&c, "n", &tensor) == NET_OK && tensor.rank == 2 && tensor.shape[0] == 5);
    CHECK(net_fetch(&c, "step", &tensor) == NET_OK && *(const int32_t *)tensor.data == 1);
    CHECK(net_fetch(&c, "nothing", &tensor) == NET_ERROR_NAME && net_fetch(&c, NULL, &tensor) == NET_ERROR_NAME);
    /* state */
    CHECK(net_saved_bytes(&c) == NET_SAVED_BYTES);
    CHECK(net_save_state(&c, saved, NET_SAVED_BYTES - 1) == NET_ERROR_MEMORY);
    CHECK(net_save_state(&c, saved, sizeof saved) == NET_OK);
    float before[4];
    CHECK(net_step(&c, &in, &out) == NET_OK);
    memcpy(before, out.y, sizeof before);
    CHECK(net_load_state(&c, saved, NET_SAVED_BYTES) == NET_OK && net_step(&c, &in, &out) == NET_OK);
    CHECK(memcmp(before, out.y, sizeof before) == 0);
    CHECK(net_load_state(&c, saved, NET_SAVED_BYTES - 1) == NET_ERROR_STATE);
    CHECK(net_load_state(&c, saved, NET_SAVED_BYTES + 1) == NET_ERROR_STATE);
    CHECK(net_load_state(&c, saved, 3) == NET_ERROR_STATE && net_load_state(&c, NULL, 0) == NET_ERROR_STATE);
    for (size_t i = 0; i < NET_SAVED_BYTES; ++i) {
        if (i >= 36 && i < 48) continue; /* not used */
        saved[i] ^= 4;
        CHECK(net_load_state(&c, saved, NET_SAVED_BYTES) == NET_ERROR_STATE);
        saved[i] ^= 4;
    }
    /* a step that fails leaves no state until it is defined again */
    int status = NET_OK;
    for (int i = 0; i < 40 && status == NET_OK; ++i) status = net_step(&c, &in, &out);
    CHECK(status == NET_ERROR_INDEX && strstr(net_last_error(&c), "K[l, step]") != NULL);
    CHECK(strstr(net_last_error(&c), "line ") != NULL);
    char node[32];
    snprintf(node, sizeof node, "node %d, ", (int)net_failed_node(&c));
    CHECK(net_failed_node(&c) >= 0 && strstr(net_last_error(&c), node) == net_last_error(&c));
    CHECK(net_step(&c, &in, &out) == NET_ERROR_STATE && net_save_state(&c, saved, sizeof saved) == NET_ERROR_STATE);
    CHECK(net_reset(&c) == NET_OK && net_step(&c, &in, &out) == NET_OK && memcmp(out.y, more.y, 16) == 0);
    for (int i = 0; i < GUARD; ++i) CHECK(arena[NET_ARENA_BYTES + i] == 0xA5 && state[NET_STATE_BYTES + i] == 0xA5);
    puts("good");
    return 0;
}
"""


@pytest.mark.parametrize("cc", COMPILERS)
def test_the_interface_checks_everything_and_never_aborts(cc: str, tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model, device="generic")
    (tmp_path / "driver.c").write_text(DRIVER, encoding="ascii")
    sources = ["driver.c", "src/net.c", "src/kernels.c"]
    flags = ["-std=c11", "-Iinclude", "-ffp-contract=off", "-g1", "-O0", "-Wall", "-Wextra", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if cc == "gcc" else []
    ended = subprocess.run(
        [cc, *flags, "-o", "driver", *sources], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[:3000]
    ran = subprocess.run(["./driver"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout == "good\n", ran.stdout + ran.stderr[:3000]


def test_code_for_a_microcontroller_has_nothing_of_other_machines(tmp_path: Path) -> None:
    text = load_graph(Path(__file__).parents[2] / "examples/graphs/branching.oig")
    own, x86 = (
        Synthesizer(device).synthesize(made_up(text, tmp_path / f"{device}.oinf"), text).files()
        for device in ("cortex-m4", "x86-avx512")
    )
    assert "AVX" in str(x86["src/kernels.c"]), "the graph has a loop that is rolled for x86"
    code = "".join(str(content) for path, content in own.items() if path.endswith((".c", ".h")))
    assert not re.search(r"AVX|avx|__x86|pthread|__atomic|immintrin", code)
    assert "OI_INF" not in str(own["src/runtime.h"])
    assert "-ffunction-sections -fdata-sections" in str(own["Makefile"])
    assert "-Wl,--gc-sections" in str(own["Makefile"])
    lists = " ".join(str(own["CMakeLists.txt"]).split())
    assert "-ffunction-sections -fdata-sections" in lists
    assert "target_link_options(model INTERFACE -Wl,--gc-sections)" in lists
    assert "gc-sections" not in str(x86["CMakeLists.txt"])


def test_texts_of_failures_can_be_left_out(tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model)
    for flag, has_texts in (("-DOTHER", True), ("-DNET_NO_MESSAGES", False)):
        command = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Iinclude", flag, "-c", "src/net.c"]
        assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
        assert (b"the input x is missing" in (tmp_path / "net.o").read_bytes()) == has_texts


def test_the_header_is_c_plus_plus_too(tmp_path: Path, model: ModelLoader) -> None:
    emitted(tmp_path, model)
    (tmp_path / "use.cpp").write_text('#include "net.h"\nint main() { net_context c; return net_reset(&c); }\n')
    command = ["g++", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-c", "use.cpp"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


def test_fields_have_the_names_of_the_graph_whatever_their_values_were_before() -> None:
    """An output that is a part of something else is called by its own name; only names that C lacks are explained."""
    parts = graph(
        "dynamic { x: f32[2, 3]; } volatile { first: f32[3]; int: f32[3]; }"
        " block entry { t = op add(x, x); transfer t[0, ] >> first; transfer t[1, ] >> int; return first, int; }"
    )
    header = Synthesizer(name="parts").synthesize(None, parts).files()["include/parts.h"]
    assert isinstance(header, str)
    assert re.findall(r"\*(\w+); /\* (.*?) \*/", header)[:3] == [
        ("x", "f32[2, 3]"),
        ("first", "f32[3]"),
        ("v_int", "int: f32[3]"),
    ]
