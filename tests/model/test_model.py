"""Opening, loading and writing models: what a user of the library relies on."""

import gc
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openinfer import DTYPES, Code, DType, ModelLoader, OpenInferError, Tensor
from openinfer.oinf import (
    Bitset,
    MetadataValue,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    ScalarValue,
    SizeVar,
    TensorSpec,
    UninitializedTensor,
    Writer,
    dataclass_to_oinf,
    metadata_value,
    rewrite,
    save_file,
    verify_oinf,
    write_oinf,
)

ALL = pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)


def random_values(dtype: DType, count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.values:
        return rng.choice(dtype.values, count)
    if dtype.kind == "float":
        return rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype.array)
    return rng.integers(int(dtype.minimum), int(dtype.maximum), count, dtype=dtype.compute.array, endpoint=True)


@ALL
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0,), (2, 0, 3), (1,) * 16])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("copy", [False, True])
def test_every_dtype_and_shape_reads_back_bit_for_bit(
    tmp_path: Path, dtype: DType, shape: tuple[int, ...], version: int, copy: bool
) -> None:
    count = int(np.prod(shape))
    tensor = Tensor.from_numpy(np.asarray(random_values(dtype, count, 1)).reshape(shape), dtype)
    save_file(tmp_path / "m.oinf", {"x": tensor}, version=version)
    with ModelLoader.open(tmp_path / "m.oinf", copy=copy) as model:
        found = model.load("x")
        assert (found.dtype, found.shape) == (dtype, shape)
        assert found.raw().tobytes() == tensor.raw().tobytes()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_models_read_back_equal_and_rewrite_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("random") / "m.oinf"
    name = st.text("abcXYZ019._-", min_size=1, max_size=20)
    sizevars = data.draw(st.dictionaries(name, st.integers(0, 2**64 - 1), max_size=4))
    text = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
    value: st.SearchStrategy[Any] = (
        st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(width=32) | text | st.lists(st.integers(0, 300))
    )
    metadata = data.draw(st.dictionaries(name, value, max_size=4))
    shape = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    tensors: dict[str, Any] = {}
    for key in data.draw(st.lists(name, unique=True, max_size=4)):
        dtype, extents = data.draw(st.sampled_from(list(DTYPES.values()))), data.draw(shape)
        values = np.asarray(random_values(dtype, int(np.prod(extents)), data.draw(st.integers(0, 99))))
        tensors[key] = TensorSpec(values.reshape(extents), dtype)
    save_file(path, tensors, sizevars, metadata)
    with ModelLoader.open(path) as model:
        assert dict(model.sizevars) == sizevars
        for key, expected in metadata.items():
            found = model.metadata[key]
            same = found.tolist() == expected if isinstance(found, np.ndarray) else found == expected
            assert same or str(expected) == str(found) == "nan"
        for key, spec in tensors.items():
            expected_bytes = Tensor.from_numpy(spec.values, spec.dtype).raw().tobytes()
            assert model.load(key).raw().tobytes() == expected_bytes
        rewrite(model, path.with_suffix(".again"))
    assert path.with_suffix(".again").read_bytes() == path.read_bytes()


def test_loading_is_zero_copy_lazy_and_cached(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.arange(1000, dtype=np.float32), "v": np.zeros(3)})
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        first, again = model.load("w"), model.load("w")
        assert first is again
        assert np.shares_memory(first.to_numpy(), again.storage)
        assert not first.to_numpy().flags.owndata
        assert not first.to_numpy().flags.writeable
        assert first.to_numpy().ctypes.data % 64 == 0


def test_arrays_stay_valid_after_close(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.arange(5, dtype=np.int32)})
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        values = model.load("w").to_numpy()
    gc.collect()
    assert values.tolist() == [0, 1, 2, 3, 4]


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.zeros(3)})
    before = len(os.listdir("/proc/self/fd"))
    for copy in (False, True):
        with ModelLoader.open(tmp_path / "m.oinf", copy=copy) as model:
            model.load("w")
        model = ModelLoader.open(tmp_path / "m.oinf", copy=copy)
        del model
    (tmp_path / "m.oinf").write_bytes(b"OINF\0 bad")
    with pytest.raises(OpenInferError):
        ModelLoader.open(tmp_path / "m.oinf")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@dataclass
