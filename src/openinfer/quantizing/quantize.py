"""``quantize``: turns a float graph and its model into an integer graph and its model, in files."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from openinfer.check import bind
from openinfer.check.bound import BoundGraph
from openinfer.dtypes import Array
from openinfer.errors import Code, Diagnostic, GraphError, nearest
from openinfer.ir.text import Comments, graph_text
from openinfer.lang.format import comments_of
from openinfer.lang.source import is_json, load_graph, read_source
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.staging import staged_model
from openinfer.oinf.statistics import Advance
from openinfer.oinf.writer import save_file
from openinfer.quantizing.analysis import KEPT, AnalysisOptions, Candidates
from openinfer.quantizing.cells import kept_cells, without_cells
from openinfer.quantizing.comments import carried
from openinfer.quantizing.errors_of import LayerError, layer_errors
from openinfer.quantizing.evaluate import Labels, bad_option, compared, judged_output, loaded_labels
from openinfer.quantizing.pipeline import IntegerGraph, QuantizeOptions, integer_graph, simulator_of
from openinfer.quantizing.ranges import Observer, ObserverKind
from openinfer.quantizing.report import Accuracy, OutputError, QuantizeReport
from openinfer.quantizing.samples import Samples, SampleSource, bad_samples, samples_for
from openinfer.quantizing.stored import StoredWeights
from openinfer.quantizing.writing import WrittenGraph
from openinfer.sim import Executor

_REPORTED_SAMPLES = 32
"""Layers are compared on the first samples only: each one costs a step of both graphs, node by node."""
GraphPath = str | os.PathLike[str]


ShowsProgress = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a stage with a number of samples, and yields a function to call for each one that is done."""


def _silent(_what: str, _total: int) -> AbstractContextManager[Advance]:
    return nullcontext(lambda _count: None)


def quantize(  # noqa: PLR0913  (as many as the command has)
    graph: GraphPath,
    model: GraphPath,
    output: GraphPath,
    samples: SampleSource | None = None,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    observer: str = "mse",
    keep: Iterable[str] = (),
    symmetric: bool = False,
    weights_only: bool = False,
    smooth: bool = True,
    least_cosine: float | None = None,
    labels: Labels | None = None,
    judge: str | None = None,
    evaluate: SampleSource | None = None,
    progress: ShowsProgress = _silent,
) -> QuantizeReport:
    """Quantize a float graph to 8-bit integers: write ``NAME.oig`` and ``NAME.oinf`` into a folder.

    ``samples`` are inputs to calibrate with: an ``.npz`` file or arrays by the names of inputs, with samples along the
    first axis; a graph with persistent variables takes them as its steps, in order. ``observer`` is ``"minmax"``,
    ``"mse"``, ``"percentile"`` or ``"percentile:99.9"``. Layers that a pattern in ``keep`` matches by their result,
    weights, scope or block stay in floats. ``smooth`` lets outliers move into weights. If the cosine of an output is
    below ``least_cosine`` for a sample, the layers that lose most stay in floats, one after the other, until it is not.
    With ``labels`` the report counts correct predictions of the output ``judge``, on ``evaluate`` or else on the
    samples. ``weights_only`` needs no samples: arithmetic stays in floats.
    """
    chosen = AnalysisOptions(tuple(keep), is_symmetric=symmetric, weights_only=weights_only)
    options = QuantizeOptions(dict(sizes or {}), parsed_observer(observer), smooth, chosen)
    path = os.fspath(graph)
    stem = f"{Path(path).stem}_i8" if name is None else name
    job = _Job(path, os.fspath(output), stem, options, progress, _wanted_cosine(least_cosine))
    with ModelLoader.open(model) as opened:
        floats = _float_graph(path, opened, options)
        given = _samples(floats.bound, samples, weights_only=weights_only)
        tested = given if evaluate is None else samples_for(floats.bound, evaluate)
        judged = judged_output(floats.bound, judge)
        if least_cosine is not None and tested is None:
            raise bad_option("a least cosine needs samples to evaluate on", "evaluate=... gives some")
        if labels is not None and tested is None:
            raise bad_option("labels need samples to evaluate on", "evaluate=... gives some")
        answers = None if labels is None or tested is None else loaded_labels(labels, tested)
        return job.run(opened, floats, given, _Judged(tested, judged, answers))


