"""Patterns of elementary ops that are one op here: norms, activations, attention, and what weights can take in.

A rule looks at one op and those that lead to it. It gives the steps that replace the op, the last with the same
results, or None. What the pattern was made of goes when nothing reads it any more.
"""

from collections.abc import Callable
from dataclasses import replace

from openinfer.importing.cleanup import cleaned
from openinfer.importing.draft import Draft, DraftLoop, DraftOp, DraftStep
from openinfer.importing.idioms.activations import IdiomRewrite, gelu, hard_sigmoid, hard_swish, silu
from openinfer.importing.idioms.attention import rope, sdpa
from openinfer.importing.idioms.matching import Matches
from openinfer.importing.idioms.norms import (
    conv_bias,
    folded_batch_norm,
    layer_norm,
    linear,
    rms_norm,
    scaled_norm,
    shifted_norm,
)

IdiomRule = Callable[[Matches, DraftOp], IdiomRewrite]
ROUNDS: tuple[tuple[IdiomRule, ...], ...] = (
    (silu, hard_sigmoid, gelu, layer_norm, rms_norm, folded_batch_norm, linear, rope),
    (scaled_norm, hard_swish, conv_bias, sdpa),
    (shifted_norm, folded_batch_norm),
)
"""Rules that are tried together; later ones build on what earlier ones found."""


def with_idioms(draft: Draft) -> Draft:
    """The draft with the patterns that it has written as one op each."""
    for rules in ROUNDS:
        draft = cleaned(draft)
        matches = Matches(draft)
        draft = replace(draft, steps=_rewritten(draft.steps, matches, rules))
    return cleaned(draft)


def _rewritten(steps: tuple[DraftStep, ...], matches: Matches, rules: tuple[IdiomRule, ...]) -> tuple[DraftStep, ...]:
    found: list[DraftStep] = []
    for step in steps:
        if isinstance(step, DraftLoop):
            found.append(replace(step, body=_rewritten(step.body, matches, rules)))
            continue
        rewrites = (rule(matches, step) for rule in rules) if isinstance(step, DraftOp) and step.declares else ()
        found += next((rewrite for rewrite in rewrites if rewrite is not None), [step])
    return tuple(found)