class Everything:
    B: int
    N: SizeVar
    flag: bool
    mode: str
    rate: float
    table: list[float]
    small: ScalarValue
    bits: Bitset
    w: TensorSpec
    raw: np.ndarray[Any, Any]
    later: UninitializedTensor
    half: "TensorSpec"
    sizevars: dict[str, int] = field(default_factory=lambda: {"extra": 3})
    metadata: dict[str, Any] = field(default_factory=lambda: {"count": 300})
    tensors: dict[str, Any] = field(default_factory=lambda: {"W.0": [1.0, 2.0]})


def everything(**changes: Any) -> Everything:
    values: dict[str, Any] = {
        "B": 4,
        "N": SizeVar(2**64 - 1),
        "flag": True,
        "mode": "clamp up!",
        "rate": 0.1,
        "table": [0.5, 1.5],
        "small": ScalarValue(-1, "i16"),
        "bits": Bitset([True, False, True]),
        "w": TensorSpec([[1, 2], [3, 4]], "u8", name="w.weight"),
        "raw": np.arange(3, dtype=np.int16),
        "later": UninitializedTensor("float8e5m2", (2, 3)),
        "half": TensorSpec(np.array(1.5), "bf16"),
    }
    return Everything(**(values | changes))


def test_every_kind_of_field_goes_to_its_table(tmp_path: Path) -> None:
    write_oinf(everything(), tmp_path / "m.oinf")
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        assert dict(model.sizevars) == {"B": 4, "N": 2**64 - 1, "extra": 3}
        types = {name: info.type_name for name, info in model.metadata_info.items()}
        assert types == {
            "flag": "bool",
            "mode": "str",
            "rate": "f32",
            "table": "f32[2]",
            "small": "i16",
            "bits": "bitset[3]",
            "count": "i16",
        }
        assert model.metadata["flag"] is True
        assert np.asarray(model.metadata["bits"]).tolist() == [True, False, True]
        tensors = {name: info.type_text for name, info in model.tensors.items()}
        assert tensors == {
            "w.weight": "u8[2, 2]",
            "raw": "i16[3]",
            "later": "f8[2, 3]",
            "half": "bf16",
            "W.0": "f32[2]",
        }
        with pytest.raises(OpenInferError) as caught:
            model.load("later")
        assert caught.value.code == Code.NO_DATA


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"B": -1}, Code.BAD_AUTHORING_VALUE),
        ({"B": 2**64}, Code.BAD_AUTHORING_VALUE),
        ({"B": "four"}, Code.BAD_AUTHORING_VALUE),
        ({"mode": "caf\u00e9"}, Code.BAD_AUTHORING_VALUE),
        ({"mode": None}, Code.BAD_AUTHORING_VALUE),
        ({"mode": {"a": 1}}, Code.BAD_AUTHORING_VALUE),
        ({"mode": ["a", "b"]}, Code.UNSUPPORTED_ARRAY),
        ({"rate": 1e300}, Code.VALUE_OUT_OF_RANGE),
        ({"table": [[1], [1, 2]]}, Code.BAD_SHAPE),
        ({"small": ScalarValue(70000, "i16")}, Code.VALUE_OUT_OF_RANGE),
        ({"small": ScalarValue(1, "i17")}, Code.UNKNOWN_DTYPE),
        ({"small": 2**70}, Code.BAD_AUTHORING_VALUE),
        ({"bits": Bitset(np.array([2]))}, Code.BAD_AUTHORING_VALUE),
        ({"w": TensorSpec([300], "u8")}, Code.VALUE_OUT_OF_RANGE),
        ({"w": TensorSpec([1.5], "u8")}, Code.VALUE_OUT_OF_RANGE),
        ({"w": TensorSpec([float("nan")], "i32")}, Code.VALUE_OUT_OF_RANGE),
        ({"w": TensorSpec(["a"])}, Code.UNSUPPORTED_ARRAY),
        ({"w": TensorSpec([0], "t1")}, Code.VALUE_OUT_OF_RANGE),
        ({"w": TensorSpec(np.zeros((1,) * 17))}, Code.BAD_SHAPE),
        ({"w": TensorSpec([1], name="a b")}, Code.BAD_NAME),
        ({"w": TensorSpec([1], name="x" * 256)}, Code.BAD_NAME),
        ({"w": TensorSpec([1], name="raw")}, Code.DUPLICATE_NAME),
        ({"later": UninitializedTensor("f32", (2**40, 2**40))}, Code.SHAPE_OVERFLOW),
        ({"later": UninitializedTensor("f32", (-1,))}, Code.BAD_AUTHORING_VALUE),
        ({"later": UninitializedTensor("f32", (2.5,))}, Code.BAD_AUTHORING_VALUE),  # type: ignore[arg-type]
        ({"later": UninitializedTensor("f32", 3)}, Code.BAD_AUTHORING_VALUE),  # type: ignore[arg-type]
        ({"later": UninitializedTensor("f32", tuple(np.full(2, 2**40)))}, Code.SHAPE_OVERFLOW),
        ({"small": ScalarValue([1, 2], "f32")}, Code.BAD_AUTHORING_VALUE),  # type: ignore[arg-type]
        ({"w": TensorSpec(np.array([2], np.uint8).view(np.bool_))}, Code.VALUE_OUT_OF_RANGE),
        ({"w": TensorSpec(np.ma.array([1, 2], mask=[False, True]))}, Code.UNSUPPORTED_ARRAY),
        ({"sizevars": {"a": True}}, Code.BAD_AUTHORING_VALUE),
        ({"sizevars": {3: 1}}, Code.BAD_NAME),
        ({"tensors": {3: [1.0]}}, Code.BAD_NAME),
        ({"sizevars": {"B": 1}}, Code.DUPLICATE_NAME),
        ({"metadata": {"mode": 1}}, Code.DUPLICATE_NAME),
        ({"tensors": {"raw": [1]}}, Code.DUPLICATE_NAME),
        (
            {"w": TensorSpec([1.0], quant=QuantParams("symmetric", QuantScale.per_tensor(1)))},
            Code.BAD_QUANTIZATION,
        ),
        (
            {"w": TensorSpec([1], "i8", quant=QuantParams("symmetric", QuantScale.per_channel(1, [1])))},
            Code.BAD_QUANTIZATION,
        ),
        (
            {"w": TensorSpec([1], "i8", quant=QuantParams("symmetric", QuantScale.per_channel(0, [1, 2])))},
            Code.BAD_QUANTIZATION,
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_the_format_cannot_hold_is_refused_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], code: Code
) -> None:
    with pytest.raises(OpenInferError) as caught:
        write_oinf(everything(**changes), tmp_path / "m.oinf")
    assert caught.value.code == code
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: QuantScale.per_tensor(0.0),
        lambda: QuantScale.per_tensor(-1.0),
        lambda: QuantScale.per_tensor(1e-60),
        lambda: QuantScale.per_channel(0, [1.0, np.nan]),
        lambda: QuantScale.per_channel(-1, [1.0]),
        lambda: QuantZeroPoint.per_tensor(2**31),
        lambda: QuantZeroPoint.per_channel(0, [0.5]),
        lambda: QuantZeroPoint.per_tensor(float("nan")),  # type: ignore[arg-type]
        lambda: QuantZeroPoint.per_tensor(2**70),
        lambda: QuantZeroPoint.per_tensor("a"),  # type: ignore[arg-type]
        lambda: QuantScale.per_tensor("a"),  # type: ignore[arg-type]
        lambda: QuantScale.per_channel(0.5, [1.0]),  # type: ignore[arg-type]
        lambda: QuantScale.per_channel(0, [[1.0], [1.0, 2.0]]),
        lambda: QuantParams(["x"], QuantScale.per_tensor(1)),  # type: ignore[arg-type]
        lambda: QuantParams("sideways", QuantScale.per_tensor(1)),  # type: ignore[arg-type]
        lambda: QuantParams("symmetric", QuantScale.per_tensor(1), QuantZeroPoint.per_tensor(0)),
        lambda: QuantParams("asymmetric", QuantScale.per_tensor(1), QuantZeroPoint.per_channel(0, [0])),
    ],
)
def test_impossible_quantization_parameters_are_refused(build: Any) -> None:
    with pytest.raises(OpenInferError) as caught:
        build()
    assert caught.value.code == Code.BAD_QUANTIZATION