@dataclass(frozen=True)
class _FloatGraph:
    """The graph as given, and the same with recurrent cells expanded, from which the integer graph is made."""

    original: BoundGraph
    bound: BoundGraph
    cells: WrittenGraph | None


@dataclass(frozen=True)
class _Judged:
    """What outputs are compared on, and the right answers if they are known."""

    samples: Samples | None
    output: str
    labels: Array | None


@dataclass(frozen=True)
class _Job:
    """What to write, and where."""

    path: str
    folder: str
    stem: str
    options: QuantizeOptions
    progress: ShowsProgress
    least_cosine: float

    def run(self, model: ModelLoader, floats: _FloatGraph, given: Samples | None, judged: _Judged) -> QuantizeReport:
        """Quantize; while the outputs are too far off, repeat without the layer that loses most."""
        job, report = self, self._attempt(model, floats, given, judged)
        while report.least_cosine < self.least_cosine:
            worst = report.worst_layer()
            if worst is None:
                raise bad_option(
                    f"the least cosine is {report.least_cosine:.5f}, and no layer is left to keep in floats"
                )
            reason = f"the least cosine is {report.least_cosine:.5f} with it"
            analysis = job.options.analysis.without({worst.node: reason})
            job = replace(job, options=replace(job.options, analysis=analysis))
            report = job._attempt(model, floats, given, judged)
        return report

    def _attempt(
        self, model: ModelLoader, floats: _FloatGraph, given: Samples | None, judged: _Judged
    ) -> QuantizeReport:
        """Write both files under temporary names, compare, and publish them only then."""
        count = given.count if given else 0
        with self.progress("calibrating", count) as advance:
            found = integer_graph(floats.bound, given, self.options, advance)
        text = graph_text(found.graph, _comments(self.path, floats, found))
        before = _bytes(model, floats.bound)
        graph_path, model_path = (os.path.join(self.folder, f"{self.stem}.{end}") for end in ("oig", "oinf"))
        with staged_model(model_path) as staged:
            save_file(staged.temporary, found.tensors, sizevars=model.sizevars, metadata=model.stored_metadata())
            with ModelLoader.open(staged.temporary) as integers:
                bound = _sound(found, integers, self.options, self.path)
                compare = _Comparing(floats, bound, self.options, found, self.progress)
                layers = compare.layers(given)
                outputs, accuracy = compare.outputs(judged)
                after = sum(info.nbytes for info in integers.tensors.values())
            floating = found.analysis.floats
            report = QuantizeReport(graph_path, model_path, count, layers, floating, outputs, before, after, accuracy)
            if report.least_cosine >= self.least_cosine:
                staged.publish({graph_path: text})
        return report


def _float_graph(path: str, model: ModelLoader, options: QuantizeOptions) -> _FloatGraph:
    original = bind(load_graph(path), model, options.sizes)
    cells = without_cells(original, options.analysis)
    bound = original if cells is None else bind(cells.graph, model, options.sizes)
    _require_matches(original, bound, options.analysis)
    return _FloatGraph(original, bound, cells)


def _samples(bound: BoundGraph, samples: SampleSource | None, *, weights_only: bool) -> Samples | None:
    if samples is not None:
        return samples_for(bound, samples)
    if not weights_only:
        raise bad_samples("there are no samples to calibrate with", None, "numpy.savez('inputs.npz', x=array)")
    return None


