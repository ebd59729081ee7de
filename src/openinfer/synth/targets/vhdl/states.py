"""A clocked process as states, which are filled one after the other while code is generated."""

from dataclasses import dataclass, field

from openinfer.synth.targets.vhdl.clocks import Clocks

MOST = 12
"""The operations that stand behind each other in one state, at most: they share a clock."""


@dataclass
class StateMachine:
    """States, each a list of lines in VHDL. Variables have their values at once, signals in the next clock."""

    states: list[list[str]] = field(default_factory=lambda: [[], []])
    variables: dict[str, str] = field(default_factory=dict)
    """With their types."""
    now: int | None = 1
    """The state that lines go to; None where nothing leads on."""
    clocks: Clocks = field(default_factory=lambda: Clocks.of(1))
    """What the states so far take, from the first one on."""
    holds: dict[int, list[list[str]]] = field(default_factory=dict)
    """Where circuits for traces wait for the host, once or several times, and what they tell it."""
    _load: int = 0
    _asked: set[str] = field(default_factory=set)

    def variable(self, name: str, type_: object) -> str:
        """A variable with a name of its own that begins so."""
        own = f"{name}_{len(self.variables)}"
        self.variables[own] = str(type_)
        return own

    def line(self, text: str, cost: int = 1) -> None:
        """A line in the state that is open; in the next one if this one has too much to do already."""
        self.room(cost)
        self._open().append(text)

    def room(self, cost: int) -> None:
        """The next lines take so much; the next state begins if this one has too much to do already."""
        if self._load and self._load + cost > MOST:
            self.step()
        self._load += cost

    def request(self, memory: str) -> None:
        """A memory is asked in the state that is open; in the next one if it is asked in this one already."""
        if memory in self._asked:
            self.step()
        self._open()
        self._asked.add(memory)

    def at_once(self, text: str) -> None:
        """A line in this very state."""
        self._open().append(text)

    def _open(self) -> list[str]:
        if self.now is None:
            self.enter(self.fresh())
        assert self.now is not None
        return self.states[self.now]

    def fresh(self) -> int:
        """A state that something can lead to before it is filled."""
        self.states.append([])
        return len(self.states) - 1

    def enter(self, state: int) -> None:
        """Lines go to a state from here on, and what was before leads there."""
        if self.now is not None:
            self.states[self.now].append(f"state <= {state};")
        self.now, self._load = state, 0
        self.clocks += Clocks.of(1)
        self._asked = set()

    def step(self) -> None:
        """The next clock."""
        self.enter(self.fresh())

    def label(self) -> int:
        """The state that is open, if nothing is in it yet; else the next."""
        if self.now is None or self.states[self.now] or self.now in self.holds:
            self.step()
        assert self.now is not None
        return self.now

    def goto(self, state: int) -> None:
        """Nothing follows here."""
        self._open().append(f"state <= {state};")
        self.now = None

    def branch(self, condition: str, then: int, otherwise: int, before: tuple[str, ...] = ()) -> None:
        """One of two states follows; ``before`` is done on the way to the first."""
        extra = " ".join(before) + " " if before else ""
        self._open().append(f"if {condition} then {extra}state <= {then}; else state <= {otherwise}; end if;")
        self.now = None

    def cases(self) -> list[list[str]]:
        """The lines of each state, as alternatives of a case statement."""
        return [
            [f"when {number} =>", *(f"  {line}" for line in self._held(number, lines or ["null;"]))]
            for number, lines in enumerate(self.states)
        ]

    def hold(self, lines: list[str]) -> int:
        """The host can be told something here, before anything else is done; in which state that is."""
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
