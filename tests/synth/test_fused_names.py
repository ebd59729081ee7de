"""Names in fused kernels: what two kernels call alike gets a number, and loses it where it needs none any more."""

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, load
from openinfer.loops.ir import Buffer, For, Kernel
from openinfer.synth.passes.fuse.naming import renamed_apart, with_plain_outputs

F32 = DTYPES["f32"]


def copying(source: str, target: str) -> Kernel:
    x, y = Buffer(source, F32, (4,)), Buffer(target, F32, (4,))
    builder = Builder()
    with builder.loop(4) as i:
        builder.store(y, (i,), load(x, i))
    return Kernel("copy", (x,), (y,), builder.body)


def names(kernel: Kernel) -> list[str]:
    return [one.name for one in (*kernel.inputs, *kernel.outputs)]


def test_numbers_go_up_from_those_that_are_taken() -> None:
    first, second = renamed_apart(copying("x", "y"), copying("x", "y"))
    assert names(first) == ["x", "y"]
    assert names(second) == ["x_2", "y_2"]
    (loop,) = second.body
    assert isinstance(loop, For)
    assert loop.index.name == "i2"
    _, third = renamed_apart(second, second)
    assert names(third) == ["x_3", "y_3"]


def test_a_number_that_belongs_to_a_name_is_no_number_of_a_copy() -> None:
    _, second = renamed_apart(copying("layer_3", "y"), copying("layer_3", "layer_4"))
    assert names(second) == ["layer_3_2", "layer_4"]
    assert names(with_plain_outputs(second)) == ["layer_3_2", "layer_4"]


def test_results_get_their_names_back_when_these_are_free() -> None:
    first, second = renamed_apart(copying("x", "y"), copying("x", "y"))
    assert names(with_plain_outputs(second)) == ["x_2", "y"]
    assert names(with_plain_outputs(first)) == ["x", "y"]
