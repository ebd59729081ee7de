"""Tables and auto-dim matrices against a naive model of what the language says about them."""

from random import Random

import numpy as np
import pytest
from tests.sim.naive_table import Array, Chosen, NaiveTable

from openinfer import bind, graph
from openinfer.ops import OpError
from openinfer.sim.tables import TableStorage

DECLARED: dict[str, tuple[str, tuple[str, ...], tuple[int, ...], float]] = {
    "A(i): f32[2] @table": ("i", (), (2,), 0),
    "A(i, j): f32 @table @init(3.0)": ("ij", (), (), 3),
    "A(i, j): f32[2, 2] @table @fixed(i=5)": ("ij", (), (2, 2), 0),
    "A(i): f32[0] @table": ("i", (), (0,), 0),
    "A(r): f32[1, 2] @auto_dim(r)": ("r", ("r",), (1, 2), 0),
    "A(r, c): f32[2, 1] @auto_dim(r, c) @init(-1.0)": ("rc", ("r", "c"), (2, 1), -1),
    "A(l, r, c): f32[1, 2] @table @auto_dim(r, c)": ("lrc", ("r", "c"), (1, 2), 0),
    "A(r, l): f32[1, 2] @table @auto_dim(r) @fixed(r=4, l=3)": ("rl", ("r",), (1, 2), 0),
    "A(l, m, r): f32[0, 2] @table @auto_dim(r)": ("lmr", ("r",), (0, 2), 0),
}
ACTIONS = 30


def index(random: Random) -> Chosen:
    if random.random() < 0.5:
        return random.randrange(6)
    ends = [None, *range(-3, 6)]
    return (random.choice(ends), random.choice(ends))


class Both:
    """A table and its model, which do the same."""

    def __init__(self, declaration: str, random: Random) -> None:
        indices, auto, shape, fill = DECLARED[declaration]
        self._variable = bind(graph(f"persistent {{ {declaration}; }} block entry {{ return; }}")).vars["A"]
        self._fill = np.asarray(fill, np.float32)
        self._random = random
        self._indices = tuple(indices)
        self._table = TableStorage(self._variable, self._fill)
        self._model = NaiveTable(self._indices, auto, shape, fill)

    def chosen(self) -> list[Chosen]:
        return [index(self._random) for _ in self._indices]

    def value(self, shape: tuple[int, ...]) -> Array:
        return np.array([self._random.randrange(100) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)

    def read(self) -> None:
        chosen = self.chosen()
        assert self._table.shape_of(chosen) == self._model.shape_of(chosen)
        np.testing.assert_array_equal(self._table.read(chosen), self._model.read(chosen))

    def write(self) -> None:
        chosen = self.chosen()
        value = self.value(self._table.shape_of(chosen))
        self._table.write(chosen, value)
        self._model.write(chosen, value)

    def reset(self) -> None:
        chosen = self.chosen()[: self._random.randrange(len(self._indices) + 1)]
        self._table.reset(chosen)
        self._model.reset(chosen)

    def save(self) -> None:
        saved = self._table.dump()
        assert all(self._table.fits(key, data.shape) for key, data in saved.items())
        self._table = TableStorage(self._variable, self._fill)
        self._table.restore(saved)

    def act(self) -> None:
        """One action as a step of its own; one that is refused has not happened."""
        self._table.begin()
        try:
            self._random.choice((self.read, self.write, self.write, self.reset, self.save))()
        except OpError:
            self._table.rollback()

    def give_up(self) -> None:
        """Actions that are taken back."""
        self._table.begin()
        for _ in range(4):
            try:
                chosen = self.chosen()
                if self._random.random() < 0.3:
                    self._table.reset(chosen[: self._random.randrange(len(chosen) + 1)])
                else:
                    self._table.write(chosen, self.value(self._table.shape_of(chosen)))
            except OpError:
                continue
        self._table.rollback()

    def compare(self) -> None:
        np.testing.assert_array_equal(self._table.read(()), self._model.read(()))


@pytest.mark.parametrize("declaration", DECLARED)
def test_tables_do_what_a_naive_model_of_the_language_does(declaration: str) -> None:
    for seed in range(40):
        both = Both(declaration, Random(seed))
        for turn in range(ACTIONS):
            both.act()
            if turn % 5 == 0:
                both.give_up()
            both.compare()
