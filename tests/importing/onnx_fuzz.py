"""Damaged ONNX files: ``python -m tests.importing.onnx_fuzz --count 50000 --seed N``.

ONNX's own test cases for nodes and a small network are damaged, as bytes and as structures that are files still: other
op types, attributes, shapes and element types, inputs left out or crossed. What comes of one is a graph or a coded
error, within bounds of time and memory; whatever else happens is a failure, and its file is kept in ``build/fuzz``.
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper
from tests.importing.backend import cases
from tests.importing.models import model, node

from openinfer import OpenInferError
from openinfer.importing import import_onnx

KEPT = Path("build/fuzz")
MOST_FAILURES = 20
MOST_SECONDS = 20
MOST_MEMORY = 4 << 30
"""Of address space, beyond what the program has when it begins."""
MOST_BYTES = 60_000
"""Seeds that are larger take long and say no more."""
Rng = np.random.Generator


class HangError(Exception):
    """A file that takes longer than the limit."""


@dataclass(frozen=True)
class Mutant:
    """A damaged file, and what was done to it."""

    label: str
    data: bytes


# --- seeds ------------------------------------------------------------------------------------------------------------


def network() -> Any:
    """A small network with shape arithmetic, a convolution, a recurrent layer, a branch and a loop."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 2, 3)).astype(np.float32),
        "wi": rng.standard_normal((1, 12, 4)).astype(np.float32),
        "wh": rng.standard_normal((1, 12, 3)).astype(np.float32),
        "shape": np.array([0, -1]),
        "axis": np.array([1]),
        "zero": np.int64(0),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1]),
        node("Transpose", ["c"], ["t"], perm=[2, 0, 1]),
        node("GRU", ["t", "wi", "wh"], ["g", "h"], hidden_size=3),
        node("Squeeze", ["g", "axis"], ["s"]),
        node("Shape", ["s"], ["size"]),
        node("Gather", ["size", "zero"], ["length"]),
        node("Reshape", ["s", "shape"], ["flat"]),
        node("Softmax", ["flat"], ["y"], axis=-1),
    ]
    inputs: Any = {"x": ("f32", [1, 2, "length"])}
    return model(nodes, inputs, {"y": ("f32", None), "length": ("i64", [])}, weights)


@cache
def seeds() -> dict[str, bytes]:
    """Files that are sound, by name."""
    found = {name: _with_integers(case).SerializeToString() for name, case in sorted(cases().items())}
    return {"network": network().SerializeToString()} | {
        name: data for name, data in found.items() if len(data) <= MOST_BYTES
    }


