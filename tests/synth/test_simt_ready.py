"""Launches that begin while those before them still run: what they load before they wait, and that all of them wait."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.synth.cuda.kernels import compiled, compilers
from tests.synth.test_simt_attention import attention
from tests.synth.test_simt_packed import product as packed
from tests.synth.test_simt_schedule import BF16, F32, I32

from openinfer import DeviceArch, ModelLoader, Synthesizer, graph
from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import cast, index
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    INDEX,
    Bind,
    Buffer,
    For,
    Kernel,
    Let,
    Load,
    LoopKind,
    Ready,
    Scalar,
    ScalarVar,
    Space,
    Store,
    Unfailed,
    WideLoad,
    walk,
)
from openinfer.loops.verify import verify
from openinfer.oinf import save_file
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import Following, SimtMachine, simt_machine
from openinfer.synth.targets.simt.ready import with_late_guards, with_ready, with_short_ready, with_weights
from openinfer.synth.targets.simt.schedule import scheduled
from openinfer.synth.targets.vulkan.shader import launch_code as vulkan_code

MACHINE = SimtMachine(group=16, subgroup=4, units=6)
EVERY = ("early_launches", "restrict_weights")


def product(dtype: DType = BF16) -> Kernel:
    record = OPS["linear"]
    call = infer(record, Call((TensorType(dtype, (1, 64)), TensorType(dtype, (24, 64)), None), complete(record, {})))
    return kernel_of(record, call, (dtype, dtype, None))


def early(kernel: Kernel, *weights: str) -> Launches:
    return with_ready(with_weights(scheduled(kernel, MACHINE), frozenset(weights)))


def order(one: Kernel) -> list[str]:
    """Where a launch waits among its first accesses."""
    found = [each for each in walk(one.body) if isinstance(each, Ready | WideLoad)]
    return ["ready" if isinstance(each, Ready) else each.buffer.name + " ahead" * each.is_ahead for each in found]


def weight_of(kernel: Kernel) -> str:
    return max(kernel.inputs, key=lambda one: int(np.prod(one.shape))).name


def test_weights_are_on_their_way_before_a_launch_is_ready() -> None:
    kernel = product()
    name = weight_of(kernel)
    found = early(kernel, name)
    assert order(found.launches[0].kernel)[:3] == [f"{name} ahead"] * 2 + ["ready"]
    assert verify(found.launches[0].kernel) == []
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=one.shape).astype(one.dtype.array) for one in kernel.inputs]
    (one,), (other,) = launched(found, arrays), interpret(plain(kernel), arrays)
    np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=1e-2)


@pytest.mark.parametrize(
    ("bits", "following", "first"),
    [(4, "short", "ready"), (8, "short", "w ahead"), (4, "counted", "w ahead")],
)
def test_vectors_come_before_weights_of_few_bits(bits: int, following: Following, first: str) -> None:
    kernel, machine = packed(DTYPES[f"i{bits}"], 24, 256), replace(MACHINE, early=following)
    found = with_ready(with_weights(scheduled(kernel, machine), frozenset({"w", "scale"}))).launches[0].kernel
    loads = order(found)
    assert loads[0] == first
    assert (loads.index("x") < loads.index("w ahead")) == (first == "ready")
    assert verify(found) == []


def test_what_other_launches_may_write_is_not_read_before() -> None:
    assert order(early(product()).launches[0].kernel)[0] == "ready"


def test_every_launch_waits_outside_of_conditions() -> None:
    most = Dim(96, Ref("T"))
    found = early(attention(F32, (2, 1, 4), (1, most, 4), (1, most, 4)))
    assert all(sum(isinstance(part, Ready) for part in walk(one.kernel.body)) == 1 for one in found.launches)
    assert [verify(one.kernel) for one in found.launches] == [[], []]


@pytest.mark.parametrize(
    ("kernel", "are_short"),
    [
        (attention(F32, (2, 1, 4), (1, Dim(96, Ref("T")), 4), (1, Dim(96, Ref("T")), 4)), [True, False]),
        (attention(F32, (2, 64, 4), (1, 64, 4), (1, 64, 4)), [False]),
        (product(), [True]),
    ],
)
def test_where_launches_count_others_only_short_ones_wait_themselves(kernel: Kernel, are_short: list[bool]) -> None:
    found = with_short_ready(scheduled(kernel, MACHINE))
    assert [one.is_short for one in found.launches] == are_short
    assert [any(isinstance(part, Ready) for part in walk(one.kernel.body)) for one in found.launches] == are_short


def threads(*body: object, space: Space = Space.ARENA) -> Kernel:
    x, y = Buffer("x", F32, (4,), space), Buffer("y", F32, (4,))
    loop = For(ScalarVar("i"), index(4), body, LoopKind.PARALLEL, Bind.THREAD)  # type: ignore[arg-type]
    return Kernel("k", (x,), (y,), (loop,))


LOADED = Let(ScalarVar("v", F32), Load(Buffer("x", F32, (4,)), (ScalarVar("i"),)))
STORED = Store(Buffer("y", F32, (4,)), (ScalarVar("i"),), ScalarVar("v", F32))


def test_reads_and_writes_before_a_launch_is_ready_are_problems() -> None:
    assert verify(threads(LOADED, Ready(), STORED)) == ["'x' is read before the launches that may write it have ended"]
    assert "'y' is written before the launches that may read it have ended" in verify(threads(LOADED, STORED, Ready()))
    weights = replace(LOADED, value=Load(Buffer("x", F32, (4,), Space.WEIGHTS), (ScalarVar("i"),)))
    assert verify(threads(weights, Ready(), STORED, space=Space.WEIGHTS)) == []


def test_a_launch_that_only_some_threads_wait_in_is_a_problem() -> None:
    loop = For(ScalarVar("j"), index(2), (Ready(),))
    assert verify(threads(loop, LOADED, STORED)) == ["not every thread waits for the launches before"]


def test_late_guards_stand_before_the_first_write_and_after_reads() -> None:
    kernel = with_late_guards(early(product(), weight_of(product()))).launches[0].kernel
    body = [each for each in walk(kernel.body) if isinstance(each, Unfailed | Store)]
    first = next(at for at, one in enumerate(body) if isinstance(one, Unfailed))
    assert all(isinstance(one, Store) and one.buffer.space is Space.GROUP for one in body[:first])
    assert verify(kernel) == []


def test_shaders_end_at_a_late_guard_and_have_no_other() -> None:
    found = with_late_guards(scheduled(product(), MACHINE)).launches[0]
    text = vulkan_code(replace(found, is_guarded=True), "k", Numerics()).code.text
    before, _, after = text.partition("if (is_stopped) return;")
    assert "const bool is_stopped = status.v[0] < own;" in before
    assert "y.v[" in after
    assert "return;" not in before
    assert "y.v[" not in before
    assert "is_stopped" not in vulkan_code(found, "k", Numerics()).code.text


def read_at(place: Scalar) -> Launches:
    """Threads of a group that read an element each at some place."""
    x, ids, y = Buffer("x", F32, (8,)), Buffer("ids", I32, (4,)), Buffer("y", F32, (4,))
    lane, value = ScalarVar("lane"), ScalarVar("v", F32)
    body = (Let(value, Load(x, (place,))), Store(y, (lane,), value))
    threads = For(lane, index(4), body, LoopKind.PARALLEL, Bind.THREAD)
    group = For(ScalarVar("group"), index(1), (threads,), LoopKind.PARALLEL, Bind.GROUP)
    kernel = Kernel("k", (x, ids), (y,), (group,))
    return Launches(kernel, (Launch(kernel, 4),), ())


@pytest.mark.parametrize(
    ("place", "is_late"),
    [
        (ScalarVar("lane"), True),
        (cast(Load(Buffer("ids", I32, (4,)), (ScalarVar("lane"),)), INDEX), False),
    ],
)
def test_what_is_read_at_an_index_from_memory_is_guarded_first(place: Scalar, is_late: bool) -> None:
    (found,) = with_late_guards(read_at(place)).launches
    assert any(isinstance(one, Unfailed) for one in walk(found.kernel.body)) is is_late


TEXT = """
dynamic { x: bf16[1, 1024]; }
constant { w: bf16[512, 1024]; }
volatile { y: bf16[1, 512]; }
block entry { op linear(x, w) >> y; return y; }
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A project for an H200 with everything that is to be tried there."""
    own = tmp_path_factory.mktemp("model") / "model.oinf"
    save_file(own, {"w": np.ones((512, 1024), BF16.array)})
    document = {**DeviceArch.named("h200").to_json(), "preferences": {"trials": [*EVERY]}}
    with ModelLoader.open(own) as model:
        plan = Synthesizer(DeviceArch.from_json(document), name="net").synthesize(model, graph(TEXT))
        return dict(plan.project.code())


def test_a_kernel_lets_the_next_begin_then_loads_then_waits_then_looks_for_failures(files: dict[str, str]) -> None:
    words = (
        "linear(",
        "oi_let_next_begin();",
        "= oi_ahead(",
        "oi_ready();",
        "*status < own",
        "if (is_stopped) return;",
    )
    text = files["src/kernels.cu"][files["src/kernels.cu"].index("void __launch_bounds__") :]
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "const uint16_t *__restrict__ w" in text
    assert "const uint16_t *x" in text


def test_copies_wait_too_and_the_host_knows(files: dict[str, str]) -> None:
    text = files["src/kernels.cu"]
    for kernel in ("net_copy(", "net_cells("):
        own = text[text.index(kernel) :]
        assert own.index("oi_ready();") < own.index("status < own")
    assert re.findall(r"\(const void \*\)net_\w+, \d+, \d+, \d+, (\d)", text) == ["1"] * 3


def test_what_is_to_be_tried_compiles(files: dict[str, str], tmp_path: Path) -> None:
    for path, text in files.items():
        (tmp_path / Path(path).name).write_text(text, encoding="ascii")
    flags = (f"-I{tmp_path}", "--cuda-gpu-arch=sm_90", "-Xclang", "-target-feature", "-Xclang", "+ptx78")
    compiler = compilers()[0]
    assembly = compiled(files["src/kernels.cu"], tmp_path, compiler, *flags[: 1 if compiler == "nvcc" else None])
    if compiler == "nvcc":
        assert assembly.count("griddepcontrol.wait") == 3


def test_other_devices_do_not_try() -> None:
    document = {**DeviceArch.named("lavapipe").to_json(), "preferences": {"trials": [*EVERY]}}
    assert simt_machine(DeviceArch.from_json(document)) == simt_machine(DeviceArch.named("lavapipe"))
