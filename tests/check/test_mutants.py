"""Thousands of broken graphs: each is refused or bound, and what is bound runs or fails in our words."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.check.binding import mentioned
from tests.check.test_diagnostics import SIZES, cases
from tests.lang import mutants

from openinfer import BoundGraph, ModelLoader, OpenInferError, Simulator, bind, graph
from openinfer.check import check
from openinfer.ir import MemoryKind
from openinfer.lang import parse
from openinfer.oinf import Bitset, save_file

COUNT = 2500
NODES = 300
CHANGES = (mutants.replace_alike, mutants.replace_kind, mutants.swap, mutants.remove_stretch, mutants.repeat_stretch)
DECLARED = """sizes { T <= 8; S := 2*B; }
dynamic { x: f32[T, D]; n: i32; flag: bool; }
volatile { y: f32[T, D]; s: f32; row: f32[D]; part: f32[2, D]; at: i64[T, 2]; top: f32[T, 2]; }
constant { eps: f32; W(l): f32[D, D] @pattern("W.{l}"); two: i64 @init(2); mask: bool[2]; }
persistent { step: i32; K(l, t): f32[D] @table @fixed(l=3, t=8); M(r, c): f32[2, D] @auto_dim(r, c); P: f32[S]; }
"""
HEALTHY = tuple(
    DECLARED + text
    for text in (
        """block entry {
            loop layers (l in 0..3) { op matmul(x, W[l]) >> x; op relu(x, alpha=eps) >> x; }
            cache.read K[two, step] >> row;
            op neg(K[0, n..n+2]) >> part;
            transfer x >> y;
            return y;
        }""",
        """block entry { branch flag more less; h = op add(a=x, b=x); cache.write row >> K[n, step]; return x; }
        block more { op mul(x, model["scale"]) >> x; cache.increment step; return; }
        block less { op sum_axis(x) >> s; cache.reset K[1]; return; }""",
        """block entry { yield s; op neg(x) >> y; await s; op mul(y, s) >> y; return y; }
        block work { await s; op exp(s) >> s; yield s; }""",
        """block entry {
            assign p: f32[2];
            op topk(x, k=two) >> top, at;
            dep after(topk) before(cache.read);
            scope "a" { cache.read P[1..3] >> p; barrier; cache.read M[0..2, ] >> part; }
            return top;
        }""",
    )
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelLoader]:
    tensors = {f"W.{layer}": np.ones((16, 16), np.float32) for layer in range(3)}
    tensors["scale"] = np.array(0.5, np.float32)
    path = tmp_path_factory.mktemp("model") / "tiny.oinf"
    save_file(path, tensors, sizevars={"H": 8}, metadata={"eps": 0.5, "heads": 8, "mask": Bitset([True, False])})
    with ModelLoader.open(Path(path)) as opened:
        yield opened


def broken_text(seed: int) -> str:
    """A graph with a few tokens exchanged."""
    random = Random(seed)
    wrong = [source for source, _ in cases().values()]
    parts = list(mutants.tokens(random.choice(random.choice((HEALTHY, wrong)))))
    for _ in range(random.choice((1, 1, 2))):
        random.choice(CHANGES)(random, parts)
    return "".join(parts)


def run(bound: BoundGraph) -> None:
    """A step with inputs that are all zero."""
    executor = Simulator(bound.model, sizes=mentioned(bound.graph, SIZES), node_budget=NODES).make_executor(bound.graph)
    inputs = [one for one in bound.vars.values() if one.kind is MemoryKind.DYNAMIC and one.type.nbytes < 1 << 20]
    executor.insert({one.name: np.zeros(one.shape, one.dtype.array) for one in inputs})
    executor.run_step()


def test_the_healthy_graphs_run(model: ModelLoader) -> None:
    for text in HEALTHY:
        run(bind(graph(text), model, mentioned(graph(text), SIZES)))


def test_broken_graphs_are_refused_in_our_words_or_run(model: ModelLoader) -> None:
    seen: Counter[str] = Counter()
    for seed in range(COUNT):
        parsed = parse(broken_text(seed))
        if any(not problem.code.is_warning for problem in parsed.problems):
            continue
        binding = check(parsed.graph, model, mentioned(parsed.graph, SIZES))
        seen.update(str(problem.code) for problem in binding.problems if problem.render())
        if binding.bound is None:
            assert any(not problem.code.is_warning for problem in binding.problems)
            continue
        try:
            run(binding.bound)
            seen["ran"] += 1
        except OpenInferError as error:
            seen[f"{error.code} while running"] += 1
    assert seen["ran"] > 50
    assert len(seen) > 15
