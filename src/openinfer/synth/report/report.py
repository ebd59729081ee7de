"""A plan as plain data and as text: kernels with their costs, the fusion ledger, the arena.

``openinfer synth --report`` prints the text, which is for people; the facts are for programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openinfer.ir import Node, Op
from openinfer.ir.expr import evaluate
from openinfer.ir.graph import walk
from openinfer.ir.text import node_head
from openinfer.ir.values import StrValue
from openinfer.loops.ir import Contraction, Kernel
from openinfer.loops.ir import walk as walk_loops
from openinfer.oinf.report import size_text
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.arena import Placement, Request
from openinfer.synth.memory.place import MemoryPlan
from openinfer.synth.passes.fuse.ledger import InexactNode, LedgerEntry
from openinfer.synth.program.cost import cost_of
from openinfer.synth.program.ir import CallStep, KernelStep, LoopStep, Move, Program, Step, Value
from openinfer.synth.program.positions import Positions
from openinfer.synth.report.arena_map import arena_text, describe

_MOST_ROWS = 40
"""The most arena values to list in the text; the facts have all of them."""


# --- facts ------------------------------------------------------------------------------------------------------------


def kernel_facts(program: Program, arch: DeviceArch) -> list[dict[str, Any]]:
    """Every kernel call, in block order, with its nodes and its cost."""
    nodes = {node.index: node for node in program.bound.graph.walk()}
    found = []
    for block, steps in program.blocks.items():
        for step, calls in _calls(program, steps, 1):
            cost = cost_of(step.kernel)
            found.append(
                {
                    "name": step.kernel.name,
                    "block": block,
                    "nodes": [node_facts(nodes[one]) for one in step.nodes or (step.node,) if one in nodes],
                    "calls": calls,
                    "operations": cost.operations,
                    "bytes_read": cost.read,
                    "bytes_written": cost.written,
                    "intensity": round(cost.intensity, 4),
                    "roofline_seconds": _roofline(cost.operations, cost.nbytes, arch),
                    "tiles": _tile_facts(step.kernel),
                }
            )
    return found


def _tile_facts(kernel: Kernel) -> list[dict[str, Any]]:
    """The tiles that schedules chose for the products of a kernel."""
    found = [one.template for one in walk_loops(kernel.body) if isinstance(one, Contraction)]
    return [template.facts for template in found if template is not None]


def _calls(program: Program, steps: Sequence[Step], calls: int | None) -> Iterator[tuple[KernelStep, int | None]]:
    """Kernel steps, and the number of calls of each per run of their block; None if only known at run time."""
    for step in steps:
        if isinstance(step, KernelStep):
            yield step, calls
        elif isinstance(step, LoopStep):
            trips = _trip_count(program, step)
            yield from _calls(program, step.body, None if calls is None or trips is None else calls * trips)


def _trip_count(program: Program, loop: LoopStep) -> int | None:
    sizes = program.bound.sizes
    try:
        return max(evaluate(loop.end, sizes.__getitem__) - evaluate(loop.start, sizes.__getitem__), 0)
    except KeyError:
        return None


def node_facts(node: Node) -> dict[str, Any]:
    """A node: its index, its text, and its source line."""
    place = node.span.facts() if node.span is not None else {}
    return {"index": node.index, "text": node_head(node), "line": place.get("line")}


def _roofline(operations: int, nbytes: int, arch: DeviceArch) -> float | None:
    """The roofline time, if the device's description gives its speed."""
    compute, memory = arch.cpu.flops_per_second, arch.memory.bandwidth_bytes_per_second
    if not compute or not memory:
        return None
    return max(operations / compute, nbytes / memory)


def ledger_facts(program: Program, ledger: Sequence[LedgerEntry]) -> list[dict[str, Any]]:
    """The fusion ledger."""
    nodes = {node.index: node_facts(node) for node in program.bound.graph.walk()}
    return [
        {
            "producer": nodes.get(entry.producer, {"index": entry.producer, "text": "", "line": None}),
            "consumer": nodes.get(entry.consumer, {"index": entry.consumer, "text": "", "line": None}),
            "fused": entry.is_fused,
            "reason": entry.reason,
            "bytes_saved": entry.bytes_saved,
        }
        for entry in ledger
    ]


