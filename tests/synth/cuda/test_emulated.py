"""Whole CUDA projects where there is no GPU: hosts and kernels as they are, on the emulator of the tests."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from bench.gpu.decode import TEXT, LlamaShape, saved, text_of, with_trials
from tests.everything import some
from tests.synth.cuda.emulator import on_emulator

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.dtypes import DTYPES, Array
from openinfer.errors import Code, OpenInferError
from openinfer.loops.dim import most_elements
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.agreement import Contract
from openinfer.synth.targets.cuda.kernel import support_text
from openinfer.synth.targets.cuda.looked_up import fixed_groups

SMALL = LlamaShape(layers=2, width=512, heads=6, groups=3, head=64, hidden=320, classes=400, tokens=40)
TOKENS = (5, 17, 3, 3)
BF16 = DTYPES["bf16"]


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_emulator().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    return saved(SMALL, tmp_path_factory.mktemp("model") / "model.oinf", seed=1)


def stepped(machine: object, tokens: tuple[int, ...] = TOKENS) -> Array:
    for token in tokens:
        machine.insert({"token": np.array([token], np.int32)})  # type: ignore[attr-defined]
        machine.run_step()  # type: ignore[attr-defined]
    return np.asarray(machine.fetch("logits")).astype(np.float32)  # type: ignore[attr-defined]


def test_steps_of_a_decoder_are_the_simulators_however_launches_follow_each_other(model: ModelLoader) -> None:
    """The order of sums does not depend on when a launch begins: both give the same bits."""
    wanted = stepped(Simulator(model).make_executor(graph(TEXT)))
    found = []
    for trials in some([(), ("early_launches", "restrict_weights"), ("launches_in_turn",)], 2):
        plan = Synthesizer(with_trials("h200", trials), name="decode").synthesize(model, graph(TEXT))
        found.append(stepped(plan.build()))
        np.testing.assert_allclose(found[-1], wanted, atol=0.03 * float(np.abs(wanted).max()))
    assert all(np.array_equal(found[0], one) for one in found[1:])


def test_steps_with_weights_of_4_bits_are_those_of_the_simulator(tmp_path: Path) -> None:
    shape = LlamaShape(layers=1, width=1024, heads=8, groups=8, head=32, hidden=1024, classes=400, tokens=40)
    model = saved(shape, tmp_path / "model.oinf", seed=1, weights="i4")
    plan = Synthesizer("h200", name="decode").synthesize(model, graph(text_of("i4")))
    assert "1258291200u" in plan.project.code()["src/kernels.cu"], (
        "integers are converted without an instruction for it"
    )
    wanted, found = stepped(Simulator(model).make_executor(graph(text_of("i4")))), stepped(plan.build())
    np.testing.assert_allclose(found, wanted, atol=0.03 * float(np.abs(wanted).max()))


def test_a_unit_has_room_for_one_group_of_a_launch_that_begins_early(model: ModelLoader) -> None:
    """Units become free one after the other: the first would take two groups and leave the last without any."""
    for trials, has_room in ((("launches_in_turn",), True), ((), False)):
        project = Synthesizer(with_trials("h200", trials), name="decode").synthesize(model, graph(TEXT)).project
        for one in project.kernels.used.values():
            groups = fixed_groups(one.kernel)
            if groups is not None and 1 < groups <= 132:
                row = project.code()["src/kernels.cu"].split(f"const void *){one.name}, ")[1]
                allocated = int(row.split(", ")[2]) + sum(
                    each.dtype.nbytes(most_elements(each.shape)) for each in one.kernel.scratch
                )
                assert (2 * allocated <= 232448) == has_room


def test_the_graph_of_a_step_stays_as_it_is(model: ModelLoader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths and places in tables change from step to step: kernels look them up."""
    monkeypatch.setenv("EMULATED_CUDA_FIXED_GRAPHS", "1")
    tokens = (*TOKENS, *TOKENS)
    wanted = stepped(Simulator(model).make_executor(graph(TEXT)), tokens)
    found = stepped(Synthesizer("h200", name="decode").synthesize(model, graph(TEXT)).build(), tokens)
    np.testing.assert_allclose(found, wanted, atol=0.03 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("trial", ["early_launches_in_a_chain", "early_launches_after_one"])
def test_launches_give_the_same_however_they_follow_each_other(trial: str) -> None:
    text = """
    dynamic { x: f32[8]; }
    persistent { n: f32[8] @init(0); }
    volatile { y: f32[8]; z: f32[1]; }
    block entry { op exp(x) >> y; op add(n, x) >> n; op sum_axis(y, axes=[0], keepdims=true) >> z; return y, z; }
    """
    plan = Synthesizer(with_trials("h200", (trial,)), name="net").synthesize(None, graph(text))
    module, executor = plan.build(), Simulator(None).make_executor(graph(text))
    for step in range(4):
        for one in (module, executor):
            one.insert({"x": np.arange(8, dtype=np.float32) * 0.1 * step})
            one.run_step()
        for name in ("y", "z", "n"):
            np.testing.assert_allclose(module.fetch(name), executor.fetch(name), rtol=1e-6)


ATTENTION = """
dynamic {{ q: bf16[{0}]; k: bf16[{1}]; v: bf16[{1}]; }} volatile {{ y: bf16[{0}]; }}
block entry {{ op sdpa(q, k, v{2}) >> y; return y; }}
"""


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "infinite"),
    some(
        [
            ((2, 70, 72), (1, 75, 72), True, False),
            ((2, 70, 72), (1, 75, 72), True, True),
            ((1, 20, 8), (1, 16, 8), False, False),
            ((1, 20, 8), (1, 16, 8), False, True),
        ],
        3,
    ),
)
def test_attention_on_matrix_units_is_as_good_as_sums_of_f32(
    queries: tuple[int, ...], keys: tuple[int, ...], *, causal: bool, infinite: bool
) -> None:
    """Weights are sums of two bf16 there: one alone would be further off than the op allows."""
    shapes, rng, params = (queries, keys, keys), np.random.default_rng(4), ", causal=true" if causal else ""
    arrays = [rng.normal(size=shape).astype(BF16.array) for shape in shapes]
    if infinite:
        arrays[2][0, keys[1] - 3] = np.inf
    text = ATTENTION.format(*(", ".join(map(str, shape)) for shape in shapes[:2]), params)
    plan = Synthesizer("h200", name="net").synthesize(None, graph(text))
    assert "oi_mix_bf16" in plan.project.files()["src/kernels.cu"]
    module = plan.build()
    module.insert(dict(zip("qkv", arrays, strict=True)))
    module.run_step()
    record, types = OPS["sdpa"], [TensorType(BF16, shape) for shape in shapes]
    call = infer(record, Call((*types, None), complete(record, {"causal": causal})))
    contract = Contract(record, call, (BF16, BF16, BF16, None))
    found = np.asarray(module.fetch("y"))
    assert contract.disagreement([*arrays, None], [found]) is None
    assert np.isinf(found.astype(np.float32)).any() == infinite