def test_version_1_is_written_on_request_and_refused_with_quantization(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.zeros(2, np.int8)}, version=1)
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        assert model.version == 1
    quantized = TensorSpec([1], "i8", quant=QuantParams("symmetric", QuantScale.per_tensor(1)))
    versions: list[Any] = [1, 3, True, 2.0]
    for version in versions:
        with pytest.raises(OpenInferError) as caught:
            save_file(tmp_path / "n.oinf", {"w": quantized}, version=version)
        assert caught.value.code == Code.VERSION_CANNOT_HOLD


def test_numpy_integers_are_sizes(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {}, {"D": np.int64(4)})  # type: ignore[dict-item]
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        assert model.size_of("D") == 4


@pytest.mark.parametrize("path", ["a\0b", "missing/folder/m.oinf", ""])
def test_a_path_that_cannot_be_written_is_a_typed_error(path: str) -> None:
    for write in (lambda: save_file(path, {}), lambda: Writer(path).__enter__()):
        with pytest.raises(OpenInferError) as caught:
            write()
        assert caught.value.code == Code.WRITE_FAILED


def test_a_class_or_a_plain_object_is_no_model() -> None:
    for value in (Everything, object(), 3):
        with pytest.raises(OpenInferError) as caught:
            dataclass_to_oinf(value)
        assert caught.value.code == Code.BAD_AUTHORING_VALUE