def inexact_facts(program: Program, inexact: Sequence[InexactNode]) -> list[dict[str, Any]]:
    """Nodes that are computed less exactly than their ops promise."""
    nodes = {node.index: node_facts(node) for node in program.bound.graph.walk()}
    return [{"node": nodes[one.node], "form": one.form, "bound": one.bound} for one in inexact]


def unmet_facts(program: Program, arch: DeviceArch) -> list[dict[str, Any]]:
    """Constraints that cannot be met: nodes, or all nodes of a block, placed on another device type."""
    found = []
    for block in program.bound.graph.blocks.values():
        for node in walk(block.nodes):
            wanted = {**block.constraints, **node.constraints}.get("placement")
            if isinstance(node.kind, Op) and isinstance(wanted, StrValue) and wanted.value != arch.device.type:
                reason = f"placement is {wanted.value!r}, and this device is a {arch.device.type}"
                found.append({"node": node_facts(node), "reason": reason})
    return found


def arena_requests(program: Program, memory: MemoryPlan) -> tuple[list[Request], Placement]:
    """The arena as the planner saw it: the requests for memory, and their placement.

    Positions are those of ``arena_positions``; labels name the variables that a value holds.
    """
    last = len(Positions(program).steps) - 1
    variables: dict[Value, dict[str, None]] = {}
    for value in _written(program):
        if value.variable is not None:
            variables.setdefault(memory.classes.root(value), {})[value.variable] = None
    names = {root: ", ".join(variables.get(root, {})) for root in memory.offsets}
    requests = [
        Request(
            max(root.nbytes, 1),
            # Liveness numbers positions from the last step, since it walks backwards.
            tuple(memory.classes.occupied(root).reversed(last)),
            f"{root.name} ({names[root]})" if names[root] else root.name,
            names[root],
        )
        for root in memory.offsets
    ]
    return requests, Placement(tuple(memory.offsets.values()), memory.peak, memory.lower_bound, memory.alignment)


def arena_positions(program: Program) -> list[str]:
    """The name of each position of the arena's map, from first to last; a loop comes after its body."""
    return [_position(step) for step in reversed(Positions(program).steps)]


def _position(step: Step) -> str:
    match step:
        case KernelStep():
            return step.kernel.name
        case LoopStep():
            return f"loop {step.name or step.index}"
        case _:
            return type(step).__name__.removesuffix("Step").lower()


def _written(program: Program) -> Iterator[Value]:
    for step in program.steps():
        match step:
            case KernelStep():
                yield from step.outputs
            case Move():
                yield step.dst
            case CallStep():
                yield from step.results


def arena_facts(program: Program, memory: MemoryPlan) -> dict[str, Any]:
    """The memory plan; ``peak_owners`` are the values live at the fullest position."""
    return {**describe(*arena_requests(program, memory)), "positions": arena_positions(program)}


# --- text -------------------------------------------------------------------------------------------------------------


def kernels_text(kernels: Sequence[dict[str, Any]]) -> str:
    """A line for each kernel call, followed by one for each of its tiles and nodes."""
    lines = ["kernels"]
    width = max((len(one["name"]) for one in kernels), default=0)
    for one in kernels:
        moved = size_text(one["bytes_read"] + one["bytes_written"])
        calls = "" if one["calls"] == 1 else f"  x {one['calls'] if one['calls'] is not None else '?'}"
        time = f"  at least {one['roofline_seconds'] * 1e6:.3g} us" if one["roofline_seconds"] is not None else ""
        numbers = f"{one['operations']:>13,} ops {moved:>10}  {one['intensity']:>7.2f} ops/B"
        lines.append(f"  {one['name']:<{width}}  {numbers}{time}{calls}")
        lines += [f"      {_tile_text(tile)}" for tile in one["tiles"]]
        lines += [f"      {_line(node)}{node['text']}" for node in one["nodes"]]
    return "\n".join(lines if kernels else ["kernels: none"])


