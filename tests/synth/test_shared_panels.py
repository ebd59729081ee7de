"""A table of embeddings that is also the last matrix is stored once: the lookup reads the panels of the product."""

from pathlib import Path

import numpy as np
import pytest
from tests.importing.gguf_files import Reference, Tiny
from tests.synth.flags import USUAL

from openinfer import ModelLoader, Plan, Simulator, Synthesizer, graph, load_graph
from openinfer.importing import import_gguf
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file

TOKENS = [3, 149, 0, 77]


def stored(plan: Plan, name: str) -> list[tuple[int, ...] | None]:
    """The orders in which the data of a tensor is stored: None for rows."""
    pieces = [one for one in plan.placed.weights.pieces.values() if one.name == name and one.part == "data"]
    return [None if one.packing is None else one.packing.shape for one in pieces]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q6_K"])
def test_a_tied_table_in_groups_is_stored_once(tmp_path: Path, kind: str) -> None:
    tiny = Tiny(layers=1, width=256, heads=2, groups=1, hidden=32, vocabulary=150, formats={"token_embd.": kind})
    real = tiny.write(tmp_path / "tiny.gguf")
    imported = import_gguf(tmp_path / "tiny.gguf", tmp_path, name="m", sizes={"context": 8, "prompt": 4})
    wanted = Reference(tiny, real).logits(TOKENS)
    with ModelLoader.open(imported.model) as model:
        for path in (imported.graph, str(imported.prefill)):
            plan = Synthesizer("x86-avx2").synthesize(model, load_graph(path))
            assert len(stored(plan, "token_embd.weight")) == 1
        plan = Synthesizer().synthesize(model, load_graph(str(imported.prefill)))
        found = plan.build(flags=USUAL)(tokens=np.array(TOKENS))
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


TIED = """
dynamic { token: i64; }
volatile { logits: f32[V]; }
constant { table: i8[V, D] @ref("table"); }
block entry {
    h = op embedding(table, token);
    op linear(h, table) >> logits;
    return logits;
}
"""


def test_a_table_without_groups_keeps_its_rows(tmp_path: Path) -> None:
    """What was generated before there were groups stays as it was."""
    rng = np.random.default_rng(0)
    scale = QuantScale.per_channel(0, rng.random(64).astype(np.float32))
    table = TensorSpec(rng.integers(-127, 128, (64, 64)).astype(np.int8), quant=QuantParams("symmetric", scale))
    save_file(tmp_path / "m.oinf", {"table": table}, sizevars={"V": 64, "D": 64})
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        tied = graph(TIED)
        plan = Synthesizer("x86-avx2").synthesize(model, tied)
        assert None in stored(plan, "table")
        expected = Simulator(model).make_executor(tied)(token=5)
        found = Synthesizer().synthesize(model, tied).build(flags=USUAL)(token=5)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
