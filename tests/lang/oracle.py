"""What every text must get out of the parser: located errors that can be shown, or a graph that survives everything."""

import json
from collections import Counter
from dataclasses import dataclass, field
from time import process_time

from openinfer.errors import Code, Diagnostic, Span
from openinfer.ir import Graph, validate
from openinfer.lang import parse

LIMIT_S = 5.0
MOST_SHOWN = 40


@dataclass
class Figures:
    """What became of the texts judged so far."""

    texts: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: str = ""

    def table(self) -> list[str]:
        """The figures as lines."""
        codes = [f"  {code}           {count:>9,}" for code, count in sorted(self.refused.items())]
        return [
            f"mutants          {self.texts:>9,}",
            f"accepted         {self.accepted:>9,}",
            f"refused          {self.texts - self.accepted:>9,}",
            *codes,
            f"slowest          {1000 * self.slowest_s:>9.1f} ms ({self.slowest})",
        ]


def judge(text: str, figures: Figures, label: str = "") -> None:
    """Raise AssertionError, or whatever the parser should not have raised."""
    start = process_time()
    parsed = parse(text, "mutant.oig")
    seconds = process_time() - start
    errors = [problem for problem in parsed.problems if not problem.code.is_warning]
    for problem in parsed.problems[:MOST_SHOWN]:
        check_shown(problem, text)
    if not errors:
        check_survives(parsed.graph)
    figures.texts += 1
    figures.accepted += not errors
    figures.refused.update({str(problem.code) for problem in errors})
    if seconds > figures.slowest_s:
        figures.slowest_s, figures.slowest = seconds, label
    assert seconds <= LIMIT_S, f"{seconds:.1f} s"


def check_shown(problem: Diagnostic, text: str) -> None:
    """A diagnostic has a code, points into the text, and can be printed to any terminal."""
    assert problem.code in Code
    assert problem.message
    if problem.span is not None:
        assert isinstance(problem.span, Span)
        assert 0 <= problem.span.start <= problem.span.end <= len(text), problem
    shown = problem.render()
    assert all(character.isprintable() for character in shown.replace("\n", "")), shown
    assert shown.splitlines()[0].endswith(problem.message[-20:]) or not problem.message.isprintable()
    assert json.dumps(problem.facts())


def check_survives(graph: Graph) -> None:
    """A graph that was accepted is valid, and printing and JSON give it back."""
    assert [problem for problem in validate(graph) if not problem.code.is_warning] == []
    text = graph.to_text()
    again = parse(text)
    assert [problem.render() for problem in again.problems if not problem.code.is_warning] == [], text
    assert again.graph == graph, text
    assert again.graph.to_text() == text
    document = json.dumps(graph.to_json(), sort_keys=True, allow_nan=False)
    assert json.dumps(again.graph.to_json(), sort_keys=True) == document
    loaded = Graph.from_json(document)
    assert loaded == graph
    assert json.dumps(loaded.to_json(), sort_keys=True) == document
