"""Short launches that do not depend on each other: which become one, and what it computes."""

import numpy as np
import pytest

from openinfer import DeviceArch, Synthesizer, graph
from openinfer.dtypes import Array
from openinfer.loops.expand import plain
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Kernel, Space
from openinfer.loops.verify import verify
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches

TEXT = """
dynamic {{ x: bf16[1, 256]; q: bf16[40, 256]; k: bf16[20, 256]; v: bf16[36, {terms}]; }}
volatile {{ a: bf16[1, 40]; b: bf16[1, 20]; c: bf16[1, 36]; }}
block entry {{
    assign h: bf16[1, 40];
    assign i: bf16[1, 20];
    assign j: bf16[1, 36];
    op linear(x, q) >> h;
    op linear(x, k) >> i;
    op linear({vector}, v) >> j;
    op relu(h) >> a;
    op relu(i) >> b;
    op relu(j) >> c;
    return a, b, c;
}}
"""


def few_units(device: str) -> DeviceArch:
    """A shipped device with so few units that small products keep it busy."""
    document = DeviceArch.named(device).to_json()
    limits = {**document["limits"], "compute_units": 4, "subgroup_size": 8, "max_workgroup_invocations": 32}
    return DeviceArch.from_json({**document, "limits": limits})


def steps(text: str, arch: DeviceArch) -> list[KernelStep]:
    program = Synthesizer(arch, name="net").synthesize(None, graph(text)).project.program
    return [one for one in program.steps() if isinstance(one, KernelStep)]


def given(kernel: Kernel) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=one.shape).astype(one.dtype.array) for one in kernel.inputs]


def test_products_of_one_vector_become_one_launch() -> None:
    (step,) = steps(TEXT.format(vector="x", terms=256), few_units("h200"))
    assert isinstance(step.schedule, Launches)
    (launch,) = step.schedule.launches
    assert len(step.outputs) == 3
    assert verify(launch.kernel) == []
    arrays = given(step.kernel)
    found, wanted = launched(step.schedule, arrays), interpret(plain(step.kernel), arrays)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=1e-2, atol=1e-2)


def test_shared_memory_is_that_of_one_of_them() -> None:
    (step,) = steps(TEXT.format(vector="x", terms=256), few_units("h200"))
    assert isinstance(step.schedule, Launches)
    memory = [one for one in step.schedule.launches[0].kernel.scratch if one.space is Space.GROUP]
    assert [one.shape for one in memory] == [(1, 8, 32)]


def test_a_product_of_the_result_of_another_waits_for_it() -> None:
    text = TEXT.format(vector="h", terms=40).replace("    op relu(h) >> a;\n", "").replace("return a,", "return")
    assert [len(one.outputs) for one in steps(text, few_units("h200"))] == [2, 1]


@pytest.mark.parametrize("mark", ["fuse = false", "no_reorder = true"])
def test_the_graph_can_keep_them_apart(mark: str) -> None:
    text = TEXT.format(vector="x", terms=256).replace("linear(x, k) >> i;", f"linear(x, k) >> i with {{ {mark} }};")
    assert [len(one.outputs) for one in steps(text, few_units("h200"))] != [3]


def test_where_launches_overlap_on_their_own_they_stay_as_they_are() -> None:
    found = steps(TEXT.format(vector="x", terms=256), few_units("h200-vulkan"))
    assert all(len(one.outputs) == 1 for one in found)
