"""The plan of a graph for a device, as the views of code and memory show it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

from openinfer.errors import Code, Diagnostic, OpenInferError
from openinfer.studio.code_places import code_places
from openinfer.studio.document import CheckedText
from openinfer.synth.devices.description import DeviceArch, device_names
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cstyle.names import project_name

DeviceFinder = Callable[[str], DeviceArch]
"""Finds a device by its name or the path of its file."""
_LONGEST_FILE = 2_000_000
"""The most characters of a file that a page shows."""


def device_facts() -> list[dict[str, Any]]:
    """The devices that code can be generated for; ``host`` is this machine."""
    found = [{"name": "host", "title": "this machine", "api": "c"}]
    for name in device_names():
        arch = DeviceArch.named(name)
        found.append({"name": name, "title": arch.title, "api": arch.api or ""})
    return found


@dataclass(frozen=True)
class ShownPlan:
    """A plan, and what is shown of it."""

    device: str
    plan: Plan
    origins: Mapping[int, int]
    """The source node of each copied node, by index."""

    @cached_property
    def files(self) -> dict[str, str]:
        """The text files."""
        return {path: one for path, one in sorted(self.plan.files().items()) if isinstance(one, str)}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Kernels, the ledger, memory, and the places of each function in the files."""
        said = self.plan.facts()
        code = {path: text for path, text in self.files.items() if path != "plan.json"}
        functions = [
            {"name": one["name"], "nodes": sorted({self._origin(node) for node in one["nodes"]})}
            for one in said["functions"]
        ]
        places = code_places(code, [one["name"] for one in functions])
        return {
            "device": self.device,
            "title": self.plan.arch.title,
            "isa": said["isa"],
            "bytes": said["bytes"],
            "functions": functions,
            "kernels": self._with_functions(said["kernels"]),
            "ledger": said["ledger"],
            "unmet": said["unmet"],
            "inexact": said.get("inexact", []),
            "memory": said["memory"],
            "regions": said["regions"],
            "state": said["state"],
            "tables": said["tables"],
            "weights": said["weights"],
            "files": [{"path": path, "bytes": len(text.encode())} for path, text in self.files.items()],
            "places": [one.facts() for one in places],
        }

    def _origin(self, index: int) -> int:
        return self.origins.get(index, index)

    def _with_functions(self, kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The kernel calls, each with the function that it became; of several launches, that of the first."""
        launched: dict[tuple[int, ...], list[str]] = {}
        for used, step in self.plan.project.kernels.calls:
            launched.setdefault(step.nodes or (step.node,), []).append(used.name)
        called = [tuple(node["index"] for node in one["nodes"]) for one in kernels]
        count, before, found = Counter(called), Counter[tuple[int, ...]](), []
        for one, nodes in zip(kernels, called, strict=True):
            names = launched.get(nodes)
            function = None if names is None else names[before[nodes] * len(names) // count[nodes]]
            found.append({**one, "function": function})
            before[nodes] += 1
        return found

    def file(self, path: str) -> str:
        """The text of one file."""
        if path not in self.files:
            raise OpenInferError(Diagnostic(Code.BAD_SOURCE_FILE, f"the project has no file {path[:80]!r}"))
        return self.files[path][:_LONGEST_FILE]

    def of_node(self, index: int) -> dict[str, Any] | None:
        """The function that computes a node, and its cost; None if no kernel does."""
        for one in self.facts["functions"]:
            if index in one["nodes"]:
                calls = [call for call in self.facts["kernels"] if call["function"] == one["name"]]
                return {
                    "function": one["name"],
                    "nodes": one["nodes"],
                    "operations": sum(call["operations"] for call in calls),
                    "bytes": sum(call["bytes_read"] + call["bytes_written"] for call in calls),
                    "calls": len(calls),
                }
        return None


def shown_plan(checked: CheckedText, device: str, find: DeviceFinder) -> ShownPlan:
    """Plan a graph for a device."""
    bound, given = checked.require_bound(), checked.surroundings
    name = project_name(PurePath(given.name).stem)
    synthesizer = Synthesizer.from_arch(find(device), name=name)
    made = synthesizer.synthesize(given.model, bound.source, sizes=given.sizes, strict=given.strict)
    return ShownPlan(device, made, bound.origins)
