"""Blocks are printed by what all targets share; what they do to memory is a target's own ``Calls``."""

from dataclasses import dataclass
from typing import Any

from tests.synth.both_ways import planned

from openinfer.synth.memory.checks.records import KernelChecks
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import KernelStep, StepOperand, Value
from openinfer.synth.targets.c.source import source_printers
from openinfer.synth.targets.cstyle.host.blocks import BlockPrinter
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter

GRAPH = """
sizes { T <= 8; }
dynamic { x: f32[T, 4]; c: bool; n: i64; }
volatile { y: f32[T, 4]; }
block warm { op tanh(y) >> y; return; }
block cold { op abs(y) >> y; return; }
block entry {
    op relu(x) >> y;
    loop turns (i in 0..n + 1) { op exp(y) >> y; }
    branch c warm cold;
    return y;
}
"""


@dataclass(frozen=True)
class Launches:
    """Another target: it launches kernels, and has nothing else yet."""

    file: HostFile

    def pointer(self, value: Value) -> str:
        return f"host({value.name})"

    def looked_at(self, value: Value, depth: int) -> None:
        pass

    def changed(self, value: Value, depth: int) -> None:
        pass

    def pointer_type(self, value: Value) -> str:
        return f"{value.dtype.name}_memory"

    def address(self, operand: StepOperand, _checks: object, _depth: int) -> str:
        return self.pointer(operand) if isinstance(operand, Value) else "weights"

    def kernel(self, step: KernelStep, _checks: KernelChecks, depth: int) -> None:
        self.file.line(depth, f"LAUNCH({step.kernel.name});")

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    fill = move = table = part = entry = _nothing

    def marked(self, *_: Any) -> list[str]:
        return []


def launching(placed: Placed) -> BlockPrinter:
    file = HostFile(placed, "model")
    sizes, calls = SizePrinter(file), Launches(file)
    return BlockPrinter(file, sizes, IndexPrinter(file, sizes, calls.pointer), calls)


def control_flow(text: str) -> list[str]:
    """The lines that decide what runs, but for those that read memory."""
    words = ("for (", "if (is_over", "if (bad)", "if (block", "} else", "}")
    return [line for line in text.splitlines() if line.strip().startswith(words)]


def test_another_target_has_the_same_blocks_with_calls_of_its_own() -> None:
    placed = planned(GRAPH).project.placed
    own, c = launching(placed), source_printers(placed, "model").blocks
    for name in placed.program.blocks:
        text = own.block(name)
        assert control_flow(text) == control_flow(c.block(name))
        assert "memcpy" not in text
    entry = own.block("entry")
    assert [line.strip() for line in entry.splitlines() if "LAUNCH" in line] == ["LAUNCH(relu);", "LAUNCH(exp);"]
    assert "if (*host(" in entry, "the condition is read where the target says"
