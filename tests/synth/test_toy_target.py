"""A new language is a dialect, a project and an entry in the registry: the rest of the compiler does not know it."""

from pathlib import Path

import pytest
from tests.synth import toy_target
from tests.synth.example_models import made_up

from openinfer import GraphError, Synthesizer, graph, load_graph
from openinfer.synth.devices.description import DeviceSpec
from openinfer.synth.plan import Plan
from openinfer.synth.targets.target import TARGETS

EXAMPLES = Path(__file__).parents[2] / "examples" / "graphs"
TOY = DeviceSpec.GPU().api("toy").arch()
SMALL = """
dynamic { x: f32[4, 8]; w: f32[8, 3]; n: u8[4]; }
volatile { y: f32[4, 3]; a: u8[4]; }
block entry { op matmul(x, w) >> y; op relu(y) >> y; op add(n, n) >> a; return y, a; }
"""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "toy", toy_target.toy_target)


@pytest.mark.usefixtures("registered")
def test_a_registered_target_prints_a_graph_in_its_own_words() -> None:
    text = _printed(Synthesizer(TOY, name="small").synthesize(None, graph(SMALL)))
    assert "kernel small_k0_matmul_relu(a: f32, b: f32, y: f32)" in text
    assert "F32 acc = 0;" in text
    assert "y[i1] = U8((U32(v2) + U32(v3)));" in text
    for word in ("int64_t", "float", "__builtin", "restrict", "#pragma", "(void)"):
        assert word not in text


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.oig")), ids=lambda path: path.stem)
def test_every_kernel_of_the_examples_is_printed(path: Path, tmp_path: Path) -> None:
    example = load_graph(path)
    plan = Synthesizer(TOY).synthesize(made_up(example, tmp_path / "made_up.oinf"), example)
    text = _printed(plan)
    assert [used.name for used in plan.project.kernels.used.values() if f"kernel {used.name}(" not in text] == []


def test_an_api_that_is_not_registered_is_refused() -> None:
    with pytest.raises(GraphError, match="toy"):
        Synthesizer(TOY)


def _printed(plan: Plan) -> str:
    files = plan.files()
    assert set(files) == {"kernels.toy", "plan.json"}
    text = files["kernels.toy"]
    assert isinstance(text, str)
    return text


def test_a_new_language_takes_less_than_sixty_lines() -> None:
    assert len(Path(toy_target.__file__).read_text("ascii").splitlines()) < 60
