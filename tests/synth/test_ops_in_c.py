"""Every op in generated C against the simulator."""

from pathlib import Path

import pytest
from tests.synth.in_c import check_op

from openinfer.ops.lower.operand import LOWERINGS


@pytest.mark.parametrize("name", sorted(LOWERINGS))
def test_generated_c_agrees_with_the_simulator(name: str, tmp_path: Path) -> None:
    assert check_op(name, tmp_path) > 0
