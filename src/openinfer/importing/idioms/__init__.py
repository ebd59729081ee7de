"""Rewrites patterns of elementary ops as single ops: norms, activations, attention, and ops that fold into weights.

A rule looks at one op and those that lead to it. It returns the steps that replace the op, the last with the same
results, or None. The ops of the pattern are removed once their results are unused.
"""

from collections.abc import Callable
from dataclasses import replace

from openinfer.importing.cleanup import changing_values, cleaned, with_operands, without_dead
from openinfer.importing.draft import Draft, DraftLoop, DraftOp, DraftOperand, DraftStep, DraftValue
from openinfer.importing.idioms.activations import IdiomRewrite, gelu, hard_sigmoid, hard_swish, silu
from openinfer.importing.idioms.attention import grouped, rope, sdpa
from openinfer.importing.idioms.integers import integer_product
from openinfer.importing.idioms.matching import Matches
from openinfer.importing.idioms.moves import batched_transpose, joined_moves, neutral, neutral_integers
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
    (integer_product,),
    (batched_transpose, joined_moves, silu, hard_sigmoid, gelu, layer_norm, rms_norm, folded_batch_norm, linear, rope),
    (scaled_norm, hard_swish, conv_bias, sdpa, grouped),
    (shifted_norm, folded_batch_norm, joined_moves),
)
"""Rules that are tried together; later rounds build on what earlier ones found."""


def with_idioms(draft: Draft) -> Draft:
    """The draft with each recognised pattern replaced by one op."""
    draft = _without(draft, neutral)
    for rules in ROUNDS:
        draft = cleaned(draft)
        matches = Matches(draft)
        draft = replace(draft, steps=_rewritten(draft.steps, matches, rules))
    return cleaned(_without(draft, neutral))


def without_neutral_integers(draft: Draft) -> Draft:
    """The draft without neutral integer sums and products, outside of loops."""
    return without_dead(_without(draft, neutral_integers))


def _without(draft: Draft, rule: Callable[[Matches, DraftOp], DraftOperand | None]) -> Draft:
    """The draft without the ops that, according to a rule, leave an operand unchanged."""
    matches = Matches(draft)
    changing = {id(state.memory) for state in draft.states} | changing_values(draft)  # an op on these is a copy
    renamed: dict[int, DraftOperand] = {}
    steps: list[DraftStep] = []
    for step in draft.steps:
        changed = with_operands(step, renamed)
        is_asked = isinstance(changed, DraftOp) and changed.declares and id(changed.outputs[0]) not in changing
        kept = rule(matches, changed) if is_asked and isinstance(changed, DraftOp) else None
        if isinstance(kept, DraftValue) and isinstance(changed, DraftOp) and id(kept) not in changing:
            renamed[id(changed.outputs[0])] = kept
        else:
            steps.append(changed)
    outputs = tuple(replace(port, operand=renamed.get(id(port.operand), port.operand)) for port in draft.outputs)
    return replace(draft, steps=tuple(steps), outputs=outputs)


def _rewritten(steps: tuple[DraftStep, ...], matches: Matches, rules: tuple[IdiomRule, ...]) -> tuple[DraftStep, ...]:
    found: list[DraftStep] = []
    for step in steps:
        if isinstance(step, DraftLoop):
            found.append(replace(step, body=_rewritten(step.body, matches, rules)))
            continue
        rewrites = (rule(matches, step) for rule in rules) if isinstance(step, DraftOp) and step.declares else ()
        found += next((rewrite for rewrite in rewrites if rewrite is not None), [step])
    return tuple(found)
