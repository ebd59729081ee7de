"""Lower ATen ops to ops of the language: one translator per op, looked up by name."""

from openinfer.importing.aten import (  # noqa: F401  (each registers its translators)
    activations,
    complex_numbers,
    compose,
    control,
    create,
    elementwise,
    index,
    linear,
    move,
    norm,
    pool,
    recurrent,
    reduce,
)
from openinfer.importing.aten.context import TABLE, AtenContext

__all__ = ["TABLE", "AtenContext"]