def _comments(path: str, floats: _FloatGraph, found: IntegerGraph) -> Comments:
    """The comments of the source, if the graph has text source."""
    if is_json(path):
        return Comments()
    comments = comments_of(read_source(path), floats.original.source)
    return carried(comments, found.rewritten.written.after(floats.cells))


def _sound(found: IntegerGraph, model: ModelLoader, options: QuantizeOptions, path: str) -> BoundGraph:
    """Bind the integer graph to its model; a mismatch is our own bug, caught before anything is written."""
    try:
        return bind(found.graph, model, options.sizes)
    except GraphError as error:
        notes = tuple(one.message for one in error.diagnostics[:5])
        message = f"the integer graph of {path!r} is invalid: {notes[0]}"
        raise GraphError(Diagnostic(Code.NOTHING_TO_QUANTIZE, message, notes=notes[1:])) from error


def _bytes(model: ModelLoader, bound: BoundGraph) -> int:
    """The bytes of weights that a graph takes from its model."""
    stored = StoredWeights(bound)
    named = {entry for name in bound.source.vars for entry in stored.entries(name)}
    return sum(info.nbytes for name, info in model.tensors.items() if name in named)


@dataclass(frozen=True)
class _Comparing:
    """Both graphs, side by side."""

    floats: _FloatGraph
    integers: BoundGraph
    options: QuantizeOptions
    found: IntegerGraph
    progress: ShowsProgress

    def _executors(self, floats: BoundGraph) -> tuple[Executor, Executor]:
        one, other = (
            simulator_of(bound, self.options.sizes).make_executor(bound.source) for bound in (floats, self.integers)
        )
        return one, other

    def layers(self, samples: Samples | None) -> list[LayerError]:
        """The errors of layers on the first samples; none without samples."""
        if samples is None:
            return []
        first = samples.first(_REPORTED_SAMPLES)
        candidates = Candidates(self.floats.bound, self.options.analysis)
        with self.progress("comparing layers", first.count) as advance:
            return layer_errors(candidates, self.found, self._executors(self.floats.bound), first, advance)

    def outputs(self, judged: _Judged) -> tuple[list[OutputError], Accuracy | None]:
        """The errors of outputs, and the number of correct predictions."""
        if judged.samples is None:
            return [], None
        executors = self._executors(self.floats.original)
        with self.progress("comparing outputs", judged.samples.count) as advance:
            return compared(executors, judged.samples, judged.output, judged.labels, advance)


def _wanted_cosine(given: float | None) -> float:
    if given is not None and not 0 < given < 1:
        raise bad_option(f"a least cosine is above 0 and below 1, not {given:g}", "least_cosine=0.99")
    return -1.0 if given is None else given


def parsed_observer(text: str) -> Observer:
    """Parse the name of an observer, which a percentile may follow.

    >>> parsed_observer("percentile:99.9")
    Observer(kind=<ObserverKind.PERCENTILE: 'percentile'>, percentile=99.9)
    """
    word, _, rest = text.partition(":")
    names = [str(kind) for kind in ObserverKind]
    if word not in names or (rest and word != "percentile"):
        raise bad_option(f"there is no observer {text!r}", f"observers are {', '.join(names)} and percentile:99.9")
    try:
        share = float(rest) if rest else Observer().percentile
    except ValueError:
        share = 0.0
    if not 50 < share <= 100:
        raise bad_option(f"a percentile is above 50 and at most 100, not {rest!r}", "percentile:99.9")
    return Observer(ObserverKind(word), share)


def _require_matches(original: BoundGraph, bound: BoundGraph, options: AnalysisOptions) -> None:
    """Reject patterns that match neither a layer nor a cell: they are misspelt."""
    for pattern in options.keep:
        alone = Candidates(bound, AnalysisOptions((pattern,)))
        names = [layer.label for layer in alone.layers()]
        if any(one.reason == KEPT for one in alone.floats) or list(kept_cells(original, pattern)):
            continue
        raise bad_option(f"no layer matches {pattern!r}", nearest(pattern, names))
