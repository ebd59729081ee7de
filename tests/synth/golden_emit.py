"""The files of a project, as bytes that do not depend on who emits them: ``golden_c`` compares them.

This runs against the code of other revisions too, as a program of its own, which is why it imports nothing but the
package's public names::

    python -P tests/synth/golden_emit.py INPUTS [--into FOLDER] < PROJECTS

``INPUTS`` has a JSON file for each input: the graph's text, the path of its model, and sizes. A project is called
``input/device/options``.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

import openinfer
from openinfer import (
    DeviceArch,
    Divide,
    ModelLoader,
    OpenInferError,
    Passes,
    Plan,
    Simplify,
    Synthesizer,
    Tuned,
    dtype_of,
    graph,
)

DEVICES = ("generic", "x86-avx2", "x86-avx512", "x86-avx512+int8", "aarch64-neon", "aarch64-neon+int8", "cortex-m4")
"""Those that are shipped; with ``+int8``, the same with instructions for products of bytes."""
MODEL = "net"
DIGITS = 8
VERSION = re.compile(rf'(OpenInfer |"generator": "){re.escape(openinfer.__version__)}'.encode())
"""Where the package's version is said."""


@dataclass(frozen=True)
class Options:
    """What a synthesizer is told, besides the device. The passes are the device's own where there are none."""

    passes: Callable[[DeviceArch], Passes] | None = None
    weights: Literal["file", "array", "incbin"] = "file"
    has_selftest: bool = False


def _opposite_rollback(arch: DeviceArch) -> Passes:
    """Failed steps are rolled back where there is no operating system, and the other way round."""
    # Earlier revisions, which this runs against too, have another name for it.
    name = "rollback" if "rollback" in Passes.__dataclass_fields__ else "undo"
    rollback: dict[str, Any] = {name: not arch.features.hosted}
    return Passes(simplify=None, **rollback)


OPTIONS = {
    "default": Options(),
    "no-fuse": Options(
        lambda _: Passes(Simplify(fold=False, share=False, drop=False, norms=False), fuse=None),
        "file",
        has_selftest=True,
    ),
    "plain": Options(lambda _: Passes(simplify=None, fuse=None, schedule=False)),
    "threads": Options(lambda _: Passes(divide=Divide(threads=3, worth=0), tuned=Tuned()), "incbin"),
    "rollback": Options(_opposite_rollback, "array"),
    "no-schedule": Options(lambda _: Passes(schedule=False)),
    "two-threads": Options(lambda _: Passes(divide=Divide(threads=2))),
}


@dataclass(frozen=True, order=True)
class Choice:
    """What an input is synthesized for."""

    device: str
    options: str

    def __str__(self) -> str:
        return f"{self.device}/{self.options}"


@dataclass
class Input:
    """A graph, its model, and sizes that the graph leaves open."""

    text: str
    model: Path | None
    sizes: Mapping[str, int]

    def write(self, path: Path) -> None:
        model = None if self.model is None else str(self.model.resolve())
        path.write_text(json.dumps({"text": self.text, "model": model, "sizes": dict(self.sizes)}), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Input":
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["text"], Path(found["model"]) if found["model"] else None, found["sizes"])


def _arch(device: str) -> DeviceArch:
    name, _, feature = device.partition("+")
    arch = DeviceArch.named(name)
    return arch.model_copy(update={"features": arch.features.model_copy(update={feature: True})}) if feature else arch


def emitted(source: Input, choices: Iterable[Choice]) -> Iterator[tuple[Choice, dict[str, bytes]]]:
    """The files of an input, as each of the choices makes them; of what is refused, the code of the error."""
    parsed = graph(source.text)
    model = None if source.model is None else ModelLoader.open(source.model)
    for choice in choices:
        options, arch = OPTIONS[choice.options], _arch(choice.device)
        passes = options.passes and options.passes(arch)
        synthesizer = Synthesizer(arch, name=MODEL, passes=passes, weights=options.weights)
        try:
            plan = synthesizer.synthesize(model, parsed, sizes=source.sizes)
            files = _files(plan, has_selftest=options.has_selftest)
        except OpenInferError as error:
            codes = [found.code.value for found in error.diagnostics]
            files = {"error.txt": f"{type(error).__name__}: {', '.join(codes)}\n".encode()}
        except Exception as error:
            error.add_note(f"for {choice}: {source.text}")
            raise
        yield choice, files
    if model is not None:
        model.close()


def _files(plan: Plan, *, has_selftest: bool) -> dict[str, bytes]:
    """All files of a project, less what says where they come from: the version, and what the inputs' bytes were."""
    golden: Any = _made_up_step(plan.facts()) if has_selftest else ()
    files = plan.files(golden)
    facts = json.loads(files["plan.json"])
    hashes = [one.encode() for one in (facts["graph_sha256"], facts["model_sha256"]) if one]
    found = {}
    for path, content in files.items():
        data = VERSION.sub(rb"\1VERSION", content if isinstance(content, bytes) else content.encode())
        for one in hashes:
            data = data.replace(one, b"SHA-256")
        found[path] = data
    return found


def _made_up_step(facts: Mapping[str, Any]) -> list[Any]:
    """A step with inputs and outputs of the right shapes, at the bounds; none where a shape is more than names."""
    sizes = {**facts["sizes"]["fixed"], **facts["sizes"]["bounds"]}

    def made_up(tensors: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        found = {}
        for one in tensors:
            shape = tuple(int(sizes.get(extent, extent)) for extent in one["shape"])
            values = np.arange(int(np.prod(shape))) % 2
            found[one["variable"]] = values.reshape(shape).astype(dtype_of(one["dtype"]).array)
        return found

    try:
        values = {"inputs": made_up(facts["inputs"]), "outputs": made_up(facts["outputs"])}
    except ValueError:
        return []
    return [SimpleNamespace(**values, tolerance=None, begins=False, is_refused=False, looser=1.0)]


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """The hashes of files, by their paths."""
    return {path: sha256(data).hexdigest()[:DIGITS] for path, data in sorted(files.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the hashes of the files of projects, or write the files.")
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--into", type=Path, help="write them here, and print nothing")
    options = parser.parse_args()
    for project in sys.stdin.read().split():
        name, device, others = project.split("/")
        try:
            [(_, files)] = emitted(Input.read(options.inputs / f"{name}.json"), [Choice(device, others)])
        except Exception as error:  # noqa: BLE001  (another revision may fail in any way, which is a difference as well)
            files = {"error.txt": f"{type(error).__name__}: {error}\n".encode()}
        if options.into is None:
            print(json.dumps([project, digests(files)]), flush=True)
            continue
        for path, data in files.items():
            target = options.into / project / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


if __name__ == "__main__":
    main()
