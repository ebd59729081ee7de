"""The calls that the page can make: the name, the arguments and the handler of each."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openinfer.errors import Code, Diagnostic, OpenInferError
from openinfer.studio.workspace import Workspace

_LONGEST = 64 << 20
"""The most characters of a text."""


class CallArguments(BaseModel):
    """The arguments of a call; anything else is rejected."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field("", max_length=_LONGEST)
    name: str = Field("", max_length=4096)
    other: str = Field("", max_length=4096)
    device: str = Field("host", max_length=4096)
    path: str = Field("", max_length=4096)
    index: int = 0
    lead: list[int] = Field(default_factory=list, max_length=32)
    inputs: list[str] = Field(default_factory=list, max_length=10_000)
    steps: int = Field(1, ge=1, le=1_000_000)
    tolerance: float = Field(0.0, ge=0.0)


CALLS: Mapping[str, Callable[[Workspace, CallArguments], Mapping[str, Any]]] = {
    "open": lambda work, _: work.opened(),
    "check": lambda work, given: work.check(given.text),
    "format": lambda work, given: work.editing.format(given.text),
    "fix": lambda work, given: work.editing.fix(given.text, given.name, given.other),
    "complete": lambda work, given: work.editing.complete(given.text, given.index),
    "hover": lambda work, given: work.editing.hover(given.text, given.index),
    "save": lambda work, given: work.save(given.text),
    "node": lambda work, given: work.node(given.index),
    "weight": lambda work, given: work.weight(given.name, given.lead),
    "plan": lambda work, given: work.plan(given.device),
    "file": lambda work, given: work.file(given.device, given.path),
    "kernel": lambda work, given: work.kernel(given.device, given.index),
    "start": lambda work, given: work.start(given.inputs, given.steps),
    "move": lambda work, given: work.stepping(lambda session: session.move(given.name)),
    "run-to": lambda work, given: work.stepping(lambda session: session.run_to(given.index)),
    "back": lambda work, _: work.stepping(lambda session: session.back()),
    "restart": lambda work, _: work.stepping(lambda session: session.restart()),
    "break": lambda work, given: work.stepping(lambda session: session.add_stop(given.text)),
    "break-line": lambda work, given: work.stepping(lambda session: session.stop_at_line(given.index)),
    "delete": lambda work, given: work.stepping(lambda session: session.remove_stop(given.index)),
    "watch": lambda work, given: work.stepping(lambda session: session.watch(given.name)),
    "unwatch": lambda work, given: work.stepping(lambda session: session.unwatch(given.name)),
    "value": lambda work, given: work.stepping(lambda session: session.value(given.name, given.lead)),
    "edit": lambda work, given: work.stepping(lambda session: session.edit(given.name, given.text)),
    "steps": lambda work, given: work.stepping(lambda session: session.plan_steps(given.steps)),
    "interrupt": lambda work, _: work.interrupt(),
    "trace-simulator": lambda work, given: work.trace_simulator(given.inputs, given.steps),
    "trace-device": lambda work, given: work.trace_device(given.device, given.inputs, given.steps),
    "trace-file": lambda work, given: work.trace_file(given.name, given.text),
    "compare": lambda work, given: work.compare(given.name, given.other, given.tolerance),
    "profile": lambda work, given: work.profile(given.device, given.inputs, given.steps),
}
"""The handlers by the names that the page uses."""


def answered(work: Workspace, name: str, arguments: object) -> dict[str, Any]:
    """The answer to a call; errors become diagnostics.

    >>> answered(None, "fly", {})["problems"][0]["message"]
    "there is no call 'fly'"
    """
    try:
        if name not in CALLS:
            raise OpenInferError(Diagnostic(Code.BAD_PARAMETER, f"there is no call {name[:40]!r}"))
        return {"ok": True, "answer": dict(CALLS[name](work, CallArguments.model_validate(arguments)))}
    except OpenInferError as error:
        return {"ok": False, "problems": [one.facts() for one in error.diagnostics]}
    except ValidationError as error:
        message = f"{name}: {error.errors()[0]['msg']}"
        return {"ok": False, "problems": [Diagnostic(Code.BAD_PARAMETER, message).facts()]}
    except MemoryError:
        return {"ok": False, "problems": [Diagnostic(Code.OUT_OF_MEMORY, "there is not enough memory").facts()]}
