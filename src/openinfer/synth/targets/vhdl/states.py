"""A clocked process as a state machine, filled state by state during code generation."""

from dataclasses import dataclass, field

from openinfer.synth.targets.vhdl.clocks import Clocks

MOST = 12
"""The longest chain of operations in one state: they share a clock."""


@dataclass
class StateMachine:
    """States, each a list of VHDL lines. Variables change immediately, signals in the next clock."""

    states: list[list[str]] = field(default_factory=lambda: [[], []])
    variables: dict[str, str] = field(default_factory=dict)
    """Types by variable name."""
    now: int | None = 1
    """The open state, to which lines are appended; None after a jump."""
    clocks: Clocks = field(default_factory=lambda: Clocks.of(1))
    """The clocks of the states so far, from the first one on."""
    holds: dict[int, list[list[str]]] = field(default_factory=dict)
    """Per state, the stops where circuits built for traces wait for the host, each with the lines that report to it."""
    _load: int = 0
    _asked: set[str] = field(default_factory=set)

    def variable(self, name: str, type_: object) -> str:
        """Declare a variable with a unique name that starts with ``name``."""
        own = f"{name}_{len(self.variables)}"
        self.variables[own] = str(type_)
        return own

    def line(self, text: str, cost: int = 1) -> None:
        """Append a line to the open state, or to the next one if the chain of operations gets too long."""
        self.room(cost)
        self._open().append(text)

    def room(self, cost: int) -> None:
        """Reserve ``cost`` operations for the next lines; start the next state if the chain gets too long."""
        if self._load and self._load + cost > MOST:
            self.step()
        self._load += cost

    def request(self, memory: str) -> None:
        """Reserve a memory's port in the open state, or in the next one if this state already uses it."""
        if memory in self._asked:
            self.step()
        self._open()
        self._asked.add(memory)

    def at_once(self, text: str) -> None:
        """Append a line to the open state, whatever its cost."""
        self._open().append(text)

    def _open(self) -> list[str]:
        if self.now is None:
            self.enter(self.fresh())
        assert self.now is not None
        return self.states[self.now]

    def fresh(self) -> int:
        """Create an empty state that jumps can target before it is filled."""
        self.states.append([])
        return len(self.states) - 1

    def enter(self, state: int) -> None:
        """Open a state; the state open so far continues there."""
        if self.now is not None:
            self.states[self.now].append(f"state <= {state};")
        self.now, self._load = state, 0
        self.clocks += Clocks.of(1)
        self._asked = set()

    def step(self) -> None:
        """Open a fresh state: the next clock."""
        self.enter(self.fresh())

    def label(self) -> int:
        """The open state if it is still empty, else a fresh one."""
        if self.now is None or self.states[self.now] or self.now in self.holds:
            self.step()
        assert self.now is not None
        return self.now

    def goto(self, state: int) -> None:
        """Jump to a state and close the open one."""
        self._open().append(f"state <= {state};")
        self.now = None

    def branch(self, condition: str, then: int, otherwise: int, before: tuple[str, ...] = ()) -> None:
        """Jump to one of two states; ``before`` runs on the way to the first."""
        extra = " ".join(before) + " " if before else ""
        self._open().append(f"if {condition} then {extra}state <= {then}; else state <= {otherwise}; end if;")
        self.now = None

    def cases(self) -> list[list[str]]:
        """The states as alternatives of a case statement."""
        return [
            [f"when {number} =>", *(f"  {line}" for line in self._held(number, lines or ["null;"]))]
            for number, lines in enumerate(self.states)
        ]

    def hold(self, lines: list[str]) -> int:
        """Add a stop that reports to the host before anything else runs; returns its state."""
        if self.now is None or self.states[self.now]:
            self.step()
        assert self.now is not None
        self.holds.setdefault(self.now, []).append(lines)
        return self.now

    def _held(self, number: int, lines: list[str]) -> list[str]:
        if number not in self.holds:
            return lines
        holds = self.holds[number]
        found = [f"if traces and tracing = '1' and told < {len(holds)} then"]
        for at, told in enumerate(holds):
            found += [f"  if told = {at} then", *(f"    {line}" for line in told), "  end if;"]
        found.append("  stopped <= not trace_resume;")
        found.append("  if trace_resume = '1' then told := told + 1; end if;")
        return [*found, "else", "  told := 0;", *(f"  {line}" for line in lines), "end if;"]
