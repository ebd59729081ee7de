"""The debug adapter: requests in, responses and events out.

A run has a thread of its own, so that the client can pause it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openinfer.dap.channel import Channel, ProtocolError
from openinfer.dap.session import THREAD, DebugSession
from openinfer.errors import OpenInferError
from openinfer.sim.commands import RefusedError
from openinfer.sim.stepper import Halt

SessionMaker = Callable[["LaunchRequest"], DebugSession]
"""Makes a session from a launch request."""

CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsFunctionBreakpoints": True,
    "supportsDataBreakpoints": True,
    "supportsSetVariable": True,
    "supportsSetExpression": True,
    "supportsEvaluateForHovers": True,
    "supportsStepBack": True,
    "supportsRestartRequest": True,
    "supportsTerminateRequest": True,
    "exceptionBreakpointFilters": [
        {"filter": "nan", "label": "Values that are not finite", "description": "A node writes a NaN or an infinity."}
    ],
}


@dataclass(frozen=True)
class LaunchRequest:
    """What a client wants to debug; omitted values come from the graph's comment or its project file."""

    graph: str
    model: str | None
    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    steps: int | None
    state: str | None


class Adapter:
    """Serves one client until it disconnects."""

    def __init__(self, channel: Channel, launch: SessionMaker) -> None:
        self._channel = channel
        self._launch = launch
        self._session: DebugSession | None = None
        self._stops_on_entry = True
        self._runner: threading.Thread | None = None
        self._is_running = False
        self._is_over = False
        self._answers: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "initialize": lambda _: dict(CAPABILITIES),
            "launch": self._launched,
            "setBreakpoints": self._set_breakpoints,
            "setFunctionBreakpoints": lambda given: _breakpoints(
                self._ready.breakpoints.set_ops(_objects(given, "breakpoints"))
            ),
            "setDataBreakpoints": lambda given: _breakpoints(
                self._ready.breakpoints.set_changes(_objects(given, "breakpoints"))
            ),
            "setExceptionBreakpoints": lambda given: _breakpoints(
                self._ready.breakpoints.set_filters(_list(given, "filters"))
            ),
            "dataBreakpointInfo": self._data_breakpoint_info,
            "configurationDone": lambda _: None,
            "threads": lambda _: {"threads": [{"id": THREAD, "name": "graph"}]},
            "stackTrace": self._stack_trace,
            "scopes": lambda given: {"scopes": self._stopped.scopes(int(given["frameId"]))},
            "variables": self._variables,
            "setVariable": self._set_variable,
            "setExpression": self._set_expression,
            "evaluate": self._evaluate,
            "source": lambda _: {"content": self._ready.listing.text},
            "next": lambda _: self._go(self._stopped.stepper.over, "step"),
            "stepIn": lambda _: self._go(self._stopped.stepper.into, "step"),
            "stepOut": lambda _: self._go(self._stopped.stepper.out, "step"),
            "continue": self._continue,
            "stepBack": lambda _: self._stopped.back(),
            "reverseContinue": lambda _: self._stopped.back_to_breakpoint(),
            "pause": lambda _: self._interrupt(),
            "restart": lambda _: self._restart(),
            "terminate": lambda _: self._leave(),
            "disconnect": lambda _: self._leave(),
        }
        self._afterwards: dict[str, Callable[[], None]] = {
            "launch": lambda: self._channel.event("initialized"),
            "configurationDone": self._begin,
            "restart": lambda: self._halted("entry"),
            "stepBack": lambda: self._halted("step"),
            "reverseContinue": lambda: self._halted("step"),
            "terminate": lambda: self._channel.event("terminated"),
            **dict.fromkeys(("next", "stepIn", "stepOut", "continue"), self._start),
        }

    def serve(self) -> None:
        """Answer requests until the client disconnects."""
        while not self._is_over:
            try:
                request = self._channel.read()
            except ProtocolError as error:
                self._channel.event("output", category="stderr", output=f"{error}\n")
                break
            if request is None:
                break
            self._answer(request)
        self._interrupt()
        if self._runner is not None:
            self._runner.join()

    def _answer(self, request: dict[str, Any]) -> None:
        command = str(request.get("command"))
        answer = self._answers.get(command)
        try:
            if answer is None:
                message = f"the request {command!r:.60} is not supported"
                raise RefusedError(message)
            body = answer(_object(request, "arguments"))
        except RefusedError as error:
            return self._channel.refuse(request, str(error))
        except OpenInferError as error:
            return self._channel.refuse(request, str(error))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return self._channel.refuse(request, f"the arguments of {command!r:.60} are invalid: {error}")
        self._channel.respond(request, body)
        if command in self._afterwards:
            self._afterwards[command]()
        return None

    # --- start and end --------------------------------------------------------------------------------------------

    @property
    def _ready(self) -> DebugSession:
        if self._session is None:
            message = "nothing has been launched"
            raise RefusedError(message)
        return self._session

    @property
    def _stopped(self) -> DebugSession:
        """The session, which must not be running."""
        session = self._ready
        if self._is_running:
            message = "the graph is running; pause it first"
            raise RefusedError(message)
        return session

    def _launched(self, given: dict[str, Any]) -> None:
        if self._session is not None:
            message = "a graph has been launched already; restart starts it again"
            raise RefusedError(message)
        graph = given.get("program")
        if not isinstance(graph, str):
            message = "'program' is missing: the path of a graph"
            raise RefusedError(message)
        self._stops_on_entry = bool(given.get("stopOnEntry", True)) and not given.get("noDebug")
        steps = None if given.get("steps") is None else int(given["steps"])
        if steps is not None and steps < 1:
            message = "'steps' is less than 1"
            raise RefusedError(message)
        self._session = self._launch(
            LaunchRequest(
                graph,
                given.get("model"),
                dict(given.get("sizes") or {}),
                {name: str(value) for name, value in dict(given.get("inputs") or {}).items()},
                steps,
                given.get("loadState"),
            )
        )

    def _begin(self) -> None:
        """Configuration is done: stop before the first node, or run."""
        if self._session is None:
            return None
        if self._stops_on_entry:
            return self._halted("entry")
        if self._session.is_at_breakpoint():
            return self._halted("breakpoint")
        self._go(self._session.stepper.resume, "pause")
        return self._start()

    def _restart(self) -> None:
        self._pause_and_wait()
        self._ready.restart()

    def _leave(self) -> None:
        self._is_over = True
        self._pause_and_wait()

    # --- breakpoints ----------------------------------------------------------------------------------------------

    def _set_breakpoints(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self._ready.is_source(_object(given, "source")):
            refused = {"verified": False, "message": "this file is not being debugged"}
            return _breakpoints([refused for _ in _list(given, "breakpoints")])
        return _breakpoints(self._ready.breakpoints.set_lines(_objects(given, "breakpoints")))

    def _data_breakpoint_info(self, given: dict[str, Any]) -> dict[str, Any]:
        name = self._ready.variable_named(str(given.get("name")))
        if name is None:
            return {"dataId": None, "description": "only whole variables can be watched for changes"}
        return {"dataId": name, "description": f"{name} changes", "accessTypes": ["write"]}

    # --- inspection -----------------------------------------------------------------------------------------------

    def _stack_trace(self, given: dict[str, Any]) -> dict[str, Any]:
        frames = self._stopped.frames()
        start, levels = int(given.get("startFrame") or 0), int(given.get("levels") or 0)
        return {"stackFrames": frames[start : start + levels if levels else None], "totalFrames": len(frames)}

    def _variables(self, given: dict[str, Any]) -> dict[str, Any]:
        start, count = int(given.get("start") or 0), int(given.get("count") or 0)
        if given.get("filter") == "named":
            count = 0
        return {"variables": self._stopped.variables(int(given["variablesReference"]), start, count)}

    def _set_variable(self, given: dict[str, Any]) -> dict[str, Any]:
        number, name, value = int(given["variablesReference"]), str(given["name"]), str(given["value"])
        return {"value": self._stopped.set_variable(number, name, value)}

    def _set_expression(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"value": self._stopped.set_value(str(given["expression"]), str(given["value"]))}

    def _evaluate(self, given: dict[str, Any]) -> dict[str, Any]:
        text = str(given["expression"]).strip()
        target, equals, value = text.partition("=")
        if given.get("context") == "repl" and equals and not value.startswith("="):
            return {"result": self._stopped.set_value(target.strip(), value.strip()), "variablesReference": 0}
        return self._stopped.evaluate(text)

    # --- moving ---------------------------------------------------------------------------------------------------

    def _go(self, move: Callable[[], Halt], reason: str) -> None:
        """Prepare a run; it starts once the request has been answered."""
        session = self._stopped
        if session.is_finished:
            message = "all steps are done"
            raise RefusedError(message)
        self._runner = threading.Thread(target=self._run, args=(session, move, reason), daemon=True)

    def _continue(self, _given: dict[str, Any]) -> dict[str, Any]:
        self._go(self._stopped.stepper.resume, "pause")
        return {"allThreadsContinued": True}

    def _start(self) -> None:
        assert self._runner is not None
        self._is_running = True
        self._runner.start()

    def _run(self, session: DebugSession, move: Callable[[], Halt], reason: str) -> None:
        halt = session.moved(move)
        self._is_running = False  # set before the client is told and asks
        for line in session.returned(halt):
            self._channel.event("output", category="stdout", output=f"{line}\n")
        if halt.error is not None:
            return self._failed(halt.error)
        if session.is_finished:
            self._channel.event("exited", exitCode=0)
            return self._channel.event("terminated")
        if self._is_over:
            return None
        if halt.stops:
            kind = "data breakpoint" if halt.is_by_value else "breakpoint"
            return self._halted(kind, description="; ".join(halt.stops))
        return self._halted("pause" if halt.interrupted else reason)

    def _failed(self, error: OpenInferError) -> None:
        self._channel.event("output", category="stderr", output=f"{error}\n")
        self._halted("exception", description="the step has not happened; going on starts it again", text=error.message)

    def _halted(self, reason: str, **more: str) -> None:
        self._channel.event("stopped", reason=reason, threadId=THREAD, allThreadsStopped=True, **more)

    def _interrupt(self) -> None:
        if self._session is None or self._runner is None or not self._runner.is_alive():
            return
        try:
            self._session.stepper.interrupt()
        except KeyboardInterrupt:  # it has ended meanwhile, or is interrupted already
            return

    def _pause_and_wait(self) -> None:
        self._interrupt()
        if self._runner is not None and self._runner.is_alive():
            self._runner.join()


def _list(given: dict[str, Any], key: str) -> list[Any]:
    found = given.get(key) or []
    if not isinstance(found, list):
        message = f"{key!r} is not a list"
        raise RefusedError(message)
    return found


def _objects(given: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = _list(given, key)
    if not all(isinstance(one, dict) for one in found):
        message = f"{key!r} is not a list of objects"
        raise RefusedError(message)
    return found


def _object(given: dict[str, Any], key: str) -> dict[str, Any]:
    found = given.get(key)
    if not isinstance(found, dict | None):
        message = f"{key!r} is not an object"
        raise RefusedError(message)
    return found or {}


def _breakpoints(answers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"breakpoints": answers}
