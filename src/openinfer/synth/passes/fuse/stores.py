"""Rewrites the stores of kernels."""

from collections.abc import Callable, Sequence

from openinfer.loops.ir import Buffer, Contraction, Statement, Store
from openinfer.loops.rewrite import map_statements


def with_stores(
    body: tuple[Statement, ...],
    out: Buffer,
    stored: Callable[[Store], list[Statement]],
    finished: Callable[[Contraction], Contraction],
) -> tuple[Statement, ...]:
    """Statements with those that write a buffer replaced."""

    def own(one: Statement) -> Sequence[Statement]:
        match one:
            case Store() if one.buffer == out:
                return stored(one)
            case Contraction() if one.out == out:
                return (finished(one),)
            case _:
                return (one,)

    return map_statements(body, own)
