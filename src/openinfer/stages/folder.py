"""Stages on disk: a subfolder per stage with its graph and model, and a manifest of the values that pass between them.

stages.json
stage-0/graph.oig    stage-0/model.oinf
stage-1/graph.oig    stage-1/model.oinf
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openinfer.check.bound import BoundGraph
from openinfer.errors import Code, Diagnostic, FileSpan, GraphError
from openinfer.ir import MemoryKind
from openinfer.oinf.atomic import atomic_file, write_failed
from openinfer.oinf.writer import package_of, write_package
from openinfer.stages.cut import GraphStage
from openinfer.stages.tensors import tensors_read

MANIFEST = "stages.json"
_GRAPH, _MODEL = "graph.oig", "model.oinf"


@dataclass(frozen=True)
class StoredStage:
    """A stage in files."""

    name: str
    graph: str
    model: str | None
    awaits: tuple[str, ...]
    yields: tuple[str, ...]
    has_state: bool


@dataclass(frozen=True)
class StageFolder:
    """The stages of a graph, stored in a folder."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stages: tuple[StoredStage, ...]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "StageFolder":
        """Load what ``write_stages`` wrote."""
        path = Path(folder) / MANIFEST
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            stages = tuple(_stored(Path(folder), one) for one in facts["stages"])
            return cls(_texts(facts["inputs"]), _texts(facts["outputs"]), stages)
        except (OSError, UnicodeError, ValueError, KeyError, TypeError) as error:
            message = f"{str(path)!r} does not say how a graph was split: {str(error)[:200]}"
            advice = "openinfer split GRAPH --at SCOPE --output DIR writes such a folder"
            raise GraphError(Diagnostic(Code.NOT_SPLIT, message, FileSpan(str(path)), advice)) from error


def _texts(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        message = "expected a list of names"
        raise TypeError(message)
    return tuple(found)


def _stored(folder: Path, facts: Any) -> StoredStage:
    place = facts["folder"]
    if not isinstance(place, str) or Path(place).name != place or place in ("", ".", ".."):
        message = f"a stage is in a folder of its own, not in {place!r}"
        raise ValueError(message)
    model = folder / place / _MODEL
    return StoredStage(
        str(facts["name"]),
        str(folder / place / _GRAPH),
        str(model) if model.exists() else None,
        _texts(facts["await"]),
        _texts(facts["yield"]),
        bool(facts["has_state"]),
    )


def write_stages(folder: str | os.PathLike[str], bound: BoundGraph, stages: Sequence[GraphStage]) -> StageFolder:
    """Write the stages of a bound graph; the manifest comes last, so a folder with a manifest is complete.

    A stage's model has only the tensors that the stage reads, but all sizes and metadata.
    """
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / MANIFEST).unlink(missing_ok=True)
        for place, stage in enumerate(stages):
            _write_stage(root / f"stage-{place}", bound, stage)
    except OSError as error:
        raise write_failed(str(folder), error) from error
    awaited = {name for stage in stages for name in stage.awaits}
    facts = {
        "schema": "openinfer.stages",
        "version": 1,
        "inputs": [name for name, one in bound.vars.items() if one.kind is MemoryKind.DYNAMIC and name in awaited],
        "outputs": bound.output_names,
        "stages": [
            {
                "name": stage.name,
                "folder": f"stage-{place}",
                "await": list(stage.awaits),
                "yield": list(stage.yields),
                "has_state": stage.has_state,
            }
            for place, stage in enumerate(stages)
        ],
    }
    with atomic_file(str(root / MANIFEST)) as sink:
        sink.write(f"{json.dumps(facts, indent=1)}\n".encode())
    return StageFolder.load(folder)


def _write_stage(place: Path, bound: BoundGraph, stage: GraphStage) -> None:
    place.mkdir(exist_ok=True)
    with atomic_file(str(place / _GRAPH)) as sink:
        sink.write(stage.graph.to_text().encode())
    (place / _MODEL).unlink(missing_ok=True)
    if bound.model is not None:
        write_package(place / _MODEL, package_of(bound.model, only=tensors_read(bound, stage.graph)))