def _tile_text(tile: dict[str, Any]) -> str:
    chosen = "by rule" if tile["gain"] is None else f"by measuring, {tile['gain']:.2f} times as fast as by rule"
    return f"in tiles of {tile['rows']} x {tile['columns']}, {chosen}"


def _line(node: dict[str, Any]) -> str:
    return f"line {node['line']}: " if node["line"] is not None else f"node {node['index']}: "


def ledger_text(ledger: Sequence[dict[str, Any]]) -> str:
    """What was fused and what was not, and why, as pairs of a producer and a reader."""
    fused = [entry for entry in ledger if entry["fused"]]
    refused = [entry for entry in ledger if not entry["fused"]]
    saved = size_text(sum(entry["bytes_saved"] for entry in fused))
    lines = [f"fused: {len(fused)}, {saved} less to move"]
    for entry in fused:
        lines += [*_pair(entry), f"      saves {size_text(entry['bytes_saved'])}"]
    lines.append(f"not fused: {len(refused)}")
    for entry in refused:
        lines += [*_pair(entry), f"      because {entry['reason']}"]
    return "\n".join(lines)


def inexact_text(inexact: Sequence[dict[str, Any]]) -> str:
    """The nodes that are less exact, as allowed by the user."""
    lines = [f"less exact, as allowed: {len(inexact)}"]
    for one in inexact:
        lines += [f"  {_line(one['node'])}{one['node']['text']}", f"      {one['form']}: errors up to {one['bound']}"]
    return "\n".join(lines)


def unmet_text(unmet: Sequence[dict[str, Any]]) -> str:
    """Constraints that were not met."""
    lines = [f"constraints not obeyed: {len(unmet)}"]
    for one in unmet:
        lines += [f"  {_line(one['node'])}{one['node']['text']}", f"      {one['reason']}"]
    return "\n".join(lines)


def _pair(entry: dict[str, Any]) -> list[str]:
    one, other = entry["producer"], entry["consumer"]
    return [f"  {_line(one)}{one['text']}", f"    into {_line(other)}{other['text']}"]


def files_text(files: Mapping[str, str | bytes]) -> str:
    """The files of a project with their sizes."""
    width = max(map(len, files), default=0)
    return "\n".join(f"{path:<{width}}  {len(content):>10,} bytes" for path, content in files.items()) + "\n"


def above_bound(memory: MemoryPlan) -> str:
    """The distance of an arena from its lower bound."""
    if not memory.gap:
        return "exactly the lower bound"
    share = 100 * memory.gap / memory.lower_bound
    return f"{memory.gap:,} bytes ({share:.1f} %) above the lower bound of {memory.lower_bound:,}"


def arena_report(program: Program, memory: MemoryPlan) -> str:
    """The arena: its size, what determines it, and a map."""
    requests, placement = arena_requests(program, memory)
    facts = describe(requests, placement)
    lines = [f"arena: {memory.peak:,} bytes, {above_bound(memory)}"]
    if facts["peak_owners"]:
        fullest = facts["peak_position"]
        owners = ", ".join(facts["peak_owners"])
        lines.append(f"  fullest at position {fullest} ({arena_positions(program)[fullest]}): {owners}")
    lines += [f"  {line}" for line in arena_text(requests, placement).splitlines()]
    for one in facts["requests"][:_MOST_ROWS]:
        alive = ", ".join(f"{first}-{last}" for first, last in one["lifetime"])
        lines.append(f"  {one['offset']:>10,}  {one['nbytes']:>10,} bytes  at {alive}  {one['label']}")
    more = len(facts["requests"]) - _MOST_ROWS
    return "\n".join(lines if more <= 0 else [*lines, f"  and {more} more"])
