"""Blocks and nodes: assign, op, transfer, branch, return, barrier, dep, scope and constraints."""

import json

import numpy as np
import pytest
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, step, text_codes

from openinfer import Graph, bind, graph
from openinfer.check.effects import dependencies
from openinfer.errors import Code, GraphError

INTS = "dynamic { x: i32; } volatile { y: i32; }"


# --- blocks -----------------------------------------------------------------------------------------------------------


@sentence("block.nothing-runs")
def test_defining_and_binding_a_graph_runs_nothing() -> None:
    ready = executor("persistent { n: i32; } block entry { cache.increment n; return n; }")
    assert ready.fetch("n") == 0
    assert ready.events == []


@sentence("block.program-order")
def test_nodes_run_in_program_order() -> None:
    text = f"{INTS} block entry {{ op add(x, x) >> y; op mul(y, y) >> y; op sub(y, x) >> y; return y; }}"
    ready = after_step(text, x=3)
    assert ready.fetch("y") == 33
    assert [event.op_name for event in ready.events] == ["add", "mul", "sub", ""]
    assert [event.node_index for event in ready.events] == [0, 1, 2, 3]


@sentence("block.entry")
def test_execution_starts_at_entry_wherever_it_stands() -> None:
    text = f"{INTS} block other {{ op neg(x) >> y; return; }} block entry {{ op add(x, x) >> y; return; }}"
    ready = after_step(text, x=3)
    assert ready.fetch("y") == 6
    assert {event.block_name for event in ready.events} == {"entry"}
    assert text_codes(f"{INTS} block main {{ return; }}") == [Code.NO_ENTRY]


@sentence("block.terminator")
@pytest.mark.parametrize(
    "blocks",
    [
        "block entry { op neg(x) >> y; }",
        "block entry { }",
        "block entry { yield x; } block c { await x; yield x; }",
        "block entry { branch b; return; } block b { op neg(x) >> y; }",
        "block entry { yield x; return; } block c { await x; }",
    ],
)
def test_a_block_without_a_terminator_is_an_error(blocks: str) -> None:
    assert Code.NO_TERMINATOR in text_codes(f"{INTS} {blocks}")


@sentence("block.terminator")
@pytest.mark.parametrize("end", ["return;", "yield x;"])
def test_a_consumer_ends_with_return_or_yield(end: str) -> None:
    text = f"{INTS} block entry {{ yield x; return; }} block c {{ await x; op neg(x) >> y; {end} }}"
    assert after_step(text, x=3).fetch("y") == -3


@sentence("block.assign-in-entry")
def test_assign_is_allowed_only_in_entry_loops_and_scopes_included() -> None:
    nested = f"""{INTS} block entry {{
        loop l (i in 0..1) {{ assign t: i32; scope "s" {{ assign u: i32; op add(t, x) >> u; }} }}
        op neg(u) >> y; return y; }}"""
    assert after_step(nested, x=3).fetch("y") == -3
    elsewhere = f"{INTS} block entry {{ branch b; return; }} block b {{ assign t: i32; return; }}"
    assert text_codes(elsewhere) == [Code.ASSIGN_OUTSIDE_ENTRY]


@sentence("block.global-variables")
def test_all_variables_are_global() -> None:
    text = f"""{INTS} block entry {{ assign t: i32; op add(x, x) >> t; branch b; op add(t, x) >> y; return y; }}
        block b {{ op neg(t) >> t; branch c; return; }}
        block c {{ op mul(t, t) >> t; return; }}"""
    assert after_step(text, x=3).fetch("y") == 39


# --- assign -----------------------------------------------------------------------------------------------------------


@sentence("assign.zero")
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8", "i4", "i32", "u1", "u64", "t2", "bool"])
def test_an_assigned_temporary_is_zero(dtype: str) -> None:
    ready = after_step(f"block entry {{ assign t: {dtype}[3]; return t; }}")
    assert ready.fetch("t").astype(float).tolist() == [0.0] * 3


