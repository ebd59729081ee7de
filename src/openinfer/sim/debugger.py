"""A debugger for graphs: commands in, lines of text out. Knows no terminals; the command line provides one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from openinfer.check.bound import BoundVar
from openinfer.errors import ExecutionError, OpenInferError, counted, nearest, printable
from openinfer.ops import Array, Shape
from openinfer.sim.commands import (
    COMMANDS,
    PLACES,
    Command,
    Line,
    RefusedError,
    error_lines,
    help_lines,
    named,
    positive,
)
from openinfer.sim.editing import edited_array, number_or_list, refused_value
from openinfer.sim.executor import Executor
from openinfer.sim.inspection import brief, described, difference
from openinfer.sim.listing import Listing
from openinfer.sim.screen import Screen
from openinfer.sim.stepper import Halt, Inputs, Stepper
from openinfer.sim.stops import Stops, parsed_access
from openinfer.sim.views import ExecutionPoint, require_editable

ValueReader = Callable[[BoundVar, str, Shape], Any]
"""Creates a value from a text that is neither a number nor a list, such as ``@x.npy``."""
PROMPT = "(step) "
_RECENT = 20


class Debugger:
    """Steps through a graph by commands.

    ``inputs`` gives the values to insert before each step, counted from 0. ``state`` is the initial persistent memory,
    from ``Executor.save_state``. ``values`` creates values from arguments of ``edit`` that are neither numbers nor
    lists.

    >>> from openinfer.lang import graph
    >>> from openinfer.sim import Simulator
    >>> g = graph("dynamic { x: f32; } volatile { y: f32; } block entry { op neg(x) >> y; return y; }", "g.oig")
    >>> debugger = Debugger(Simulator().make_executor(g), lambda step: {"x": 2.0})
    >>> _ = debugger.start()
    >>> print(debugger.execute("next")[0].text)
    y: f32 -2
    """

    def __init__(
        self,
        executor: Executor,
        inputs: Inputs = lambda _step: {},
        *,
        steps: int = 1,
        state: str | bytes | None = None,
        values: ValueReader | None = None,
    ) -> None:
        self._executor = executor
        self._bound = executor.bound
        self._values = values
        self._stepper = Stepper(executor, inputs, steps, state)
        listing = Listing(executor.bound.source, executor.bound.origins)
        self._screen = Screen(self._stepper, listing)
        self._stops = Stops(executor.bound, listing)
        self._set = 0
        self._watched: dict[str, Array | None] = {}
        self._last = ""
        self.is_over = False
        """Whether ``quit`` has been executed."""
        self.failures = 0
        """The number of commands that were refused or ended in an error."""
        self._actions = self._bound_actions()

    def _bound_actions(self) -> dict[str, Callable[[str], list[Line]]]:
        return {
            "next": lambda count: self._move(self._stepper.over, positive(count, 1)),
            "step": lambda count: self._move(self._stepper.into, positive(count, 1)),
            "out": lambda _: self._move(self._stepper.out),
            "finish": lambda _: self._move(self._stepper.finish),
            "continue": lambda _: self._move(self._stepper.resume),
            "break": self._break,
            "delete": self._delete,
            "watch": self._watch,
            "unwatch": self._unwatch,
            "print": self._print,
            "edit": self._edit,
            "vars": lambda _: self._screen.variables(),
            "where": lambda _: self._screen.where(),
            "list": lambda line: self._screen.page(positive(line, 1) if line else None),
            "history": lambda count: self._screen.history(positive(count, _RECENT)),
            "steps": self._steps,
            "restart": lambda _: [*self._restart(), *self._screen.here()],
            "run": lambda _: [*self._restart(), *self._move(self._stepper.resume)],
            "help": help_lines,
            "quit": lambda _: self._quit(),
        }

    # --- commands in, lines out -----------------------------------------------------------------------------------

    def start(self) -> list[Line]:
        """Insert the inputs of the first step, and show where execution starts."""
        self._stepper.restart()
        return [*self._screen.welcome(), *self._screen.here()]

    def execute(self, line: str) -> list[Line]:
        """Execute a command; an empty line repeats the last one. Errors are returned as lines."""
        text = line.strip() or self._last
        word, _, argument = text.partition(" ")
        try:
            if not word:
                return []
            command, self._last = named(word), text
            if command.name == "list" and not line.strip():
                return self._screen.next_page()
            return self._obey(command, argument.strip())
        except RefusedError as error:
            self.failures += 1
            return [Line(printable(str(error)), "error")]
        except OpenInferError as error:
            self.failures += 1
            return error_lines(error)
        except KeyboardInterrupt:
            return [Line("interrupted", "stop")]

    def _obey(self, command: Command, argument: str) -> list[Line]:
        if argument and not command.usage:
            message = f"{command.name!r} takes no argument, but got {argument!r:.60}"
            raise RefusedError(message)
        return self._actions[command.name](argument)

    def interrupt(self) -> None:
        """Handle Ctrl-C: halt after the running node or, the second time, cancel the step.

        Raises ``KeyboardInterrupt`` if nothing is running, or to cancel the step.
        """
        self._stepper.interrupt()

    def completions(self, text: str, line: str) -> list[str]:
        """Completions of the last word of a line: command names for the first word, variables after it."""
        known = self._bound.vars if line.lstrip().partition(" ")[1] else [command.name for command in COMMANDS]
        return [name for name in known if name.startswith(text)]

    def _quit(self) -> list[Line]:
        self.is_over = True
        self._executor.cancel()
        return []

    # --- running --------------------------------------------------------------------------------------------------

    def _move(self, move: Callable[[], Halt], count: int = 1) -> list[Line]:
        stepper = self._stepper
        if stepper.is_finished:
            message = (
                f"{counted(stepper.total, 'step')} done; restart goes back, steps {stepper.total + 1} plans another"
            )
            raise RefusedError(message)
        halt = move()
        for _ in range(count - 1):
            if halt.is_notable:
                break
            halt = move()
        return [*self._outcome(halt), *self._watches(), *self._screen.here()]

    def _outcome(self, halt: Halt) -> list[Line]:
        """What a run did, and why it halted."""
        lines = [*self._screen.results(halt), *self._screen.end(halt)]
        not_happened = f"{self._screen.step_text()} has not happened"
        if halt.error is not None:
            self.failures += 1
            lines += [*error_lines(halt.error), Line(f"{not_happened}; going on starts it again", "stop")]
        if halt.given_up:
            lines.append(Line(f"interrupted in the middle of a node: {not_happened}", "stop"))
        elif halt.interrupted:
            lines.append(Line("interrupted", "stop"))
        lines += [Line(printable(reason), "stop") for reason in halt.stops]
        return [*lines, *self._screen.culprit(halt)]

    def _restart(self) -> list[Line]:
        self._stepper.restart()
        self._watched = dict.fromkeys(self._watched)
        return [Line("back at the beginning", "stop")]

    def _steps(self, argument: str) -> list[Line]:
        stepper = self._stepper
        if argument:
            planned, least = positive(argument, 1), stepper.done + self._executor.is_suspended
            if planned < least:
                message = f"{counted(least, 'step')} {'has' if least == 1 else 'have'} already started"
                raise RefusedError(message)
            stepper.total = planned
        return [Line(f"{stepper.done} of {counted(stepper.total, 'step')} done")]

    # --- breakpoints and watches ----------------------------------------------------------------------------------

    def _break(self, argument: str) -> list[Line]:
        word, _, rest = argument.partition(" ")
        if word in ("delete", "list"):
            return self._delete(rest.strip()) if word == "delete" else self._all_stops()
        if not argument:
            return self._all_stops()
        stop = self._stops.parsed(argument)
        self._set += 1
        self._stepper.stops[self._set] = stop
        return [Line(f"breakpoint {self._set}: {stop.text}", "stop")]

    def _all_stops(self) -> list[Line]:
        found = [Line(f"breakpoint {number}: {stop.text}", "stop") for number, stop in self._stepper.stops.items()]
        return found or [Line(f"there are no breakpoints; set one: {PLACES}", "text")]

    def _delete(self, argument: str) -> list[Line]:
        stops = self._stepper.stops
        if not argument:
            count = len(stops)
            stops.clear()
            return [Line(f"{counted(count, 'breakpoint')} deleted", "stop")]
        number = positive(argument, 1)
        if number not in stops:
            message = f"there is no breakpoint {number}; break lists them"
            raise RefusedError(message)
        return [Line(f"breakpoint {number} deleted: {stops.pop(number).text}", "stop")]

    def _watch(self, argument: str) -> list[Line]:
        if argument:
            access = self._executor.place.seen(parsed_access(argument))
            self._stops.variable(access.base)
            self._executor.place.read(access)
            self._watched.setdefault(str(access), None)
        return self._watches() or [Line("nothing is watched; watch VAR does it", "text")]

    def _unwatch(self, argument: str) -> list[Line]:
        name = str(parsed_access(argument)) if argument else ""
        if argument and name not in self._watched:
            message = f"{name} is not watched; {nearest(name, self._watched) or 'watch lists what is'}"
            raise RefusedError(message)
        for text in [name] if argument else list(self._watched):
            del self._watched[text]
        return [Line(f"watched: {', '.join(self._watched) or 'nothing'}", "watch")]

    def _watches(self) -> list[Line]:
        """The watched values, and how they differ from the last time they were shown."""
        place, lines = self._executor.place, []
        for text, before in self._watched.items():
            access = parsed_access(text)
            try:
                value = place.read(access)
            except ExecutionError as error:
                lines.append(Line(f"watch {text}: {printable(error.message)}", "watch"))
                continue
            shown = brief(self._bound.vars[access.base], value)
            lines.append(Line(f"watch {text}: {shown}  {difference(before, value)}", "watch"))
            self._watched[text] = value
        return lines

    # --- values ---------------------------------------------------------------------------------------------------

    def _print(self, argument: str) -> list[Line]:
        if not argument:
            message = "print what? For example: print x"
            raise RefusedError(message)
        place = self._executor.place
        access = place.seen(parsed_access(argument))
        name = access.base
        if name in place.indices and not access.bracketed:
            return [Line(f"{name} = {place.indices[name]}, a loop index")]
        if name not in self._bound.vars:
            return [Line(f"{name} = {self._size(place, name)}, a size")]
        first, *rest = described(self._bound.vars[name], place.read(access))
        return [Line(f"{access}: {first}"), *map(Line, rest)]

    def _size(self, place: ExecutionPoint, name: str) -> int | str:
        sizes = place.variables.values.sizes
        if name in self._bound.bounds and name not in sizes.dynamic:
            return f"at most {self._bound.bounds[name]}"
        if name not in self._bound.sizes and name not in sizes.dynamic:
            known = [*self._bound.vars, *self._bound.sizes, *self._bound.bounds]
            message = f"there is no variable {name!r:.60}; {nearest(name, known) or 'vars lists them'}"
            raise RefusedError(message)
        return sizes.lookup(name)

    def _edit(self, argument: str) -> list[Line]:
        target, equals, text = (part.strip() for part in argument.partition("="))
        if not target or not equals or not text:
            message = "write edit VAR = VALUE, for example: edit h = 1.5, edit h[0, 1] = 2, edit h = [1, 2]"
            raise RefusedError(message)
        access = self._executor.place.seen(parsed_access(target))
        variable = self._bound.vars[self._stops.variable(access.base)]
        require_editable(variable)
        if self._stepper.is_finished:
            message = "all steps are done, and nothing would use the value; restart goes back"
            raise RefusedError(message)
        self._stepper.begin()
        place = self._executor.place
        value = self._value(variable, text, place.read(access).shape)
        self._stepper.edit(access.base, edited_array(place, access, variable, value))
        return [Line(f"{access}: {brief(variable, place.read(access))}")]

    def _value(self, variable: BoundVar, text: str, shape: Shape) -> Any:
        value = number_or_list(text)
        if value is None:
            if self._values is not None:
                return np.asarray(self._values(variable, text, shape))
            raise refused_value(text)
        return value
