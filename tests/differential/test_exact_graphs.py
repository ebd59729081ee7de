"""Exact graphs that write the same few variables again and again: bit for bit, with every pass and with none."""

from pathlib import Path

import pytest
from tests.differential.batches import PLAIN
from tests.differential.exact_graphs import model_of, random_case
from tests.synth.both_ways import agree
from tests.synth.flags import QUICK

from openinfer.synth.targets.target import Passes


@pytest.mark.parametrize("seed", range(16))
def test_generated_c_agrees_bit_for_bit(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    passes = PLAIN if seed % 4 == 3 else Passes()
    agree(case.text, model_of(case, tmp_path), case.inputs.__getitem__, len(case.inputs), QUICK, passes=passes)
