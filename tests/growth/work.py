"""Work as a number: how many functions are called, built-in ones included. It is the same on every machine.

What a call does can also grow; where it makes a text, its length counts as well.
"""

from collections.abc import Callable
from cProfile import Profile
from pathlib import Path
from typing import TypeVar

import numpy as np
from tests.growth.families import Family

from openinfer import Graph, ModelLoader, Simulator
from openinfer.check import check
from openinfer.ir.dot import graph_dot
from openinfer.ir.dot_sheet import DotOptions
from openinfer.lang import parse
from openinfer.lang.format import format_source
from openinfer.oinf import save_file
from openinfer.synth.passes.fuse.fuse import Fuse
from openinfer.synth.pipeline import Stage, Synthesizer
from openinfer.synth.report.arena_map import arena_svg
from openinfer.synth.report.report import arena_positions, arena_report, arena_requests
from openinfer.synth.targets.target import Passes

T = TypeVar("T")
PASSES = Passes(fuse=Fuse(max_kernel_ops=4))
"""Kernels as large as they may be are reached soon."""


class Counted:
    """The calls of each stage."""

    def __init__(self) -> None:
        self.work: dict[str, int] = {}

    def run(self, stage: str, do: Callable[[], T]) -> T:
        """The result of a stage, with its calls counted."""
        profile = Profile()
        result = profile.runcall(do)
        self.work[stage] = sum(entry.callcount for entry in profile.getstats())
        return result

    def text(self, stage: str, do: Callable[[], str]) -> str:
        """The text that a stage makes, with its length counted, too."""
        result = self.run(stage, do)
        self.work[f"{stage}: length"] = length(result)
        return result


def length(text: str | bytes) -> int:
    """How long a text is, without the space that lines are indented by: that grows with the depth."""
    return len(text) if isinstance(text, bytes) else sum(len(line.lstrip(" ")) for line in text.splitlines())


def everything(family: Family, n: int, folder: Path) -> dict[str, int]:
    """The work of everything that can be done with a graph of a family."""
    text, counted = family.text(n), Counted()
    model = model_of(family, n, folder)
    graph = counted.run("parse", lambda: parse(text)).graph
    counted.text("format", lambda: format_source(text))
    # Columns of one length: those that are made by themselves begin at some size, and what they repeat with them.
    counted.text("draw", lambda: graph_dot(graph, DotOptions(column=8)))
    document = counted.run("to JSON", graph.to_json)
    counted.run("from JSON", lambda: Graph.from_json(document))
    counted.run("simulator", lambda: Simulator(model).make_executor(graph))
    pipeline = Synthesizer("generic", passes=PASSES).pipeline(model, graph)
    for stage in Stage:
        reached = counted.run(stage, lambda: next(pipeline))
    plan = reached.plan
    assert plan is not None
    files = counted.run("files", plan.files)
    counted.work["files: length"] = sum(map(length, files.values()))
    program, memory = plan.project.program, plan.memory
    counted.run("report", lambda: arena_report(program, memory))
    counted.run("map", lambda: arena_svg(*arena_requests(program, memory), arena_positions(program)))
    return counted.work


def refusal(family: Family, n: int) -> dict[str, int]:
    """The work until all that is wrong with a graph has been found and shown."""
    text, counted = family.text(n), Counted()
    parsed = counted.run("parse", lambda: parse(text))
    problems = list(parsed.problems)
    if not any(not problem.code.is_warning for problem in problems):
        problems += counted.run("check", lambda: check(parsed.graph)).problems
    assert any(not problem.code.is_warning for problem in problems)
    counted.run("show", lambda: [problem.render() for problem in problems])
    return counted.work


def model_of(family: Family, n: int, folder: Path) -> ModelLoader | None:
    """The model that a graph of a family needs, if any."""
    names = family.tensors(n)
    if not names:
        return None
    path = folder / f"{n}.oinf"
    save_file(path, {name: np.zeros((8, 8), np.float32) for name in names})
    return ModelLoader.open(path)
