"""Ops in programs for several threads: the bits of one thread, in convolutions of every kind and what else is divided.

``python -m tests.synth.suite --threads 2 3`` runs every op and dtype, at more sizes.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.differential.building import Toolchain
from tests.synth.in_c import judge
from tests.synth.in_threads import WORTH, Answers, Setting, answered, asked, hosted
from tests.synth.large_cases import large_cases
from tests.synth.standalone import Toolchain as Compiler
from tests.synth.suite import Run, verdict_on
from tests.synth.suite_cases import small_ones_too

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.synth.targets.cpu.machine import GENERIC, host

KINDS = {
    "few channels": ("conv2d", 1),
    "one channel": ("conv2d", 3),
    "depthwise": ("conv2d", 4),
    "groups with strides": ("conv2d", 5),
    "groups": ("conv2d", 6),
    "channels as columns": ("conv2d", 7),
    "one position": ("conv2d", 9),
    "one axis": ("conv1d", 1),
    "three axes": ("conv3d", 1),
    "transposed": ("conv_transpose2d", 0),
}
"""An op, and which of its large cases."""


def run(kinds: Sequence[str], dtype: str, threads: tuple[int, ...], folder: Path) -> list[Answers]:
    questions = []
    for kind in kinds:
        name, place = KINDS[kind]
        case = list(large_cases(name, DTYPES[dtype]))[place]
        questions += [one for one in asked(OPS[name], [case]) if one.has_weights]
    return answered(questions, Setting(hosted(host()), threads, Toolchain("gcc", ("-O1",)), WORTH), folder)


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_convolutions_of_every_kind_have_the_bits_of_one_thread(dtype: str, tmp_path: Path) -> None:
    found = run(list(KINDS), dtype, (3,), tmp_path)
    assert [one.differences for one in found] == [[] for _ in KINDS]
    for one in found:
        judge(one.asked, one.results, 0)
    divided = [kind for kind, one in zip(KINDS, found, strict=True) if one.is_divided]
    assert divided == list(KINDS)


def test_features_of_few_channels_are_shared_in_lists_of_offsets_too(tmp_path: Path) -> None:
    with small_ones_too(gain=0.0):
        (found,) = run(["few channels"], "f32", (2,), tmp_path)
    assert found.is_divided
    assert found.differences == []


@pytest.mark.parametrize("name", ["softmax", "sort"])
def test_the_suite_takes_numbers_of_threads(name: str) -> None:
    dtypes = frozenset({"f32", "u8"})
    verdict = verdict_on(Run(GENERIC, Compiler("gcc", ("-O0",)), 1, threads=(2,), dtypes=dtypes), name)
    assert verdict.failures == []
    assert verdict.divided[name]
    assert {dtype for _, dtype in verdict.passed} == {one.name for one in OPS[name].dtypes} & dtypes
