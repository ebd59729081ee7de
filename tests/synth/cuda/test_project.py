"""Projects for GPUs with CUDA: what is emitted, and what is said where it cannot be built. They run on a GPU."""

import os
import re
import shutil
from pathlib import Path

import pytest
from tests.synth.cuda.kernels import compiled, compilers

from openinfer import Device, DeviceArch, DeviceSpec, Graph, Synthesizer, graph
from openinfer.errors import Code, GraphError, MissingExtraError
from openinfer.synth.plan import Plan

TEXT = """
sizes { T <= 6; }
dynamic { x: f32[T, 64]; ids: i32[3]; }
persistent { n: i32 @init(0); seen(i): f32[64] @table @fixed(i=8); }
volatile { y: f32[T, 64]; all: f32[64]; picked: f32[3, 64]; }
block entry {
    op softmax(x, axis=1) >> y;
    op sum_axis(y, axes=[0]) >> all;
    cache.write all >> seen[n];
    op gather(y, ids, axis=0) >> picked;
    cache.increment n;
    return y, picked;
}
"""
KERNELS = "src/kernels.cu"


@pytest.fixture(scope="module")
def net() -> Graph:
    return graph(TEXT)


@pytest.fixture(scope="module")
def plan(net: Graph) -> Plan:
    return Synthesizer("h200", name="net").synthesize(None, net)


def test_a_project_has_kernels_and_a_host_in_c(plan: Plan) -> None:
    files = plan.project.files()
    text = str(files[KERNELS])
    assert {"include/net.h", "src/net.c", "src/device.c", "src/commands.c", "src/support.cuh", "Makefile"} <= set(files)
    assert "op softmax(x, axis=1) >> y" in text
    assert "-gencode=arch=compute_90a,code=sm_90a" in str(files["Makefile"])
    own = re.findall(r'^extern "C" __global__ void .*?(net_\w+)\(', text, re.MULTILINE)
    table = re.findall(r"\(const void \*\)(net_\w+)", text)
    assert table == own == ["net_copy", "net_cells", *(one.name for one in plan.project.kernels.used.values())]


def test_the_source_of_a_project_compiles(plan: Plan, tmp_path: Path) -> None:
    files = plan.project.code()
    for path, text in files.items():
        (tmp_path / Path(path).name).write_text(text, encoding="ascii")
    assembly = compiled(files[KERNELS], tmp_path, compilers()[-1], f"-I{tmp_path}")
    names = ["net_copy", "net_cells", *(one.name for one in plan.project.kernels.used.values())]
    assert [name for name in names if f".entry {name}(" not in assembly] == []


def test_short_names_mean_any_gpu_with_cuda() -> None:
    assert Synthesizer(Device.CUDA)._arch == DeviceSpec.GPU().api("cuda").arch() == DeviceArch.named("cuda")


def test_code_for_any_gpu_is_compiled_for_that_of_the_machine(net: Graph) -> None:
    project = Synthesizer(Device.CUDA, name="net").synthesize(None, net).project
    assert "-arch=native" in str(project.files()["Makefile"])


def test_a_machine_without_the_compiler_says_what_to_install(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.symlink(str(shutil.which("gcc")), tmp_path / "gcc")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match="there is no 'nvcc'") as caught:
        plan.build()
    assert caught.value.code is Code.NO_GPU
    assert "CUDA toolkit" in str(caught.value)


def test_a_gpu_whose_limits_are_too_small_is_refused(net: Graph) -> None:
    described = DeviceArch.named("cuda").to_json()
    described["limits"] |= {"max_push_constants_bytes": 24}
    with pytest.raises(GraphError, match="bytes of arguments") as caught:
        Synthesizer(DeviceArch.from_json(described)).synthesize(None, net)
    assert caught.value.code is Code.MISSING_FEATURE
