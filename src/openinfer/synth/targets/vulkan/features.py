"""The features that the text of a shader needs of a device: types and functions that core Vulkan does not guarantee.

The text decides, as the printer narrows positions and support code depends on how a device rounds. The words are few,
and a compiler finds the same features in all shaders.
"""

import re

from openinfer.synth.targets.facts import Feature

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORDS = {
    Feature.F64: r"double\w*|oi_doubles|\w+Double\w*|[\d.]+(?:e[+-]?\d+)?lf",
    Feature.F16: r"float16_t|f16vec\d",
    Feature.I64: r"u?int64_t|oi_u?int64s|\w+(?:Int|Uint)64\w*|u?int64BitsToDouble|packU?[Ii]nt2x32|\d\w*l",
    Feature.I16: r"u?int16_t",
    Feature.I8: r"u?int8_t",
    Feature.STORE8: r"oi_u?int8s",
    Feature.STORE16: r"oi_u?int16s",
    Feature.SUBGROUPS: r"subgroup(?:Inclusive|Exclusive|Clustered)?(?:Add|Mul|Min|Max|And|Or|Xor)",
    Feature.SHUFFLE: r"subgroupShuffle\w*",
}
_FEATURES = {feature: re.compile(rf"(?<![\w.])(?:{words})(?!\w)") for feature, words in _WORDS.items()}


def features_of(text: str) -> frozenset[Feature]:
    """The features that the functions in a text need.

    >>> sorted(features_of("y.v[i] = float(double(x) / 3.0lf); /* int64_t */"))
    [<Feature.F64: 'f64'>]
    """
    code = _COMMENT.sub("", text)
    return frozenset(feature for feature, words in _FEATURES.items() if words.search(code))
