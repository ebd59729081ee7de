"""Digits are read in f32 and in integers, in the simulator and in C, and by a program without an operating system."""

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from examples.digits.example import (
    STEMS,
    Precision,
    answers,
    art,
    board_project,
    circuit_network,
    figures,
    held_out,
    network,
)

from openinfer import Simulator, Synthesizer, dtype_of

LEAST = 0.98
DROP = 0.005
IMAGES, LABELS = held_out()


@cache
def right(precision: Precision) -> float:
    """The share of right answers in the simulator, all images at once."""
    graph, model = network(precision)
    executor = Simulator(model, sizes={"N": len(IMAGES)}).make_executor(graph)
    executor.insert(image=IMAGES)
    executor.run_step()
    return float(np.mean(executor.fetch("digit") == LABELS))


def test_the_simulator_and_c_agree_to_the_bit_in_integers() -> None:
    found = figures()
    assert found.agrees
    assert found.agreement == "the same bits"


@pytest.mark.parametrize("precision", STEMS)
def test_c_reads_as_many_digits_as_the_simulator(precision: Precision) -> None:
    graph, model = network(precision)
    found = answers(Synthesizer().synthesize(model, graph).build(), IMAGES)
    assert np.mean(np.array(found) == LABELS) == right(precision) >= LEAST


def test_integers_cost_next_to_no_accuracy() -> None:
    assert right("f32") - right("i8") <= DROP


def test_the_network_of_a_circuit_has_no_floats_and_reads_as_well() -> None:
    graph, model = circuit_network()
    executor = Simulator(model, sizes={"N": len(IMAGES)}).make_executor(graph)
    executor.insert(image=IMAGES.astype(np.int8))
    executor.run_step()
    assert right("i8") - float(np.mean(executor.fetch("digit") == LABELS)) <= DROP
    assert not any(one.dtype.kind == "float" for one in model.tensors.values())
    facts = Synthesizer("ice40-up5k").synthesize(model, graph).facts()["circuit"]
    assert facts["lanes"]["count"] == 8
    assert facts["lanes"]["use"] >= 0.85


def test_the_integer_network_multiplies_integers() -> None:
    """Weights and activations are i8 and sums i32: what comes before and after a convolution is no float."""
    graph, model = network("i8")
    executor = Simulator(model).make_executor(graph)
    executor.insert(image=IMAGES[:1])
    executor.run_step()
    assert {model.tensors[f"{layer}.weight"].dtype for layer in ("conv1", "conv2", "conv3", "out")} == {dtype_of("i8")}
    assert [executor.fetch(name).dtype for name in ("x", "h1", "p2", "p3")] == [np.int8] * 4
    assert [executor.fetch(name).dtype for name in ("sum1", "sum2", "sum3", "sum")] == [np.int32] * 4


@pytest.mark.parametrize("precision", STEMS)
def test_the_program_for_a_board_draws_and_reads(precision: Precision, tmp_path: Path) -> None:
    """Here compiled for this machine; nothing in it needs more than a C compiler and ``printf``."""
    plan = board_project(tmp_path, precision, "generic", images=60)
    ended = subprocess.run(
        ["make", "-s", "example", "CFLAGS=-O2 -Wall -Wextra -Werror"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    for image, label in zip(IMAGES[3:6], LABELS[3:6], strict=True):
        assert f"{art(image)}\nThis is a {label}.\n" in ended.stdout
    said = re.search(r"(\d+) of 60 right, with (\d+) bytes of weights, (\d+) of arena", ended.stdout)
    assert said
    assert int(said[1]) >= 58
    assert int(said[3]) == plan.placed.arena_bytes
