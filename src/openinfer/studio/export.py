"""``--export``: the studio as one read-only file, which holds the answers that a server would give."""

import json
from collections.abc import Callable
from typing import Any

from openinfer.errors import OpenInferError
from openinfer.studio.calls import answered
from openinfer.studio.page import exported_page
from openinfer.studio.workspace import Workspace

MOST_NODES = 2_000
"""The most nodes whose panels the file holds."""
_LONGEST_FILES = 8_000_000
"""The most characters of emitted files."""


def answer_key(name: str, /, **arguments: Any) -> str:
    """The key of an answer: the call and its arguments, in the order of their names.

    >>> answer_key("node", index=3)
    'node{"index":3}'
    """
    return f"{name}{json.dumps(arguments, sort_keys=True, separators=(',', ':'))}"


def exported(work: Workspace) -> str:
    """The file: graph, text and panels; if the graph is bound, also the plan, its files, and the trace of a step."""
    answers: dict[str, Any] = {}

    def ask(name: str, /, **arguments: Any) -> dict[str, Any] | None:
        found = answered(work, name, arguments)
        if found["ok"]:
            answers[answer_key(name, **arguments)] = found["answer"]
        return found["answer"] if found["ok"] else None

    opened = ask("open")
    assert opened is not None
    device = work.settings.device
    _panels(opened, ask, device)
    plan = ask("plan", device=device)
    room = _LONGEST_FILES
    for one in plan["files"] if plan is not None else ():
        room -= one["bytes"]
        if room >= 0:
            ask("file", device=device, path=one["path"])
    if plan is not None:
        try:
            trace = work.trace_simulator(list(work.settings.inputs), work.settings.steps)
            answers[answer_key("open")]["traces"] = [trace]
        except OpenInferError:
            pass
    return exported_page(f"{work.surroundings.name} - openinfer studio", {"answers": answers})


def _panels(opened: dict[str, Any], ask: Callable[..., Any], device: str) -> None:
    """Collect the panels of nodes and of their weights."""
    nodes = [one for one in (opened["graph"] or {"nodes": []})["nodes"] if one["index"] is not None]
    weights: dict[str, None] = {}
    for one in nodes[:MOST_NODES]:
        ask("node", index=one["index"])
        if opened["graph"]["bound"]:
            ask("kernel", device=device, index=one["index"])
            weights |= dict.fromkeys(one["weights"])
    for name in weights:
        ask("weight", lead=[], name=name)
