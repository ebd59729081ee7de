"""Runs both graphs on samples: how far apart their outputs are, and how many predictions are right."""

from collections.abc import Mapping
from os import PathLike, fspath

import numpy as np

from openinfer.check.bound import BoundGraph
from openinfer.dtypes import Array
from openinfer.errors import Code, Diagnostic, ExecutionError, FileSpan, nearest
from openinfer.oinf.statistics import Advance
from openinfer.quantizing.errors_of import SignalError
from openinfer.quantizing.report import Accuracy, OutputError
from openinfer.quantizing.samples import Samples, bad_samples
from openinfer.sim.executor import Executor

Labels = str | PathLike[str] | Array


def bad_option(message: str, advice: str | None = None, place: str | None = None) -> ExecutionError:
    """The error for an option that does not fit the graph."""
    return ExecutionError(
        Diagnostic(Code.BAD_QUANTIZE_OPTION, message, FileSpan(place) if place is not None else None, advice)
    )


def loaded_labels(labels: Labels, samples: Samples) -> Array:
    """Labels, one per sample."""
    path = None if isinstance(labels, np.ndarray) else fspath(labels)
    if path is not None:
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise bad_samples(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}", path) from error
        if not isinstance(found, np.ndarray):
            raise bad_samples(
                f"{path!r} holds several arrays, and labels are one", path, "numpy.save('labels.npy', labels)"
            )
        labels = found
    array = np.asarray(labels)
    if array.ndim == 0 or len(array) != samples.count or array.dtype.kind not in "iub":
        message = f"there are {samples.count} samples, and the labels are {array.dtype}{list(array.shape)}"
        raise bad_samples(message, path, "one integer for each sample")
    return array


def judged_output(bound: BoundGraph, name: str | None) -> str:
    """The output whose predictions are counted: the named one, or the first."""
    names = bound.output_names
    if name is None:
        return names[0]
    if name not in names:
        advice = nearest(name, names) or f"outputs are {', '.join(names)}"
        raise bad_option(f"there is no output {name!r}", advice)
    return name


def compared(
    executors: tuple[Executor, Executor], samples: Samples, judged: str, labels: Array | None, advance: Advance
) -> tuple[list[OutputError], Accuracy | None]:
    """Compare the outputs of both graphs over all samples."""
    names = executors[0].bound.output_names
    deviations, least = {name: SignalError() for name in names}, dict.fromkeys(names, 1.0)
    equal, count = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    right, judgements = [0, 0], 0
    for number, sample in enumerate(samples):
        both = [_outputs(executor, sample, names) for executor in executors]
        for name in names:
            alone = SignalError()
            alone.add(both[0][name], both[1][name])
            deviations[name].join(alone)
            least[name] = min(least[name], alone.cosine)
            equal[name] += int((both[0][name] == both[1][name]).sum())
            count[name] += both[0][name].size
        if labels is not None:
            for at, outputs in enumerate(both):
                right[at] += int((_prediction(outputs[judged]) == np.asarray(labels[number]).reshape(-1)).sum())
            judgements += np.asarray(labels[number]).size
        advance(1)
    kinds = {name: executors[0].bound.vars[name].dtype.kind for name in names}
    errors = [
        OutputError(name, deviations[name] if kinds[name] == "float" else None, equal[name], count[name], least[name])
        for name in names
    ]
    return errors, None if labels is None else Accuracy(judged, right[0], right[1], judgements)


def _outputs(executor: Executor, sample: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    executor.insert(sample)
    executor.run_step()
    return {name: executor.fetch(name) for name in names}


def _prediction(output: Array) -> Array:
    """The classes with the highest scores; integers are classes already."""
    return (output.argmax(axis=-1) if output.dtype.kind not in "iub" else output).reshape(-1)