@sentence("assign.zero")
def test_an_assigned_temporary_is_zero_each_time_the_node_runs() -> None:
    text = """persistent { n: i32; } block entry {
        loop l (i in 0..3) { assign t: i32; op add(n, t) >> n; cache.increment 5 n; op add(t, n) >> t; }
        return t; }"""
    ready = executor(text)
    for expected in (15, 30):
        ready.run_step()
        assert ready.fetch("t") == expected


@sentence("assign.zero")
def test_a_temporary_of_dynamic_size_is_zero_each_time_the_node_runs() -> None:
    text = """sizes { T <= 4; } dynamic { x: f32[T]; } volatile { y: f32[T]; } block entry {
        loop l (i in 0..2) { assign t: f32[T]; transfer t >> y; op add(t, x) >> t; }
        return y, t; }"""
    ready = after_step(text, x=[1.0, 2.0])
    assert ready.fetch("y").tolist() == [0.0, 0.0]
    assert ready.fetch("t").tolist() == [1.0, 2.0]


@sentence("assign.zero")
def test_a_temporary_does_not_survive_a_step() -> None:
    text = "dynamic { x: i32; } block entry { assign t: i32; op add(t, x) >> t; return t; }"
    ready = after_step(text, x=3)
    assert step(ready, x=4).fetch("t") == 4


@sentence("assign.first")
def test_a_temporary_used_before_it_is_assigned_is_an_error() -> None:
    early = f"{INTS} block entry {{ op neg(t) >> y; assign t: i32; return; }}"
    assert binding_codes(early) == [Code.USED_BEFORE_ASSIGN]
    through = f"{INTS} block entry {{ branch b; assign t: i32; return; }} block b {{ op neg(t) >> y; return; }}"
    assert binding_codes(through) == [Code.USED_BEFORE_ASSIGN]


# --- ops --------------------------------------------------------------------------------------------------------------


@sentence("op.inputs")
@pytest.mark.parametrize("call", ["sub(x, z)", "sub(x, b=z)", "sub(a=x, b=z)", "sub(b=z, a=x)"])
def test_inputs_are_given_by_position_or_name(call: str) -> None:
    text = f"dynamic {{ x: i32; z: i32; }} volatile {{ y: i32; }} block entry {{ op {call} >> y; return y; }}"
    assert after_step(text, x=9, z=2).fetch("y") == 7


@sentence("op.parameters")
def test_parameters_take_numbers_bools_strings_dtypes_and_lists() -> None:
    text = """dynamic { x: f32[2, 3]; } volatile { a: f32[2, 3]; b: f32[2]; c: f32[2, 3]; d: i8[2, 3]; e: f32[3, 2]; }
        block entry {
            op relu(x, negative_slope=-1.0) >> a;
            op sum_axis(x, axis=1, keepdims=false) >> b;
            op gelu(x, approximate="tanh") >> c;
            op cast(x, to=i8) >> d;
            op transpose(x, perm=[1, 0]) >> e;
            return; }"""
    ready = after_step(text, x=[[-1.0, 2.0, -3.0], [4.0, 5.0, -6.0]])
    assert ready.fetch("a").tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert ready.fetch("b").tolist() == [-2.0, 3.0]
    assert ready.fetch("d").tolist() == [[-1, 2, -3], [4, 5, -6]]
    assert ready.fetch("e").tolist() == [[-1.0, 4.0], [2.0, 5.0], [-3.0, -6.0]]


@sentence("op.parameters")
def test_a_parameter_may_name_a_constant_or_use_sizes() -> None:
    text = """dynamic { x: f32[B, D]; } constant { slope: f32 @init(0.5); axis: i32 @init(1); }
        volatile { a: f32[B, D]; b: f32[B]; c: f32[D/2, 2*B]; }
        block entry {
            op relu(x, negative_slope=slope) >> a;
            op sum_axis(x, axis=axis) >> b;
            op reshape(x, shape=[D/2, 2*B]) >> c;
            return; }"""
    ready = after_step(text, sizes={"B": 1, "D": 4}, x=[[-2.0, 1.0, -4.0, 3.0]])
    assert ready.fetch("a").tolist() == [[-1.0, 1.0, -2.0, 3.0]]
    assert ready.fetch("b").tolist() == [-2.0]
    assert ready.fetch("c").tolist() == [[-2.0, 1.0], [-4.0, 3.0]]


