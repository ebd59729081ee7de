"""What fills the four kinds of memory, who writes them, and how long their values live."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, step_error, text_codes

from openinfer import ModelLoader, Simulator, Tensor, bind, graph
from openinfer.errors import Code, ExecutionError, GraphError
from openinfer.oinf import UninitializedTensor

ADD = "dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { op add(x, x) >> y; return y; }"
COUNTER = "persistent { n: i32 @init(7); } block entry { cache.increment n; return n; }"
ENTRY = "block entry { return a; }"


# --- dynamic ----------------------------------------------------------------------------------------------------------


@sentence("dynamic.filled")
def test_the_caller_fills_a_dynamic_variable() -> None:
    assert after_step(ADD, x=[1.0, 2.0]).fetch("y").tolist() == [2.0, 4.0]


@sentence("dynamic.filled")
def test_an_entry_of_the_model_does_not_fill_a_dynamic_variable(make_model: MakeModel) -> None:
    ready = executor(ADD, make_model({"x": floats(1, 2)}))
    assert step_error(ready).code is Code.NOT_INSERTED


@sentence("dynamic.filled")
@pytest.mark.parametrize("name", ["y", "k", "p", "t"])
def test_only_dynamic_variables_are_inserted(name: str) -> None:
    ready = executor(
        "volatile { y: f32; } constant { k: f32 @init(1.0); } persistent { p: f32; }"
        "block entry { assign t: f32; return; }"
    )
    with pytest.raises(ExecutionError) as caught:
        ready.insert({name: 1.0})
    assert caught.value.code is Code.UNKNOWN_VARIABLE


@sentence("dynamic.writers")
def test_nodes_may_write_a_dynamic_variable_during_a_step() -> None:
    ready = after_step("dynamic { x: f32[2]; } block entry { op neg(x) >> x; return x; }", x=[1.0, 2.0])
    assert ready.fetch("x").tolist() == [-1.0, -2.0]


@sentence("dynamic.writers")
def test_the_caller_writes_a_dynamic_variable_only_between_steps() -> None:
    ready = executor(ADD)
    ready.insert(x=[1.0, 2.0])
    for _node in ready.iterate():
        with pytest.raises(ExecutionError) as caught:
            ready.insert(x=[5.0, 5.0])
        assert caught.value.code is Code.WRONG_MOMENT
    assert ready.fetch("y").tolist() == [2.0, 4.0]


@sentence("dynamic.consumed")
def test_a_step_consumes_its_inputs() -> None:
    ready = after_step(ADD, x=[1.0, 2.0])
    assert step_error(ready).code is Code.NOT_INSERTED
    assert step(ready, x=[3.0, 4.0]).fetch("y").tolist() == [6.0, 8.0]


@sentence("dynamic.missing")
def test_a_step_names_every_input_that_has_not_been_inserted() -> None:
    ready = executor("dynamic { a: f32; b: f32; c: f32; } block entry { return; }")
    error = step_error(ready, b=1.0)
    assert [problem.code for problem in error.diagnostics] == [Code.NOT_INSERTED] * 2
    assert "'a'" in error.diagnostics[0].message
    assert "'c'" in error.diagnostics[1].message


@sentence("dynamic.missing")
def test_a_step_that_lacked_an_input_can_be_run_once_it_is_there() -> None:
    ready = executor("dynamic { a: f32; b: f32; } volatile { y: f32; } block entry { op sub(a, b) >> y; return y; }")
    assert step_error(ready, a=5.0).code is Code.NOT_INSERTED
    assert step(ready, b=3.0).fetch("y") == 2.0


# --- volatile ---------------------------------------------------------------------------------------------------------


@sentence("volatile.model", "volatile.init", "volatile.zero")
@pytest.mark.parametrize(
    ("tensors", "attribute", "expected"),
    [
        ({"a": floats(1, 2)}, "", [1.0, 2.0]),
        ({"a": floats(1, 2)}, "@init(5.0)", [1.0, 2.0]),
        ({}, "@init(5.0)", [5.0, 5.0]),
        ({}, "", [0.0, 0.0]),
        ({"a": UninitializedTensor("f32", (2,))}, "@init(5.0)", [5.0, 5.0]),
        ({"a": UninitializedTensor("f32", (2,))}, "", [0.0, 0.0]),
    ],
)
def test_volatile_memory_comes_from_the_model_else_init_else_zero(
    make_model: MakeModel, tensors: dict[str, Any], attribute: str, expected: list[float]
) -> None:
    ready = executor(f"volatile {{ a: f32[2] {attribute}; }} {ENTRY}", make_model(tensors))
    ready.run_step()
    assert ready.fetch("a").tolist() == expected


@sentence("volatile.model")
def test_metadata_does_not_fill_a_volatile_variable_of_its_name(make_model: MakeModel) -> None:
    ready = executor(f"volatile {{ a: f32; }} {ENTRY}", make_model(metadata={"a": 3.0}))
    ready.run_step()
    assert ready.fetch("a") == 0.0


@sentence("volatile.reset")
def test_volatile_memory_is_reset_at_every_step(make_model: MakeModel) -> None:
    text = """
        volatile { a: f32[2]; b: f32 @init(5.0); c: f32; }
        block entry { op add(a, a) >> a; op add(b, b) >> b; op exp(c) >> c; return a, b, c; }
    """
    ready = executor(text, make_model({"a": floats(1, 2)}))
    for _ in range(3):
        ready.run_step()
        a, b, c = ready.fetch("a", "b", "c")
        assert (a.tolist(), b.item(), c.item()) == ([2.0, 4.0], 10.0, 1.0)


@sentence("volatile.reset")
def test_entries_of_a_prefix_table_are_reset_at_every_step(make_model: MakeModel) -> None:
    text = """
        volatile { W(l): f32[2] @pattern("W.{l}"); y: f32[2]; }
        block entry { op add(W[0], W[1]) >> W[1]; transfer W[1] >> y; return y; }
    """
    ready = executor(text, make_model({"W.0": floats(1, 1), "W.1": floats(5, 6)}))
    for _ in range(3):
        ready.run_step()
        assert ready.fetch("y").tolist() == [6.0, 7.0]


@sentence("volatile.copy-on-write")
def test_weights_are_never_copied_and_never_changed(make_model: MakeModel) -> None:
    text = """
        volatile { a: f32[2]; b: f32[2]; }
        block entry { assign t: f32[2]; op add(a, b) >> b; transfer a >> t; return b; }
    """
    model = make_model({"a": floats(1, 2), "b": floats(3, 4)})
    ready = executor(text, model)
    ready.run_step()
    assert ready.fetch("b").tolist() == [4.0, 6.0]
    assert model.load("b").to_numpy().tolist() == [3.0, 4.0]
    stored = model.load("a").to_numpy()
    assert np.shares_memory(ready.fetch_view("a"), stored)
    assert np.shares_memory(ready.fetch_view("t"), stored)
    assert not np.shares_memory(ready.fetch("a"), stored)


# --- constant ---------------------------------------------------------------------------------------------------------


@sentence("constant.filled")
@pytest.mark.parametrize(
    ("tensors", "metadata", "attribute", "expected"),
    [
        ({"a": np.float32(1.5)}, {}, "", 1.5),
        ({"a": np.float32(1.5)}, {}, "@init(9.0)", 1.5),
        ({}, {"a": 2.5}, "", 2.5),
        ({}, {"a": 2.5}, "@init(9.0)", 2.5),
        ({}, {}, "@init(9.0)", 9.0),
        ({"a": UninitializedTensor("f32", ())}, {}, "@init(9.0)", 9.0),
    ],
)
def test_constants_come_from_the_model_else_init(
    make_model: MakeModel, tensors: dict[str, Any], metadata: dict[str, Any], attribute: str, expected: float
) -> None:
    entries = {name: np.asarray(value) if isinstance(value, np.float32) else value for name, value in tensors.items()}
    model = make_model(entries, metadata=metadata)
    assert executor(f"constant {{ a: f32 {attribute}; }} {ENTRY}", model).fetch("a") == expected


@sentence("constant.filled")
@pytest.mark.parametrize("tensors", [{}, {"a": UninitializedTensor("f32", ())}])
def test_a_constant_that_nothing_fills_is_an_error(make_model: MakeModel, tensors: dict[str, Any]) -> None:
    assert binding_codes(f"constant {{ a: f32; }} {ENTRY}", make_model(tensors)) == [Code.UNKNOWN_LINK]


@sentence("constant.filled")
def test_a_constant_without_any_model_is_an_error() -> None:
    assert binding_codes(f"constant {{ a: f32; }} {ENTRY}") == [Code.UNKNOWN_LINK]


@sentence("constant.nobody-writes")
@pytest.mark.parametrize("node", ["op neg(k) >> k;", "transfer x >> k;", "cache.read p >> k;"])
def test_writing_a_constant_is_an_error_before_anything_runs(node: str) -> None:
    text = "dynamic { x: f32; } constant { k: f32 @init(1.0); } persistent { p: f32; }"
    assert text_codes(f"{text} block entry {{ {node} return; }}") == [Code.CONSTANT_WRITTEN]


@sentence("constant.nobody-writes")
def test_a_constant_cannot_be_edited_while_stepping() -> None:
    ready = executor("constant { k: f32 @init(1.0); } block entry { barrier; return; }")
    node = next(iter(ready.iterate()))
    with pytest.raises(ExecutionError) as caught:
        node.set("k", 2.0)
    assert caught.value.code is Code.NOT_WRITABLE


@sentence("constant.forever")
def test_a_constant_is_the_same_in_every_step_and_after_a_reset() -> None:
    text = "constant { k: f32 @init(3.0); } volatile { y: f32; } block entry { op add(k, k) >> y; return y; }"
    ready = executor(text)
    for _ in range(2):
        ready.run_step()
        assert ready.fetch("y") == 6.0
    ready.reset()
    assert ready.fetch("k") == 3.0


# --- persistent -------------------------------------------------------------------------------------------------------


@sentence("persistent.filled")
@pytest.mark.parametrize(
    ("tensors", "attribute", "expected"),
    [
        ({"a": floats(1, 2)}, "@init(5.0)", [5.0, 5.0]),
        ({"a": floats(1, 2)}, "", [1.0, 2.0]),
        ({}, "@init(5.0)", [5.0, 5.0]),
        ({}, "", [0.0, 0.0]),
    ],
)
def test_persistent_memory_comes_from_init_else_the_model_else_zero(
    make_model: MakeModel, tensors: dict[str, Any], attribute: str, expected: list[float]
) -> None:
    ready = executor(f"persistent {{ a: f32[2] {attribute}; }} {ENTRY}", make_model(tensors))
    ready.run_step()
    assert ready.fetch("a").tolist() == expected


@sentence("persistent.survives")
def test_persistent_memory_survives_steps() -> None:
    ready = executor(COUNTER)
    for expected in (8, 9, 10):
        ready.run_step()
        assert ready.fetch("n") == expected


@sentence("persistent.survives")
def test_executors_of_one_simulator_have_memory_of_their_own() -> None:
    simulator, built = Simulator(), graph(COUNTER)
    one, other = simulator.make_executor(built), simulator.make_executor(built)
    one.run_step()
    assert (one.fetch("n"), other.fetch("n")) == (8, 7)


@sentence("persistent.reset")
def test_a_reset_restores_everything_persistent(make_model: MakeModel) -> None:
    text = """
        dynamic { x: f32[2]; }
        persistent {
            n: i32 @init(7); a: f32[2]; z: f32[2];
            K(i): f32[2] @table @init(3.0);
            M(r, c): f32[1, 2] @auto_dim(r, c);
        }
        block entry {
            assign row: f32[1, 2];
            cache.increment n;
            op add(a, x) >> a;
            op add(z, x) >> z;
            cache.write x >> K[4];
            op reshape(x, shape=[1, 2]) >> row;
            cache.write row >> M[3..4, ];
            return;
        }
    """
    ready = executor(text, make_model({"a": floats(1, 2)}))
    before = [value.tolist() for value in ready.fetch("n", "a", "z", "K", "M")]
    step(step(ready, x=[1.0, 1.0]), x=[1.0, 1.0])
    assert [value.shape for value in ready.fetch("K", "M")] == [(5, 2), (4, 2)]
    ready.reset()
    assert [value.tolist() for value in ready.fetch("n", "a", "z", "K", "M")] == before
    assert step(ready, x=[1.0, 1.0]).fetch("n") == 8


@sentence("persistent.reset")
def test_a_reset_gives_up_a_suspended_step_and_its_inputs() -> None:
    text = "dynamic { x: i32; } persistent { n: i32; } block entry { cache.increment n; cache.increment n; return; }"
    ready = executor(text)
    ready.insert(x=1)
    next(iter(ready.iterate()))
    ready.reset()
    assert not ready.is_suspended
    assert ready.fetch("n") == 0
    assert step_error(ready).code is Code.NOT_INSERTED


# --- links ------------------------------------------------------------------------------------------------------------


@sentence("link.ref")
@pytest.mark.parametrize("kind", ["volatile", "constant", "persistent"])
def test_ref_links_to_another_name_of_the_model(make_model: MakeModel, kind: str) -> None:
    model = make_model({"layers.0.w": floats(1, 2), "a": floats(8, 8)})
    ready = executor(f'{kind} {{ a: f32[2] @ref("layers.0.w"); }} {ENTRY}', model)
    assert ready.fetch("a").tolist() == [1.0, 2.0]


@sentence("link.ref")
def test_a_ref_to_nothing_is_an_error_that_names_the_nearest_entry(make_model: MakeModel) -> None:
    built = graph(f'volatile {{ a: f32[2] @ref("wieght"); }} {ENTRY}')
    with pytest.raises(GraphError) as caught:
        bind(built, make_model({"weight": floats(1, 2)}))
    assert caught.value.code is Code.UNKNOWN_LINK
    assert "weight" in str(caught.value.diagnostics[0].help)


@sentence("link.type")
@pytest.mark.parametrize("kind", ["dynamic", "volatile", "constant", "persistent"])
@pytest.mark.parametrize("declared", ["f16[2]", "f32[3]", "f32[2, 1]", "f32"])
def test_a_model_entry_of_the_same_name_but_another_type_is_an_error(
    make_model: MakeModel, kind: str, declared: str
) -> None:
    model = make_model({"a": floats(1, 2)})
    assert binding_codes(f"{kind} {{ a: {declared}; }} {ENTRY}", model) == [Code.LINK_TYPE]


@sentence("link.type")
def test_both_types_are_shown_with_their_sizes(make_model: MakeModel) -> None:
    built = graph(f"volatile {{ a: f32[B, 4]; }} {ENTRY}")
    with pytest.raises(GraphError) as caught:
        bind(built, make_model({"a": floats(1, 2)}), {"B": 3})
    assert "f32[B=3, 4]" in caught.value.diagnostics[0].message
    assert "f32[2]" in caught.value.diagnostics[0].message


@sentence("link.lazy")
def test_entries_that_the_graph_does_not_mention_are_never_loaded(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = ModelLoader.load

    def noted(model: ModelLoader, name: str) -> Tensor:
        loaded.append(name)
        return load(model, name)

    monkeypatch.setattr(ModelLoader, "load", noted)
    model = make_model({f"w{number}": floats(number) for number in range(100)})
    text = "volatile { w7: f32[1]; w8: f32[1]; y: f32[1]; } block entry { op neg(w7) >> y; return y; }"
    ready = executor(text, model)
    assert loaded == []
    ready.run_step()
    ready.run_step()
    assert loaded == ["w7"]


@sentence("attribute.unknown")
def test_unknown_attributes_are_kept_and_are_errors_in_strict_mode() -> None:
    built = graph("volatile { a: f32 @layout(nhwc); } block entry { return a; }")
    assert "@layout" in graph(built.to_text()).to_text()
    Simulator().make_executor(built).run_step()
    with pytest.raises(GraphError) as caught:
        Simulator(strict=True).make_executor(built)
    assert caught.value.code is Code.UNKNOWN_ATTRIBUTE
