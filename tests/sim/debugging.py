"""A graph to debug, and a debugger to talk to."""

import re
from collections.abc import Callable
from typing import Any

from openinfer import Executor, Simulator, graph
from openinfer.sim.debugger import Debugger

SOURCE = """\
sizes { L := 3; }
dynamic { x: f32[2]; }
volatile { h: f32[2]; big: f32[3, 4] @init(2); c: bool @init(true); }
constant { two: f32[2] @init(2); }
persistent { step: i32; K(l, t): f32[2] @table; }
block entry {
    transfer x >> h;
    loop layers (l in 0..L) {
        scope "double" {
            op add(h, h) >> h;
        }
        cache.write h >> K[l, step];
    }
    branch c good bad;
    cache.increment step;
    return h;
}
block good {
    op neg(h) >> h;
    return;
}
block bad { return; }
"""


def executor(text: str = SOURCE, **options: Any) -> Executor:
    return Simulator(**options).make_executor(graph(text, "g.oig"))


def inputs(step: int) -> dict[str, Any]:
    return {"x": [1.0 + step, 2.0]}


def debugger(text: str = SOURCE, give: Callable[[int], dict[str, Any]] = inputs, **options: Any) -> Debugger:
    found = Debugger(executor(text), give, **options)
    found.start()
    return found


def say(session: Debugger, *commands: str) -> str:
    """The answer to the last of some commands."""
    answer = ""
    for command in commands:
        answer = "\n".join(line.text for line in session.execute(command))
    return answer


def node(answer: str) -> int:
    """The node that an answer says comes next."""
    found = re.search(r"^[^\n]+:\d+, node (\d+), step \d", answer, re.MULTILINE)
    assert found is not None, answer
    return int(found[1])