@sentence("op.parameters")
def test_a_constant_as_a_parameter_has_the_value_of_its_own_dtype() -> None:
    text = """dynamic { x: f32; } constant { slope: f16 @init(0.1); } volatile { y: f32; }
        block entry { op relu(x, negative_slope=slope) >> y; return y; }"""
    assert after_step(text, x=-1.0).fetch("y") == -np.float32(np.float16(0.1))


@sentence("op.outputs")
def test_an_op_may_have_several_outputs() -> None:
    text = """dynamic { x: f32[4]; } volatile { v: f32[2]; i: i64[2]; }
        block entry { op topk(x, k=2) >> v, i; return v, i; }"""
    ready = after_step(text, x=[3.0, 9.0, 1.0, 7.0])
    assert [part.tolist() for part in ready.fetch("v", "i")] == [[9.0, 7.0], [1, 3]]


@sentence("op.result-type")
@pytest.mark.parametrize("declared", ["f16[2]", "f32[3]", "f32[2, 1]", "f32"])
def test_an_output_has_exactly_the_inferred_type(declared: str) -> None:
    text = f"dynamic {{ x: f32[2]; }} volatile {{ y: {declared}; }} block entry {{ op neg(x) >> y; return; }}"
    assert binding_codes(text) == [Code.RESULT_TYPE]


# --- transfer ---------------------------------------------------------------------------------------------------------


@sentence("transfer.copy")
def test_a_transfer_is_a_copy_as_far_as_anyone_can_observe() -> None:
    text = """dynamic { x: i32[2]; } volatile { a: i32[2]; b: i32[2]; } persistent { p: i32[2]; }
        block entry {
            transfer x >> a; transfer a >> p; op neg(a) >> a; transfer p >> b; op add(p, p) >> p; return; }"""
    ready = after_step(text, x=[1, 2])
    assert ready.fetch("x").tolist() == [1, 2]
    assert ready.fetch("a").tolist() == [-1, -2]
    assert ready.fetch("b").tolist() == [1, 2]
    assert ready.fetch("p").tolist() == [2, 4]


@sentence("transfer.copy")
def test_a_part_written_after_a_transfer_does_not_change_the_other_variable() -> None:
    text = """dynamic { x: i32; } volatile { a: i32[3]; } persistent { p: i32[3]; }
        block entry { transfer p >> a; cache.write x >> p[1]; return; }"""
    ready = after_step(text, x=5)
    assert ready.fetch("a").tolist() == [0, 0, 0]
    assert ready.fetch("p").tolist() == [0, 5, 0]


# --- branch -----------------------------------------------------------------------------------------------------------

BRANCH = """dynamic { x: i32; c: bool; } volatile { y: i32; }
    block entry { branch c yes no; op add(y, x) >> y; return y; }
    block yes { op add(x, x) >> y; return; }
    block no { op neg(x) >> y; return; }"""


@sentence("branch.condition")
@pytest.mark.parametrize(("condition", "block", "expected"), [(True, "yes", 9), (False, "no", 0)])
def test_a_branch_runs_one_of_two_blocks_and_goes_on(condition: bool, block: str, expected: int) -> None:
    ready = after_step(BRANCH, x=3, c=condition)
    assert ready.fetch("y") == expected
    assert [event.block_name for event in ready.events] == ["entry", block, block, "entry", "entry"]


@sentence("branch.plain")
def test_a_branch_without_condition_runs_its_block_and_goes_on() -> None:
    text = f"""{INTS} block entry {{ branch b; branch b; op add(y, x) >> y; return; }}
        block b {{ op add(y, x) >> y; return; }}"""
    assert after_step(text, x=5).fetch("y") == 15


