"""What a device lacks is refused at the node that needs it (E805); what its file does not mention is asked for."""

from typing import Any

import pytest

from openinfer import Device, DeviceArch, DeviceSpec, GraphError, Synthesizer, graph
from openinfer.errors import Code
from openinfer.synth.targets.facts import Feature
from openinfer.synth.targets.simt.require import Requirement, lacking

CALL = "op {op} >> y;"


def device(**sections: Any) -> DeviceArch:
    return DeviceArch.from_json({"device": {"type": "gpu", "api": "vulkan", "name": "Small"}, **sections})


def synthesized(arch: DeviceArch | Device | DeviceSpec | str, op: str, dtype: str = "f32") -> dict[str, Any]:
    """What the plan of a single op says."""
    g = graph(
        f"dynamic {{ x: {dtype}[4]; }} volatile {{ y: {dtype}[4]; }} block entry {{ {CALL.format(op=op)} return y; }}"
    )
    return Synthesizer(arch).synthesize(None, g).facts()


def refusal(arch: DeviceArch, op: str, dtype: str = "f32") -> list[str]:
    with pytest.raises(GraphError) as caught:
        synthesized(arch, op, dtype)
    assert {one.code for one in caught.value.diagnostics} == {Code.MISSING_FEATURE}
    assert all(one.span is not None for one in caught.value.diagnostics)
    return [one.message for one in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("key", "op", "dtype", "message"),
    [
        ("fp64", "softplus(x)", "f32", "softplus computes in f64, and 'Small' has no f64 (features.fp64)"),
        ("fp64", "add(x, x)", "f64", "add computes in f64, and 'Small' has no f64 (features.fp64)"),
        ("fp64", "sqrt(x)", "f32", "sqrt computes in f64, and 'Small' has no f64 (features.fp64)"),
        ("fp64", "div(x, x)", "f32", "div computes in f64, and 'Small' has no f64 (features.fp64)"),
        (
            "int64",
            "add(x, x)",
            "i64",
            "add computes with 64-bit integers, and 'Small' has no 64-bit integers (features.int64)",
        ),
        (
            "int16",
            "add(x, x)",
            "f16",
            "add computes with 16-bit integers, and 'Small' has no 16-bit integers (features.int16)",
        ),
        (
            "int8",
            "add(x, x)",
            "f8",
            "add computes with 8-bit integers, and 'Small' has no 8-bit integers (features.int8)",
        ),
        (
            "storage_8bit",
            "add(x, x)",
            "f8",
            "add reads or writes 8-bit elements, and 'Small' has no 8-bit storage (features.storage_8bit)",
        ),
        (
            "storage_16bit",
            "add(x, x)",
            "f16",
            "add reads or writes 16-bit elements, and 'Small' has no 16-bit storage (features.storage_16bit)",
        ),
        (
            "buffer_addresses",
            "add(x, x)",
            "f32",
            "add accesses memory by address, and 'Small' has no buffer addresses (features.buffer_addresses)",
        ),
    ],
)
def test_a_feature_that_a_device_denies_is_refused(key: str, op: str, dtype: str, message: str) -> None:
    assert refusal(device(features={key: False}), op, dtype) == [message]
    assert {"feature": key, "assumed": True, "nodes": [0]} in synthesized(device(), op, dtype)["needs"]
    assert {"feature": key, "assumed": False, "nodes": [0]} in synthesized(device(features={key: True}), op, dtype)[
        "needs"
    ]


@pytest.mark.parametrize("dtype", ["i8", "i16", "u8", "u16"])
def test_narrow_integers_are_only_stored(dtype: str) -> None:
    """They are computed in 32 bits, so a device need not have narrower ones."""
    arch = device(features={"int8": False, "int16": False})
    assert not {"i8", "i16"} & {one["feature"] for one in synthesized(arch, "add(x, x)", dtype)["needs"]}