def _with_integers(case: Any) -> Any:
    """The model of a case with its short lists of integers stored: axes, shapes and the like, which must be known."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    values = case.data_sets[0][0] if case.data_sets else ()
    for info, value in zip(proto.graph.input, values, strict=False):
        if isinstance(value, TensorProto):
            value = numpy_helper.to_array(value)  # noqa: PLW2901  (the same value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub" and value.ndim <= 1:
            proto.graph.initializer.append(numpy_helper.from_array(value, info.name))
    return proto


# --- damage -----------------------------------------------------------------------------------------------------------


def mutant(seed: int, index: int) -> Mutant:
    """The mutant with a number: the same each time."""
    rng = np.random.default_rng((seed, index))
    names = list(seeds())
    name = names[rng.integers(len(names))] if rng.random() < 0.9 else "network"
    data = seeds()[name]
    if rng.random() < 0.85:
        proto = onnx.load_from_string(data)
        done = [_damaged(proto, rng) for _ in range(rng.integers(1, 4))]
        return Mutant(f"{name}: {', '.join(done)}", proto.SerializeToString())
    return Mutant(f"{name}: bytes", _scrambled(bytearray(data), rng))


def _scrambled(data: bytearray, rng: Rng) -> bytes:
    for _ in range(rng.integers(1, 4)):
        if len(data):
            at = int(rng.integers(len(data)))
            match rng.integers(4):
                case 0:
                    data[at] = rng.integers(256)
                case 1:
                    data[at] ^= 1 << rng.integers(8)
                case 2:
                    del data[at : at + int(rng.integers(1, 16))]
                case _:
                    data[at:at] = rng.bytes(int(rng.integers(1, 8)))
    return bytes(data[: len(data) if rng.random() < 0.9 else int(rng.integers(len(data) + 1))])


Damage = Callable[[Any, Rng], None]
NUMBERS = (0, 1, -1, 2, -2, 3, 7, 255, 1 << 16, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63))


def _chosen(items: Any, rng: Rng) -> Any:
    return items[int(rng.integers(len(items)))] if len(items) else None


def _op_type(graph: Any, rng: Rng) -> None:
    one = _chosen(graph.node, rng)
    if one is not None:
        one.op_type = _chosen(_op_types(), rng)


@cache
def _op_types() -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})


def _attribute(graph: Any, rng: Rng) -> None:
    """Another number, list, text or kind of an attribute."""
    one = _chosen(graph.node, rng)
    attribute = _chosen(one.attribute, rng) if one is not None else None
    if attribute is None:
        return
    match rng.integers(5):
        case 0:
            attribute.i = int(_chosen(NUMBERS, rng))
        case 1 if len(attribute.ints):
            attribute.ints[int(rng.integers(len(attribute.ints)))] = int(_chosen(NUMBERS, rng))
        case 2:
            attribute.ints.append(int(_chosen(NUMBERS, rng)))
        case 3:
            attribute.type = int(rng.integers(0, 15))
        case _:
            attribute.s = b"linear" if rng.random() < 0.5 else rng.bytes(3)


def _no_attribute(graph: Any, rng: Rng) -> None:
    one = _chosen(graph.node, rng)
    if one is not None and len(one.attribute):
        del one.attribute[int(rng.integers(len(one.attribute)))]


def _names(graph: Any) -> list[str]:
    return [
        *(one.name for one in (*graph.input, *graph.initializer)),
        *(name for one in graph.node for name in (*one.input, *one.output)),
        "",
    ]


def _crossed(graph: Any, rng: Rng) -> None:
    """An input of a node that is something else, its own result among others."""
    one = _chosen(graph.node, rng)
    if one is not None and len(one.input):
        one.input[int(rng.integers(len(one.input)))] = _chosen(_names(graph), rng)


def _more_inputs(graph: Any, rng: Rng) -> None:
    one = _chosen(graph.node, rng)
    if one is not None:
        one.input.append(_chosen(_names(graph), rng))


def _fewer_inputs(graph: Any, rng: Rng) -> None:
    one = _chosen(graph.node, rng)
    if one is not None and len(one.input):
        del one.input[int(rng.integers(len(one.input)))]


def _repeated(graph: Any, rng: Rng) -> None:
    """A node that stands there twice, or somewhere else."""
    one = _chosen(graph.node, rng)
    if one is None:
        return
    copy = onnx.NodeProto()
    copy.CopyFrom(one)
    if rng.random() < 0.8:  # with results of its own, which are results of the graph
        copy.output[:] = [f"{name}_2" for name in one.output]
        graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in copy.output)
    graph.node.insert(int(rng.integers(len(graph.node) + 1)), copy)


def _removed(graph: Any, rng: Rng) -> None:
    if len(graph.node) > 1:
        del graph.node[int(rng.integers(len(graph.node)))]


def _shape(graph: Any, rng: Rng) -> None:
    """Another extent, rank or element type of an input."""
    one = _chosen(graph.input, rng)
    if one is None:
        return
    kind = one.type.tensor_type
    dim = _chosen(kind.shape.dim, rng)
    match rng.integers(4):
        case 0 if dim is not None:
            dim.dim_value = int(_chosen(NUMBERS, rng))
        case 1 if dim is not None:
            dim.dim_param = str(_chosen(("n", "n + 1", "n / 0", "((", "-1", "n*n*n*n"), rng))
        case 2:
            kind.shape.dim.add().dim_value = int(rng.integers(0, 4))
        case _:
            kind.elem_type = int(_chosen((1, 1, 6, 7, 9, 10, 11, 2, 3, 16, 22, *range(27)), rng))


def _tensor(graph: Any, rng: Rng) -> None:
    """A weight of another shape, element type or content."""
    tensors = [*graph.initializer, *(one.t for made in graph.node for one in made.attribute if one.HasField("t"))]
    one = _chosen(tensors, rng)
    if one is None:
        return
    match rng.integers(4):
        case 0 if len(one.dims):
            one.dims[int(rng.integers(len(one.dims)))] = int(_chosen(NUMBERS, rng))
        case 1:
            one.data_type = int(rng.integers(0, 27))
        case 2:
            one.raw_data = rng.bytes(len(one.raw_data) or 8)
        case _:
            one.data_location = TensorProto.EXTERNAL
            one.external_data.add(key="location", value=str(_chosen(("../x", "/etc/hosts", "model.onnx", ""), rng)))


GRAPH_DAMAGE: tuple[Damage, ...] = (
    _op_type,
    _attribute,
    _attribute,
    _no_attribute,
    _crossed,
    _more_inputs,
    _fewer_inputs,
    _repeated,
    _removed,
    _shape,
    _shape,
    _tensor,
)


def _damaged(proto: Any, rng: Rng) -> str:
    """Damage something in the model or in a graph inside of it, and say what."""
    if rng.random() < 0.05 and len(proto.opset_import):
        _chosen(proto.opset_import, rng).version = int(_chosen((*range(29), 1 << 40), rng))
        return "opset"
    graphs = [proto.graph]
    for graph in graphs:
        graphs += [one.g for made in graph.node for one in made.attribute if one.HasField("g")]
    damage = GRAPH_DAMAGE[int(rng.integers(len(GRAPH_DAMAGE)))]
    damage(_chosen(graphs, rng), rng)
    return damage.__name__.strip("_")


# --- judgement --------------------------------------------------------------------------------------------------------


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise where a file takes longer."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise HangError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def verdict(made: Mutant, folder: Path) -> str:
    """``graph``, ``not sound`` where the check of a graph refuses it, or a code; whatever else happens is raised."""
    path = folder / "model.onnx"
    path.write_bytes(made.data)
    try:
        with time_limit(MOST_SECONDS):
            import_onnx(path, folder / "out", sizes=dict.fromkeys(_dimensions(made.data), "<=5"))
    except OpenInferError as error:
        return "not sound" if "is invalid" in error.message else str(error.code)
    return "graph"


def _dimensions(data: bytes) -> list[str]:
    """The names of dimensions of inputs, where a file can be read at all."""
    try:
        graph = onnx.load_from_string(data).graph
    except DecodeError:
        return []
    infos = [one for one in graph.input if one.name not in {tensor.name for tensor in graph.initializer}]
    names = {dim.dim_param for one in infos for dim in one.type.tensor_type.shape.dim}
    return sorted(name for name in names if isinstance(name, str) and name.isidentifier())  # else bytes, no text


def limit_memory() -> None:
    """An upper limit on what this process may take."""
    with open("/proc/self/statm", encoding="ascii") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + MOST_MEMORY, own + MOST_MEMORY))


def _kept(made: Mutant, number: int) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{number}.onnx").write_bytes(made.data)
    (KEPT / f"{number}.txt").write_text(f"{made.label}\n{traceback.format_exc()}")
    print(f"FAILED {number} {made.label}\n{traceback.format_exc(limit=-2)}", file=sys.stderr)


def main() -> int:
    """Run, print what became of the mutants, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutant")
    given = parser.parse_args()
    start, found, failures = perf_counter(), Counter[str](), 0
    seeds()
    limit_memory()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for number in range(given.first, given.first + given.count):
            made = mutant(given.seed, number)
            try:
                found[verdict(made, Path(folder))] += 1
            except (Exception, HangError):  # noqa: BLE001  (whatever a mutant causes is what is looked for)
                _kept(made, number)
                failures += 1
                if failures >= MOST_FAILURES:
                    break
    print(", ".join(f"{name} {count:,}" for name, count in found.most_common()))
    print(f"{perf_counter() - start:.0f} s, {failures} failures" + (f", kept in {KEPT}" if failures else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