def test_the_streaming_writer_gives_the_same_bytes_as_writing_at_once(tmp_path: Path) -> None:
    tensors = {f"W.{i}": np.full((3, i), i, np.float32) for i in range(5)}
    quant = QuantParams("symmetric", QuantScale.per_tensor(0.5))
    with Writer(tmp_path / "a.oinf") as writer:
        for name in sorted(tensors, reverse=True):
            writer.add_tensor(name, tensors[name])
        writer.add_tensor("q", [1, 2], "i4", quant)
        writer.add_tensor("u", UninitializedTensor("f32", (2,)))
        writer.add_sizevar("D", 3)
        writer.add_metadata("mode", "fast")
    extra = {"q": TensorSpec([1, 2], "i4", quant=quant), "u": UninitializedTensor("f32", (2,))}
    save_file(tmp_path / "b.oinf", tensors | extra, {"D": 3}, {"mode": "fast"})
    assert (tmp_path / "a.oinf").read_bytes() == (tmp_path / "b.oinf").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.oinf", "b.oinf"]


def test_the_streaming_writer_refuses_a_name_at_once(tmp_path: Path) -> None:
    def write() -> None:
        with Writer(tmp_path / "a.oinf") as writer:
            writer.add_tensor("w", [1.0])
            writer.add_tensor("w", [1.0])

    with pytest.raises(OpenInferError) as caught:
        write()
    assert caught.value.code == Code.DUPLICATE_NAME
    assert os.listdir(tmp_path) == []


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


def test_own_metadata_types_can_be_registered(tmp_path: Path) -> None:
    @metadata_value.register
    def _(value: Celsius) -> MetadataValue:
        return metadata_value(f"{value.degrees} C")

    save_file(tmp_path / "m.oinf", {}, metadata={"t": Celsius(21.5)})
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        assert model.metadata["t"] == "21.5 C"


def test_verify_returns_what_it_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.ones(2, ml_dtypes.bfloat16)}, {"D": 2})
    report = verify_oinf(tmp_path / "m.oinf")
    assert capsys.readouterr().out == report.text() + "\n"
    assert report.ok
    with pytest.raises(OpenInferError) as caught:
        verify_oinf(tmp_path / "m.oinf", checks=[lambda model: [f"D is {model.size_of('D')}", "second"]])
    assert [str(found.message) for found in caught.value.diagnostics] == ["D is 2", "second"]
