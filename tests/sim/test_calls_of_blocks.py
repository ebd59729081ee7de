"""Blocks with parameters in the simulator: stepping into them, traces, breakpoints, errors and rollback."""

import numpy as np
import pytest

from openinfer import Executor, Graph, Simulator, graph
from openinfer.errors import ExecutionError
from openinfer.sim.breakpoints import on_write
from openinfer.sim.debugger import Debugger
from openinfer.sim.trace import chrome_trace

TEXT = """\
dynamic { x: f32[2]; n: i32; }
persistent { p: f32[2]; K(i): f32[2] @table @fixed(i=4); }
volatile { y: f32[2]; }
block inner(a: f32[N], j: index) {
    t = op add(a, p);
    cache.write t >> K[j];
    return t;
}
block layer(h: f32[2], k: index) {
    loop turns (i in 0..2) {
        call inner(h, k+i) >> h;
    }
    return h;
}
block entry {
    op add(p, x) >> p;
    call layer(x, n) >> y;
    return y;
}
"""


def executor(level: str = "full") -> Executor:
    return Simulator().with_trace(level).make_executor(graph(TEXT, "g.oig"))


def test_events_say_when_a_block_begins_and_when_its_results_are_there() -> None:
    ran = executor()
    ran.insert(x=[1.0, 2.0], n=1)
    ran.run_step()
    kinds = [(event.kind, event.block_name) for event in ran.events]
    assert kinds[1] == ("Call", "entry")
    assert kinds[-2:] == [("CallReturn", "entry"), ("Return", "entry")]
    begins = [event for event in ran.events if event.kind == "Call" and event.block_name == "layer"]
    assert [(one.params, one.output, one.indices) for one in begins] == [
        (["layer.h", "k+i"], [], {"k": 1, "i": 0}),
        (["layer.h", "k+i"], [], {"k": 1, "i": 1}),
    ]
    returned = [event for event in ran.events if event.kind == "CallReturn"]
    assert returned[-1].output == ["y"]
    assert returned[-1].details["outputs"][0]["sample"] == [3.0, 6.0]


def test_pictures_of_traces_have_blocks_inside_those_that_call_them() -> None:
    ran = executor()
    ran.insert(x=[1.0, 2.0], n=0)
    ran.run_step()
    names = [row["name"] for row in chrome_trace(ran.events)["traceEvents"] if row.get("cat") == "region"]
    assert names[:3] == ["block entry", "block layer", "block inner"]


def test_the_debugger_steps_into_a_call_and_over_it() -> None:
    debugger = Debugger(executor(), lambda _step: {"x": [1.0, 2.0], "n": 1})
    debugger.start()
    debugger.execute("next")
    debugger.execute("step")
    assert any("block layer, k=1" in line.text for line in debugger.execute("where"))
    assert debugger.execute("print h")[0].text.startswith("layer.h: f32[2]")
    assert debugger.execute("print k")[0].text == "k = 1, a loop index"
    debugger.execute("break line 5")
    assert any("breakpoint 1" in line.text for line in debugger.execute("continue"))
    assert debugger.execute("print inner.a")[0].text.startswith("inner.a: f32[2]")
    debugger.execute("delete")
    debugger.execute("restart")
    debugger.execute("next")
    assert any("y: f32[2] [3, 6]" in line.text for line in debugger.execute("next 2"))


def test_a_breakpoint_on_a_variable_stops_where_a_call_writes_it() -> None:
    ran = executor()
    ran.insert(x=[1.0, 2.0], n=0)
    ran.begin_step()
    found = ran.run_until(on_write("y"))
    assert found is not None
    assert found.event.kind == "CallReturn"
    assert found.results[0][0] == "y"


def test_an_error_inside_a_block_is_at_its_node_and_the_step_is_rolled_back() -> None:
    ran = executor("off")
    ran.insert(x=[1.0, 2.0], n=3)
    with pytest.raises(ExecutionError) as caught:
        ran.run_step()
    assert caught.value.diagnostics[0].code == "E507"
    assert "g.oig:6" in str(caught.value)
    assert any("of block 'inner', at j=4" in note for note in caught.value.diagnostics[0].notes)
    assert np.array_equal(ran.fetch("p"), [0, 0])
    assert ran.fetch("K").shape == (0, 2)


def test_documents_with_calls_run_as_their_text_does() -> None:
    built = Graph.from_json(graph(TEXT).to_json())
    ran = Simulator().make_executor(built)
    ran.insert(x=[1.0, 2.0], n=1)
    ran.run_step()
    assert np.array_equal(ran.fetch("y"), [3, 6])
    assert Debugger(Simulator().make_executor(built), lambda _step: {"x": [1.0, 2.0], "n": 1}).start()
