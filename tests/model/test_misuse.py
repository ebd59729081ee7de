"""Mistakes of a program that writes or checks models are typed errors or findings, never surprises."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openinfer import Code, ModelLoader, OpenInferError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, UninitializedTensor, Writer, save_file, write_oinf
from openinfer.oinf.verify import examine

QUANT = QuantParams("symmetric", QuantScale.per_tensor(0.5))


def refused(action: Callable[[], object], code: Code) -> str:
    with pytest.raises(OpenInferError) as caught:
        action()
    assert caught.value.code == code
    return caught.value.message


def test_a_writer_writes_one_file(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.oinf")
    with writer:
        writer.add_sizevar("D", 1)
        refused(writer.__enter__, Code.BAD_AUTHORING_VALUE)
    refused(writer.__enter__, Code.BAD_AUTHORING_VALUE)
    with ModelLoader.open(tmp_path / "a.oinf") as model:
        assert model.size_of("D") == 1


def test_a_writer_takes_entries_inside_its_block_only(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.oinf")

    def require_refusals() -> None:
        refused(lambda: writer.add_sizevar("D", 1), Code.BAD_AUTHORING_VALUE)
        refused(lambda: writer.add_metadata("m", 1), Code.BAD_AUTHORING_VALUE)
        refused(lambda: writer.add_tensor("w", [1.0]), Code.BAD_AUTHORING_VALUE)
        refused(lambda: writer.add_tensor("u", UninitializedTensor("f32", (1,))), Code.BAD_AUTHORING_VALUE)

    require_refusals()
    with writer:
        pass
    require_refusals()


@pytest.mark.parametrize("spec", [TensorSpec([1], "i8"), UninitializedTensor("i8", (1,))])
@pytest.mark.parametrize("extra", [{"dtype": "i16"}, {"quant": QUANT}])
def test_a_writer_refuses_a_type_besides_a_specification(tmp_path: Path, spec: Any, extra: Any) -> None:
    with Writer(tmp_path / "a.oinf") as writer:
        refused(lambda: writer.add_tensor("w", spec, **extra), Code.BAD_AUTHORING_VALUE)


def test_quantization_of_another_type_is_refused() -> None:
    three: Any = 3
    refused(lambda: TensorSpec([1], "i8", quant=three), Code.BAD_QUANTIZATION)
    refused(lambda: UninitializedTensor("i8", (1,), quant=three), Code.BAD_QUANTIZATION)
    refused(lambda: QuantParams("symmetric", three), Code.BAD_QUANTIZATION)
    refused(lambda: QuantParams("asymmetric", QuantScale.per_tensor(1), three), Code.BAD_QUANTIZATION)


def test_metadata_errors_name_the_key(tmp_path: Path) -> None:
    for bad in (object(), [1j], [[1], [2, 3]]):
        with pytest.raises(OpenInferError, match="'rate': "):
            save_file(tmp_path / "m.oinf", {}, metadata={"rate": bad})
        with Writer(tmp_path / "w.oinf") as writer, pytest.raises(OpenInferError, match="'rate': "):
            writer.add_metadata("rate", bad)
        with pytest.raises(OpenInferError, match="'rate': "):
            write_oinf(_Rated(bad), tmp_path / "m.oinf")


@dataclass
class _Rated:
    rate: object


def test_paths_of_bytes_are_paths(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "m.oinf")
    save_file(path, {"w": np.ones(1)})
    write_oinf(_Rated(1), path)
    with Writer(path) as writer:
        writer.add_sizevar("D", 3)
    with ModelLoader.open(path) as model:
        assert model.size_of("D") == 3
        assert model.path == str(tmp_path / "m.oinf")
        assert repr(model).endswith("1 size variable, 0 metadata, 0 tensors>")


def _fails_late(model: ModelLoader) -> Iterator[object]:
    yield "first"
    yield 2
    yield 1 / (len(model.tensors) - 1)


def _loads_nothing(model: ModelLoader) -> None:
    model.load("missing")


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda _: None, []),
        (lambda _: "one message", ["one message"]),
        (lambda _: [1, "two"], ["1", "two"]),
        (_fails_late, ["first", "2", "the check _fails_late raised ZeroDivisionError: division by zero"]),
        (_loads_nothing, ["the check _loads_nothing raised OinfError: the model has no tensor 'missing'"]),
        (3, ["the check 3 raised TypeError: 'int' object is not callable"]),
    ],
)
def test_whatever_a_check_does_becomes_findings(tmp_path: Path, check: Any, expected: list[str]) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.ones(1)})
    report = examine(tmp_path / "m.oinf", [check])
    assert [found.message for found in report.diagnostics] == expected
    assert {found.code for found in report.diagnostics} <= {Code.CHECK_FAILED}