def test_weights_of_keys_are_as_exact_as_other_exponentials(tmp_path: Path) -> None:
    text = """
    extern "C" void weights(float *x, long count) { for (long i = 0; i < count; ++i) x[i] = oi_weight(x[i]); }
    """
    file, library = tmp_path / "weights.cu", tmp_path / "weights.so"
    file.write_text(f"{support_text(['oi_weight'])}{text}", "ascii")
    subprocess.run(["nvcc", "-shared", "-o", str(library), str(file)], check=True)
    bits = np.arange(0x80000000, 0xFF800000, 8191, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-104, 0, 1 << 18, dtype=np.float32)])
    found = x.copy()
    ctypes.CDLL(str(library)).weights(ctypes.c_void_p(found.ctypes.data), ctypes.c_long(found.size))
    wanted = np.exp(x.astype(np.float64))
    with np.errstate(under="ignore"):
        unit = np.spacing(wanted.astype(np.float32)).astype(np.float64)
    assert float((np.abs(found - wanted) / unit).max()) < 1
    odd = np.array([-np.inf, np.nan, 0], np.float32)
    ctypes.CDLL(str(library)).weights(ctypes.c_void_p(odd.ctypes.data), ctypes.c_long(3))
    np.testing.assert_array_equal(odd, np.array([0, np.nan, 1], np.float32))


