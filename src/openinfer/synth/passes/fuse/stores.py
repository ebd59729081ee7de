"""Rewrites the stores of kernels."""

from collections.abc import Callable, Sequence

from openinfer.loops.ir import Buffer, Contraction, Result, Statement, Store, Structure
from openinfer.loops.rewrite import map_statements


def with_stores(
    body: tuple[Statement, ...],
    out: Buffer,
    stored: Callable[[Store], list[Statement]],
    finished: Callable[[Contraction], Contraction],
    written: Callable[[Result], Result] | None = None,
) -> tuple[Statement, ...]:
    """Statements with those that write a buffer replaced; without ``written``, structures stay as they are."""

    def own(one: Statement) -> Sequence[Statement]:
        match one:
            case Store() if one.buffer == out:
                return stored(one)
            case Contraction() if one.out == out:
                return (finished(one),)
            case Structure() if written is not None:
                return (one.with_results(lambda result: written(result) if result.buffer == out else result),)
            case _:
                return (one,)

    return map_statements(body, own)
