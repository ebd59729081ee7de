"""Runs a float graph on samples and records how the values of each group are spread."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from openinfer.dtypes import Array
from openinfer.errors import ExecutionError
from openinfer.oinf.statistics import Advance
from openinfer.quantizing.channels import ChannelSpread
from openinfer.quantizing.ranges import Codes, Observer, Spread, chosen
from openinfer.quantizing.samples import Samples
from openinfer.quantizing.sites import Analysis, CodeGroup, CodeSite, QuantLayer
from openinfer.sim.executor import Executor
from openinfer.sim.views import ExecutionPoint

LoopPlace = tuple[int, ...]
"""The values of the loop indices of a path."""


@dataclass(frozen=True)
class Watcher:
    """Callbacks before and after nodes execute, with the indices of the loops around them."""

    nodes: Collection[int]
    before: Callable[[int, ExecutionPoint], None]
    after: Callable[[int, Mapping[str, int], Mapping[str, Array]], None]


@dataclass
class Calibration:
    """What calibration has seen: spreads by group and place, and where each layer was executed."""

    spreads: dict[tuple[int, LoopPlace], Spread] = field(default_factory=dict)
    channels: dict[tuple[int, LoopPlace], ChannelSpread] = field(default_factory=dict)
    """Only of groups that may be smoothed."""
    places: dict[int, dict[LoopPlace, None]] = field(default_factory=dict)


def place_of(path: tuple[str, ...], indices: Mapping[str, int]) -> LoopPlace:
    """The values of the indices of a path."""
    return tuple(indices[index] for index in path)


def calibrated(
    executor: Executor, analysis: Analysis, by_channel: Collection[int], samples: Samples, advance: Advance
) -> Calibration:
    """Run all samples in order as steps of one executor. For groups in ``by_channel``, also record channels."""
    found = Calibration()
    read: dict[int, list[CodeSite]] = {}
    written: dict[int, list[CodeSite]] = {}
    for site in analysis.group_of:
        (read if site.is_read else written).setdefault(site.node, []).append(site)

    def observe(group: CodeGroup, indices: Mapping[str, int], values: Array) -> None:
        key = group.number, place_of(group.path, indices)
        found.spreads.setdefault(key, Spread()).add(values)
        if group.number in by_channel:
            found.channels.setdefault(key, ChannelSpread()).add(values)

    def before(node: int, point: ExecutionPoint) -> None:
        for site in read.get(node, ()):
            observe(analysis.group_of[site], point.indices, point.read(site.access))
        if node in analysis.layers:
            place = place_of(analysis.layers[node].path, point.indices)
            found.places.setdefault(node, {})[place] = None

    def after(node: int, indices: Mapping[str, int], results: Mapping[str, Array]) -> None:
        for site in written.get(node, ()):
            observe(analysis.group_of[site], indices, results[site.access.base])

    watcher = Watcher({*read, *written, *analysis.layers}, before, after)
    for sample in samples:
        watch(executor, sample, watcher)
        advance(1)
    return found


def watch(executor: Executor, sample: Mapping[str, Array], watcher: Watcher) -> None:
    """Run one step, node by node."""
    executor.insert(sample)
    executor.begin_step()
    origins = executor.bound.origins
    try:
        _announce(executor, watcher)
        for view in executor.iterate():
            node = origins.get(view.event.node_index, view.event.node_index)
            if node in watcher.nodes and view.event.kind == "OpExecute":
                watcher.after(node, view.event.indices, dict(view.results))
            _announce(executor, watcher)
    except ExecutionError:
        executor.cancel()
        raise


def _announce(executor: Executor, watcher: Watcher) -> None:
    """Announce the next node, while the values that it reads still exist."""
    if not executor.is_suspended:
        return
    point = executor.place
    if point.node is None:
        return
    node = executor.bound.origins.get(point.node.index, point.node.index)
    if node in watcher.nodes:
        watcher.before(node, point)


def codes_of(analysis: Analysis, calibration: Calibration, observer: Observer) -> dict[tuple[int, LoopPlace], Codes]:
    """Scale and zero point of each group, by the place in its loops."""
    symmetric = {group.number: group.is_symmetric for group in analysis.groups}
    return {
        (number, place): chosen(spread, observer, symmetric=symmetric[number])
        for (number, place), spread in calibration.spreads.items()
    }


def unreached(analysis: Analysis, calibration: Calibration) -> Iterator[QuantLayer]:
    """Layers that no sample reached."""
    return (layer for layer in analysis.layers.values() if layer.node not in calibration.places)
