"""Support code in CUDA. It counts on ``-fmad=false``: what is fused says so."""

from collections.abc import Iterable

from openinfer.synth.targets.cstyle.integers import integer_functions
from openinfer.synth.targets.cstyle.support import Need, Support

SUPPORT = Support(
    folders=(("openinfer.synth.targets.cstyle", "runtime"), ("openinfer.synth.targets.cuda", "runtime")),
    generated=integer_functions,
)


def support_code(needs: Iterable[Need]) -> str:
    """The definitions in CUDA of these functions and all they call, in an order that compiles."""
    return SUPPORT.code(needs)