@sentence("branch.condition")
def test_a_block_that_is_not_taken_does_nothing() -> None:
    text = """dynamic { c: bool; } persistent { n: i32; K(i): i32 @table; } block entry { branch c yes no; return; }
        block yes { cache.increment n; cache.write n >> K[n]; return; } block no { return; }"""
    ready = after_step(text, c=False)
    assert ready.fetch("n") == 0
    assert ready.fetch("K").shape == (0,)
    assert step(ready, c=True).fetch("K").tolist() == [0, 1]


@sentence("branch.condition")
@pytest.mark.parametrize("declared", ["i32", "bool[1]", "f32"])
def test_a_condition_is_a_scalar_bool(declared: str) -> None:
    text = f"dynamic {{ c: {declared}; }} block entry {{ branch c b b; return; }} block b {{ return; }}"
    assert binding_codes(text) == [Code.WRONG_DTYPE]


@sentence("branch.condition")
def test_a_branch_in_a_loop_looks_at_its_condition_every_time() -> None:
    text = """persistent { n: i32; } constant { two: i32 @init(2); } volatile { low: i32; high: i32; }
        block entry { assign c: bool;
            loop l (i in 0..5) { op lt(n, two) >> c; branch c below above; cache.increment n; }
            return; }
        block below { op add(low, n) >> low; return; }
        block above { op add(high, n) >> high; return; }"""
    ready = executor(text)
    ready.run_step()
    assert (ready.fetch("low"), ready.fetch("high")) == (1, 9)


@sentence("branch.cycle")
def test_blocks_may_not_call_each_other_in_a_cycle() -> None:
    text = """block entry { branch a; return; } block a { branch b; return; } block b { branch a; return; }"""
    assert text_codes(text) == [Code.BRANCH_CYCLE]


@sentence("branch.indices")
def test_indices_of_loops_are_not_visible_in_other_blocks() -> None:
    text = """persistent { K(i): i32 @table; } volatile { y: i32; }
        block entry { loop l (i in 0..3) { branch b; } return; } block b { cache.read K[i] >> y; return; }"""
    assert binding_codes(text) == [Code.UNKNOWN_SIZE]


@sentence("branch.indices")
def test_a_name_in_another_block_is_never_the_index_of_the_loop_that_called_it() -> None:
    text = """dynamic { v: i32; } persistent { K(t): i32 @table; }
        block entry { loop l (i in 0..3) { branch b; } return; } block b { cache.write v >> K[i]; return; }"""
    ready = after_step(text, sizes={"i": 7}, v=5)
    assert ready.fetch("K").tolist() == [0, 0, 0, 0, 0, 0, 0, 5]


@sentence("branch.indices")
def test_a_loop_goes_on_with_its_index_after_a_branch_with_a_loop_of_its_own() -> None:
    text = """persistent { n: i32; K(a, b): i32 @table; } block entry {
            loop outer (i in 0..2) { loop inner (j in 0..3) { branch b; cache.write n >> K[i, j]; } } return; }
        block b { loop other (j in 0..5) { cache.increment n; } return; }"""
    ready = executor(text)
    ready.run_step()
    assert ready.fetch("K").tolist() == [[5, 10, 15], [20, 25, 30]]


# --- return, barrier, dep, scope, with --------------------------------------------------------------------------------


@sentence("return.ends")
def test_return_ends_a_block_and_names_the_outputs() -> None:
    text = f"{INTS} block entry {{ branch b; op add(y, x) >> y; return y, x; }} block b {{ op neg(x) >> y; return; }}"
    ready = after_step(text, x=3)
    assert ready.fetch("y") == 0
    assert ready.trace()[-1] | {"node_uuid": "", "micros": []} == {
        "block_name": "entry",
        "node_index": 2,
        "node_uuid": "",
        "kind": "Return",
        "op_name": "",
        "params": ["y", "x"],
        "output": [],
        "micros": [],
    }


