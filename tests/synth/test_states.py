"""Saved states from anywhere: accepted whole, or refused with a code and nothing changed."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.forged_states import forged_state
from tests.synth.flags import USUAL

from openinfer import Code, ExecutionError, Simulator, Synthesizer, Tensor, graph
from openinfer.dtypes import DTYPES

TEXT = """
dynamic { x: f32[2]; }
persistent {
    step: i32; flag: bool[3]; t: t2[5];
    K(t): f32[2] @table; B(t): bool @table @fixed(t=4); N(l, r): f32[1, 2] @auto_dim(r) @table;
}
block entry { cache.write x >> K[step]; cache.write flag >> B[0..3]; cache.increment step; return; }
"""


def pair() -> tuple[Any, Any]:
    g = graph(TEXT)
    both = Simulator().make_executor(g), Synthesizer(name="kept").synthesize(None, g).build(flags=USUAL)
    for runs in both:
        for value in (1.0, 2.0):
            runs.insert(x=[value, value])
            runs.run_step()
    return both


def refusal(runs: Any, state: Any) -> Code:
    with pytest.raises(ExecutionError) as caught:
        runs.load_state(state)
    return caught.value.code


def test_a_flipped_bit_anywhere_is_refused_and_changes_nothing() -> None:
    executor, module = pair()
    state = executor.save_state()
    assert module.save_state() == state
    for runs, every in ((executor, 7), (module, 31)):
        for at in range(0, len(state), every):
            damaged = bytearray(state)
            damaged[at] ^= 1 << at % 8
            refusal(runs, damaged)
        assert runs.save_state() == state
        for length in range(0, len(state), 301):
            refusal(runs, state[:length])
        refusal(runs, state + b"\0")
        assert runs.save_state() == state


def test_a_state_without_a_checksum_is_refused(tmp_path: Path) -> None:
    executor, module = pair()
    state = executor.save_state()
    renamed = state.replace(b"openinfer.state.sha256", b"openinfer.state.sha257")
    assert refusal(executor, renamed) is refusal(module, renamed) is Code.BAD_STATE


def tensors() -> dict[str, Any]:
    return {
        "step": np.int32(7),
        "flag": np.array([True, False, True]),
        "t": Tensor.from_numpy(np.array([-1, 0, 1, 0, -1], np.int8), DTYPES["t2"]),
        "K.table": np.ones((3, 2), np.float32),
        "B.table": np.array([True, False]),
    }


@pytest.mark.parametrize("key", ["99999999", "999999999999", "999999999999999"])
def test_keys_claim_no_more_memory_than_the_file_can_back(key: str, tmp_path: Path) -> None:
    for runs in pair():
        state = runs.save_state()
        forged = forged_state(state, tensors() | {f"N.table.{key}": np.ones((1, 2), np.float32)}, tmp_path)
        runs.load_state(forged_state(state, tensors() | {"N.table.3": np.ones((1, 2), np.float32)}, tmp_path))
        assert runs.fetch("N").shape == (4, 1, 2)
        runs.load_state(state)
        tracemalloc.start()
        assert refusal(runs, forged) is Code.BAD_STATE
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20_000_000
        assert runs.save_state() == state


def test_a_state_for_which_there_is_no_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, module = pair()
    state = module.save_state()
    more = forged_state(state, tensors() | {"K.table": np.ones((500, 2), np.float32)}, tmp_path)
    monkeypatch.setattr(module._instance, "function", lambda _name: lambda *_arguments: 1)
    assert refusal(module, more) is Code.OUT_OF_MEMORY
    monkeypatch.undo()
    assert module.save_state() == state
    module.load_state(more)
    assert module.fetch("K").shape == (500, 2)


def test_a_load_that_is_interrupted_leaves_no_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    _, module = pair()
    state = module.save_state()

    def interrupted(_contents: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module._persistent, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module.load_state(state)
    monkeypatch.undo()
    module.insert(x=[3.0, 3.0])
    for verb in (module.run_step, module.save_state):
        with pytest.raises(ExecutionError) as caught:
            verb()
        assert caught.value.code is Code.WRONG_MOMENT
    module.load_state(state)
    assert module.save_state() == state
