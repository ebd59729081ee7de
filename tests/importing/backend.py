"""ONNX's own test cases for nodes, through the importer and the simulator.

``python -m tests.importing.backend [GLOB]`` runs them all, lists what does not agree, and counts the reasons; tests run
a part. Inputs that must be known, such as a list of axes, are fixed where a case cannot be imported without.
"""

import os
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from typing import Any

import numpy as np

from openinfer import ModelLoader, OpenInferError, Simulator, load_graph
from openinfer.importing import import_onnx

_MEMORY = "/dev/shm"


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``agrees``, ``refused`` (with codes), ``differs`` or ``fails``; and what was fixed."""

    name: str
    verdict: str
    detail: str = ""
    fixed: str = ""
    """Nothing, ``some inputs fixed`` or ``all inputs fixed``."""


@cache
def cases() -> dict[str, Any]:
    """The cases by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)} or {
            case.name: case for case in load_model_tests(kind="node")
        }


def run_case(case: Any) -> Outcome:
    """Import a case and compare its results. Inputs that cannot stay inputs are fixed: integers first, then more."""
    # Files are flushed to disk when they are written, which costs nothing in memory.
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.path.isdir(_MEMORY) else None) as folder:
        path = os.path.join(folder, "model.onnx")
        with open(path, "wb") as file:
            file.write(case.model.SerializeToString())
        outcome = Outcome(case.name, "refused")
        for fixed in _fixings(case):
            outcome = _tried(case, path, folder, fixed)
            if outcome.verdict != "refused":
                word = "" if not fixed else "all" if len(fixed) == len(case.model.graph.input) else "some"
                return replace(outcome, fixed=f"{word} inputs fixed" if word else "")
        return outcome


def _fixings(case: Any) -> Iterator[dict[str, Any]]:
    yield {}
    inputs = _arrays(case.data_sets[0][0])
    arrays = dict(zip([one.name for one in case.model.graph.input], inputs, strict=True))
    if not all(isinstance(one, np.ndarray) for one in arrays.values()):
        return
    small = {name: one for name, one in arrays.items() if one.dtype.kind in "iub" and one.ndim <= 1}
    if 0 < len(small) < len(arrays):
        yield small
    if len(arrays) > 1:
        first = next(iter(arrays))
        yield {name: one for name, one in arrays.items() if name != first}
    yield arrays


def _arrays(values: Any) -> list[Any]:
    from onnx import TensorProto, numpy_helper

    return [
        numpy_helper.to_array(one)
        if isinstance(one, TensorProto)
        else one
        if isinstance(one, list)
        else np.asarray(one)
        for one in values
    ]


def _tried(case: Any, path: str, folder: str, fixed: dict[str, Any]) -> Outcome:
    try:
        found = import_onnx(path, folder, fixed=fixed)
        with ModelLoader.open(found.model) as model:
            executor = Simulator(model).make_executor(load_graph(found.graph))
            names = [one.name for one in case.model.graph.input]
            inputs, wanted = map(_arrays, case.data_sets[0])
            given = {found.inputs[name]: one for name, one in zip(names, inputs, strict=True) if name in found.inputs}
            executor.insert(**given)
            executor.run_step()
            outputs = [one.name for one in case.model.graph.output]
            results = [executor.fetch(found.outputs[name]) for name in outputs]
    except OpenInferError as error:
        verdict = "refused" if str(error.code).startswith("E76") else "fails"
        return Outcome(case.name, verdict, f"{error.code} {error.message}")
    except Exception as error:  # noqa: BLE001  (a crash is what is looked for)
        return Outcome(case.name, "crashes", f"{type(error).__name__}: {error}")
    for result, want in zip(results, wanted, strict=True):
        reason = _difference(result, want, case)
        if reason:
            return Outcome(case.name, "differs", reason)
    return Outcome(case.name, "agrees")


def _difference(result: Any, want: Any, case: Any) -> str:
    if result.shape != want.shape:
        return f"shape {result.shape}, not {want.shape}"
    if result.dtype != want.dtype:
        return f"dtype {result.dtype}, not {want.dtype}"
    if want.dtype.kind not in "fV" and want.dtype.name not in ("bfloat16", "float8_e5m2"):
        return "" if np.array_equal(result, want) else f"{result.reshape(-1)[:5]}, not {want.reshape(-1)[:5]}"
    one, other = result.astype(np.float64), want.astype(np.float64)
    tolerance = max(case.rtol, 1e-2 if want.dtype.itemsize < 4 else 1e-3)
    if np.allclose(one, other, rtol=tolerance, atol=max(case.atol, 1e-5), equal_nan=True):
        return ""
    return f"{one.reshape(-1)[:5]}, not {other.reshape(-1)[:5]}"


def _reason(outcome: Outcome) -> str:
    """Why a case was refused, without what only this one has: names and numbers."""
    text = re.sub(r"^E\d+ (cannot import \S+ )?", "", outcome.detail)
    text = re.sub(r"node '[^']*'(, in \S+ node '[^']*')?: ", "", text)
    text = re.sub(r"^the input '[^']*' is", "an input is", text)
    return re.sub(r"'/[^']*'", "a file", text)[:90]


def main() -> None:
    """Run what matches, list what does not agree, and count."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    outcomes = []
    for name, case in cases().items():
        if fnmatch(name, pattern):
            outcomes.append(run_case(case))
            if outcomes[-1].verdict != "agrees":
                print(f"{outcomes[-1].verdict:8} {name}: {outcomes[-1].detail[:220]}", flush=True)
    print(f"\n{len(outcomes)} cases")
    counts = Counter(f"{one.verdict} {one.fixed}".strip() for one in outcomes)
    reasons = Counter(_reason(one) for one in outcomes if one.verdict == "refused")
    for title, found in (("", counts), ("refused because:", reasons)):
        print(title, *(f"{count:6} {text}" for text, count in found.most_common()), sep="\n")


if __name__ == "__main__":
    main()