def test_quotients_for_few_bits_are_near_whatever_their_operands(tmp_path: Path) -> None:
    text = """
    extern "C" void few(float *a, const float *b, long count)
    {
        for (long i = 0; i < count; ++i) a[i] = oi_few_f32(a[i], b[i]);
    }
    """
    file, library = tmp_path / "few.cu", tmp_path / "few.so"
    file.write_text(f"{support_text(['oi_few_f32'])}{text}", "ascii")
    subprocess.run(["nvcc", "-shared", "-o", str(library), str(file)], check=True)
    powers = np.ldexp(np.float32(1.3), np.arange(-148, 128)).astype(np.float32)
    special = np.array([0.0, np.inf, np.nan, 1.0, 3e38], np.float32)
    own = np.concatenate([powers, -powers[::7], special, -special])
    a, b = (np.ascontiguousarray(one.reshape(-1)) for one in np.meshgrid(own, own))
    found = a.copy()
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (found, b)]
    ctypes.CDLL(str(library)).few(*pointers, ctypes.c_long(found.size))
    with np.errstate(all="ignore"):
        wanted = (a.astype(np.float64) / b.astype(np.float64)).astype(np.float32)
        near = np.abs(found.astype(np.float64) - wanted) <= np.maximum(np.abs(wanted) * 2.0**-20, 2.0**-148)
    assert (near | (found == wanted) | (np.isnan(found) & np.isnan(wanted))).all()


@pytest.mark.parametrize("count", [8, 2048])
def test_small_and_large_inputs_reach_the_device_in_every_step(count: int) -> None:
    """A graph copies small ones itself, beside the places in tables that kernels look up."""
    text = f"""
    dynamic {{ x: f32[{count}]; }}
    persistent {{ n: i32 @init(0); seen(i): f32[{count}] @table @fixed(i=8); }}
    volatile {{ y: f32[{count}]; z: f32[{count}]; }}
    block entry {{
        op neg(x) >> y;
        cache.write y >> seen[n];
        cache.read seen[0] >> z;
        cache.increment n;
        return y, z;
    }}
    """
    module = Synthesizer("h200", name="net").synthesize(None, graph(text)).build()
    executor = Simulator(None).make_executor(graph(text))
    for step in range(8):
        for one in (module, executor):
            one.insert({"x": np.arange(count, dtype=np.float32) + step})
            one.run_step()
        assert np.array_equal(module.fetch("z"), executor.fetch("z"))
        assert np.array_equal(module.fetch("y"), executor.fetch("y"))


def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_CUDA_DEVICES", "0")
    text = "dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op neg(x) >> y; return y; }"
    with pytest.raises(OpenInferError, match="no device of this kind was found") as caught:
        Synthesizer("h200", name="net").synthesize(None, graph(text)).build()
    assert caught.value.code is Code.NO_GPU


def test_the_emulator_refuses_files_that_nvcc_refuses(tmp_path: Path) -> None:
    """Random graphs gave nvcc a script of the linker by its name alone: on a GPU, none of them was linked."""
    script = tmp_path / "aliases.ld"
    script.write_text("other = 0;\n", "ascii")
    line = ["nvcc", "-shared", "-o", str(tmp_path / "all.so")]
    refused, taken = (
        subprocess.run([*line, *how], capture_output=True, check=False) for how in ([script], ["-Xlinker", script])
    )
    assert b"Don't know what to do with" in refused.stderr
    assert (refused.returncode, taken.returncode) == (1, 0)


def test_long_rows_are_right_in_registers_and_loaded_again() -> None:
    """Rows of whole accesses, of single elements, with a part of an access at the end, and too long for registers."""
    lengths = (20000, 32767, 50000, 70000)
    given = " ".join(f"x{length}: f32[3, {length}];" for length in lengths)
    found = " ".join(f"y{length}: f32[3, {length}];" for length in lengths)
    calls = " ".join(f"op softmax(x{length}) >> y{length};" for length in lengths)
    names = ", ".join(f"y{length}" for length in lengths)
    text = f"dynamic {{ {given} }} volatile {{ {found} }} block entry {{ {calls} return {names}; }}"
    plan = Synthesizer("h200", name="rows").synthesize(None, graph(text))
    kernels = plan.project.files()["src/kernels.cu"]
    assert isinstance(kernels, str)
    assert kernels.count("__launch_bounds__(512)") == 2
    assert kernels.count("__launch_bounds__(1024)") == 2
    rng = np.random.default_rng(1)
    rows = {f"x{length}": rng.uniform(-9, 9, (3, length)).astype(np.float32) for length in lengths}
    for result, row in zip(plan.build()(rows), rows.values(), strict=True):
        powers = np.exp(row.astype(np.float64) - row.max(axis=1, keepdims=True))
        np.testing.assert_allclose(result, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
