"""Smoothing: moves outliers of a value into the weights that it is multiplied with.

A few channels of an activation are often much larger than all others, for example after a normalisation. One scale for
all channels then leaves few codes for the rest. So each channel gets a factor of the scale, and the weights of the
channel are multiplied by it: exact in floats, and free at run time, since the value is rounded with a scale for each
channel.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Array
from openinfer.quantizing import kinds
from openinfer.quantizing.analysis import Candidates
from openinfer.quantizing.calibrate import Calibration, LoopPlace
from openinfer.quantizing.channels import ChannelSpread
from openinfer.quantizing.ranges import Codes, Smoothing, codes_for, weight_codes, weight_scales
from openinfer.quantizing.sharing import Sharing
from openinfer.quantizing.sites import Analysis, CodeGroup, QuantLayer
from openinfer.quantizing.stored import StoredCodes, StoredWeights, smoothed_weights

STRENGTHS = (0.5, 0.75)
"""How much of an outlier the weights absorb; the best value depends on how uneven they are themselves."""
_WORTHWHILE = 0.7
"""Smoothing must reduce the squared error of a layer to this fraction to be worth a scale per channel."""
_TINY = 1e-8


def smoothable(candidates: Candidates, analysis: Analysis, sharing: Sharing) -> dict[int, tuple[QuantLayer, ...]]:
    """The groups that may have a scale per channel, by number, with the layers that read them.

    Nothing else may read the codes, and the layers must own their weights, since these change with the scale.
    """
    readers: dict[int, list[int]] = defaultdict(list)
    for (node, _), site in analysis.operands.items():
        readers[analysis.group_of[site].number].append(node)
    found = {}
    for group in analysis.groups:
        layers = [analysis.layers.get(node) for node in readers[group.number]]
        taking = [one for one in layers if one is not None and _takes(candidates, one, group, sharing)]
        if taking and len(taking) == len(layers) and _is_rounded_alone(analysis, group):
            found[group.number] = tuple(taking)
    return found


def _is_rounded_alone(analysis: Analysis, group: CodeGroup) -> bool:
    """Whether the codes of a group are rounded from numbers in one place, not from the sums of a layer."""
    (site, *others) = group.sites
    is_of_sums = not site.is_read and (site.node in analysis.layers or site.node in analysis.folded)
    return not others and not site.access.bracketed and not is_of_sums


def _takes(candidates: Candidates, layer: QuantLayer, group: CodeGroup, sharing: Sharing) -> bool:
    """Whether a layer multiplies the rows of a value by a matrix of its own."""
    own = candidates.op(layer.node)
    if own is None or own.call is None or layer.weights is None or layer.path != group.path:
        return False
    return kinds.multiplies_rows(own.record.name, own.call.params) and sharing.is_own(layer, layer.weights)


def smoothed(
    layers: Mapping[int, tuple[QuantLayer, ...]],
    calibration: Calibration,
    codes: Mapping[tuple[int, LoopPlace], Codes],
    stored: StoredWeights,
    symmetric: Mapping[int, bool],
) -> tuple[dict[tuple[int, LoopPlace], Codes], dict[str, Smoothing]]:
    """The codes of values that are better smoothed, and the smoothing of each matrix by name."""
    found: dict[tuple[int, LoopPlace], Codes] = {}
    matrices: dict[str, Smoothing] = {}
    for (number, place), spread in calibration.channels.items():
        entries = [(_entry(stored, layer, place), layer.axis) for layer in layers[number]]
        weights = [(stored.array(name), axis) for name, axis in entries]
        best = _best(spread, weights, codes[number, place], is_symmetric=symmetric[number])
        if best.smoothing is not None:
            found[number, place] = best
            matrices |= {name: best.smoothing for name, _ in entries}
    return found, matrices


def _entry(stored: StoredWeights, layer: QuantLayer, place: LoopPlace) -> str:
    assert layer.weights is not None
    return stored.entry(layer.weights, dict(zip(layer.path, place, strict=True)))


def _best(spread: ChannelSpread, weights: Sequence[tuple[Array, int]], plain: Codes, *, is_symmetric: bool) -> Codes:
    """Of codes with and without smoothing, those with the least error in the results of the layers."""
    if not len(spread.rows):
        return plain
    best, least = plain, _WORTHWHILE * _error(spread.rows, weights, plain)
    for strength in STRENGTHS:
        smoothing = Smoothing(strength, _factors(spread, weights, strength))
        # Nothing is clipped: an outlier no longer takes codes away from the other channels.
        low, high = float((spread.low / smoothing.factors).min()), float((spread.high / smoothing.factors).max())
        tried = replace(codes_for(low, high, symmetric=is_symmetric), smoothing=smoothing)
        error = _error(spread.rows, weights, tried)
        if error < least:
            best, least = tried, error
    return best


def _factors(spread: ChannelSpread, weights: Sequence[tuple[Array, int]], strength: float) -> npt.NDArray[np.float32]:
    """The factor of each channel, as in SmoothQuant: ``|x| ** strength / |w| ** (1 - strength)``.

    Channels that were small in all samples count as the median: other inputs may be larger there, and would be clipped.
    """
    values = spread.largest.astype(np.float64)
    values = np.maximum(values, max(float(np.median(values)), _TINY))
    largest = [np.abs(matrix.astype(np.float64)).max(axis=axis, initial=_TINY) for matrix, axis in weights]
    logarithms = strength * np.log(values) - (1 - strength) * np.log(np.maximum.reduce(largest))
    return np.asarray(np.exp(logarithms - logarithms.mean()), np.float32)


def _error(rows: npt.NDArray[np.float32], weights: Sequence[tuple[Array, int]], codes: Codes) -> float:
    """The squared error of products of rounded rows and rounded weights."""
    steps = codes.of(rows).astype(np.float32) - np.float32(codes.zero)
    total = 0.0
    for matrix, axis in weights:
        scaled = matrix if codes.smoothing is None else smoothed_weights(matrix, axis, codes.smoothing)
        scales = weight_scales(scaled, axis)
        rounded = StoredCodes(weight_codes(scaled, scales, axis), scales, axis).real() * np.float32(codes.scale)
        exact, found = (left @ (right.T if axis == 0 else right) for left, right in ((rows, matrix), (steps, rounded)))
        total += float(np.square(exact - found, dtype=np.float64).sum())
    return total