def test_what_no_node_needs_may_be_missing() -> None:
    keys = ("fp16", "fp64", "int64", "int16", "int8", "storage_8bit", "storage_16bit", "subgroup_ops")
    needs = synthesized(device(features=dict.fromkeys(keys, False)), "add(x, x)")["needs"]
    assert [one["feature"] for one in needs] == ["buffer_addresses"]


def test_quotients_need_f64_only_where_they_are_inexact() -> None:
    exact = {"f32_division": "exact"}
    needs = synthesized(device(features={"fp64": False}, numerics=exact), "div(x, x)")["needs"]
    assert [one["feature"] for one in needs] == ["buffer_addresses"]


def test_all_nodes_that_cannot_be_computed_are_named() -> None:
    g = graph(
        "dynamic { x: f32[4]; a: f64[4]; } volatile { y: f32[4]; b: f64[4]; }\n"
        "block entry {\n op softplus(x) >> y;\n op relu(a) >> b;\n return y, b;\n}"
    )
    with pytest.raises(GraphError) as caught:
        Synthesizer(device(features={"fp64": False})).synthesize(None, g)
    assert [(str(one.code), one.facts()["line"]) for one in caught.value.diagnostics] == [("E805", 3), ("E805", 4)]


def test_limits_of_a_device_are_kept() -> None:
    assert refusal(device(limits={"max_push_constants_bytes": 64}), "add(x, x)") == [
        "add needs 128 bytes of arguments, and 'Small' allows 64 (limits.max_push_constants_bytes)"
    ]
    assert [*lacking(device(limits={"max_shared_memory_bytes": 1024}), Requirement(shared_bytes=1025))] == [
        "needs 1025 bytes of shared memory, and 'Small' allows 1024 (limits.max_shared_memory_bytes)"
    ]
    assert [*lacking(device(limits={"max_workgroup_size": [32, 1, 1]}), Requirement(threads=64))] == [
        "needs groups of 64 threads, and 'Small' allows 32 (limits.max_workgroup_size)"
    ]
    assert synthesized(device(limits={"max_workgroup_size": [3, 1, 1], "max_workgroup_invocations": 3}), "add(x, x)")


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ({"subgroup_ops": False}, True),
        ({"subgroup_ops": False, "subgroup_shuffle": True}, False),
        ({"subgroup_ops": True, "subgroup_shuffle": False}, True),
        ({}, False),
    ],
)
def test_shuffles_are_there_as_operations_on_subgroups_are(said: dict[str, bool], *, lacks: bool) -> None:
    found = [*lacking(device(features=said), Requirement(frozenset({Feature.SHUFFLE})))]
    assert bool(found) is lacks


@pytest.mark.parametrize(
    "arch", [Device.VULKAN, DeviceSpec.GPU().api("vulkan"), "vulkan", "lavapipe", "h200-vulkan", "ada_mock"], ids=str
)
def test_documented_devices_take_a_norm(arch: Device | DeviceSpec | str) -> None:
    """It computes its factor in f64, of which some of their files say nothing."""
    needs = synthesized(arch, "rms_norm(x)")["needs"]
    assert {one["feature"] for one in needs} >= {"buffer_addresses", "fp64"}


@pytest.mark.parametrize(("length", "refused"), [(65535, False), (65536, True)])
def test_threads_run_no_more_iterations_than_a_driver_lets_them(length: int, *, refused: bool) -> None:
    """Lavapipe ends all loops of a thread that has run so many iterations, and says nothing."""
    text = f"dynamic {{ x: i32[{length}]; i: i32[{length}]; }} volatile {{ y: i32[{length}]; }}"
    g = graph(f"{text} block entry {{ op scatter(x, i, x, axis=0) >> y; return y; }}")
    Synthesizer("vulkan").synthesize(None, g)
    if not refused:
        Synthesizer("lavapipe").synthesize(None, g)
        return
    with pytest.raises(GraphError) as caught:
        Synthesizer("lavapipe").synthesize(None, g)
    assert [one.message for one in caught.value.diagnostics] == [
        "scatter needs 65536 iterations in one thread, and 'lavapipe' allows 65535 (limits.max_loop_iterations)"
    ]