@sentence("barrier.order")
def test_nothing_is_reordered_across_a_barrier() -> None:
    text = """dynamic { x: i32; z: i32; } volatile { y: i32; }
        block entry { op neg(x) >> y; barrier; op add(z, z) >> z; return; }"""
    kinds = [event.kind for event in after_step(text, x=1, z=2).events]
    assert kinds == ["OpExecute", "Barrier", "OpExecute", "Return"]
    bound = bind(graph(text))
    found = [(one.before, one.after) for one in dependencies(bound, bound.graph.blocks["entry"])]
    assert (0, 1) in found
    assert (1, 2) in found


@sentence("dep.order")
def test_dep_keeps_the_nearest_earlier_node_before_the_nearest_later_one() -> None:
    text = """dynamic { x: f32; z: f32; } volatile { y: f32; w: f32; } persistent { p: f32; q: f32; }
        block entry {
            op neg(x) >> y; op neg(x) >> w; dep after(neg) before(cache.write);
            cache.write z >> p; cache.write z >> q; return; }"""
    bound = bind(graph(text))
    explicit = [one for one in dependencies(bound, bound.graph.blocks["entry"]) if one.reason == "dep"]
    assert [(one.before, one.after) for one in explicit] == [(1, 3)]
    ready = after_step(text, x=1.0, z=2.0)
    assert (ready.fetch("y"), ready.fetch("p"), ready.fetch("q")) == (-1.0, 2.0, 2.0)


@sentence("dep.unmatched")
@pytest.mark.parametrize("dep", ["after(exp) before(neg)", "after(neg) before(neg)", "after(neg) before(cache.read)"])
def test_names_that_a_dep_does_not_find_are_errors(dep: str) -> None:
    assert set(text_codes(f"{INTS} block entry {{ op neg(x) >> y; dep {dep}; op exp(x) >> y; return; }}")) == {
        Code.UNMATCHED_DEP
    }


@sentence("scope.traces")
def test_scopes_have_no_effect_on_values_and_stand_in_traces() -> None:
    text = f"""{INTS} block entry {{
        scope "a" {{ op neg(x) >> y; scope "b" {{ op add(y, x) >> y; }} }} op sub(y, x) >> y; return y; }}"""
    ready = after_step(text, x=3)
    assert ready.fetch("y") == -3
    found = {fact["op_name"]: fact.get("scope") for fact in ready.trace() if fact["op_name"]}
    assert found == {"neg": ["a"], "add": ["a", "b"], "sub": None}


@sentence("with.kept")
def test_constraints_are_kept_and_change_no_result() -> None:
    text = f"""{INTS} block entry {{
        op neg(x) >> y with {{ fuse = true, placement = "gpu", group = "g", no_reorder = true, own = [1, 2] }};
        branch b; return y; }}
        block b with {{ placement = "cpu" }} {{ op add(y, y) >> y; return; }}"""
    built = graph(text)
    again = Graph.from_json(json.dumps(built.to_json()))
    assert set(again.blocks["entry"].nodes[0].constraints) == {"fuse", "placement", "group", "no_reorder", "own"}
    assert set(again.blocks["b"].constraints) == {"placement"}
    assert after_step(again.to_text(), x=3).fetch("y") == -6


@sentence("graph.stages")
def test_structural_errors_come_with_the_text_and_others_with_the_model() -> None:
    wrong = "block entry { op neg(nothing) >> nothing; }"
    assert set(text_codes(wrong)) == {Code.UNKNOWN_VARIABLE, Code.NO_TERMINATOR}
    assert text_codes("volatile { a: f32[Q]; } block entry { op nonsense(a) >> a; return a; }") == [Code.UNKNOWN_OP]
    built = graph("volatile { a: f32[Q]; } block entry { op relu(a, beta=1) >> a; return a; }")
    with pytest.raises(GraphError) as caught:
        bind(built)
    assert {problem.code for problem in caught.value.diagnostics} == {Code.UNKNOWN_SIZE, Code.UNKNOWN_PARAMETER}
