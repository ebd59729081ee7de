"""Device descriptions: the shipped ones, hostile ones, this machine's, and what the synthesizer takes from them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openinfer import Device, DeviceArch, DeviceError, DeviceSpec
from openinfer.errors import Code, DocumentSpan, GraphError
from openinfer.synth.devices.description import FOLDER, arch_of, device_names, device_schema
from openinfer.synth.devices.host import host_document
from openinfer.synth.targets.cpu.machine import PRESETS, cpu_machine

ROOT = Path(__file__).parents[2]
CPU = {"device": {"type": "cpu"}}
MATRIX = {"a": "f16", "b": "f16", "sum": "f32", "m": 16, "n": 16, "k": 16}
DOCUMENTED = """{
  "device": {
    "type": "gpu", "api": "vulkan", "vendor": "nvidia", "name": "Mock RTX",
    "architecture": "ada_lovelace", "driver": "555.xx"
  },
  "limits": {
    "max_workgroup_size": [1024, 1024, 64], "max_shared_memory_bytes": 65536,
    "max_push_constants_bytes": 256, "max_storage_buffer_range_bytes": 2147483647
  },
  "features": {"fp16": true, "int8": true, "subgroup_ops": true, "cooperative_matrix": false},
  "memory": {"global_bytes": 17179869184, "shared_bytes_per_sm": 65536, "l2_bytes": 67108864},
  "preferences": {
    "default_precision": "fp16", "prefer_fusion": true, "prefer_persistent_kv": true, "max_kernel_ops": 12
  }
}"""

shipped = pytest.mark.parametrize("name", device_names())


def refused(document: Any) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        DeviceArch.from_json(document if isinstance(document, str | bytes) else json.dumps(document))
    return caught.value


def places(error: DeviceError) -> list[str]:
    return [one.span.path for one in error.diagnostics if isinstance(one.span, DocumentSpan)]


# --- shipped files ----------------------------------------------------------------------------------------------------


def test_the_promised_devices_are_there() -> None:
    promised = {"generic", "x86-avx2", "x86-avx512", "aarch64-neon", "cortex-m4"}
    promised |= {"ada_mock", "vulkan", "lavapipe", "cuda", "h200", "h200-vulkan"}
    assert promised <= set(device_names())


def test_the_folder_of_the_repository_is_the_one_of_the_package() -> None:
    assert (ROOT / "devices").resolve() == FOLDER.resolve()


@shipped
def test_a_shipped_file_loads_without_warnings_and_comes_back_as_it_was(name: str) -> None:
    arch = DeviceArch.named(name)
    assert arch.warnings == ()
    assert arch.to_json() == json.loads((FOLDER / f"{name}.json").read_text())


@shipped
def test_a_shipped_file_has_keys_of_the_schema_only(name: str) -> None:
    jsonschema.validate(json.loads((FOLDER / f"{name}.json").read_text()), _closed(device_schema()))


def _closed(schema: Any) -> Any:
    """A schema that allows no unknown keys."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: False if key == "additionalProperties" else _closed(value) for key, value in schema.items()}


def test_the_published_schema_is_up_to_date() -> None:
    published = json.loads((FOLDER / "schema.json").read_text())
    assert published == device_schema(), "write it with: openinfer devices --schema > devices/schema.json"
    jsonschema.Draft202012Validator.check_schema(published)


def test_every_key_is_documented() -> None:
    schema = device_schema()
    for section in [schema, *schema["$defs"].values()]:
        undocumented = [key for key, value in section["properties"].items() if "description" not in value]
        assert undocumented == []
        page = (ROOT / "docs" / "synthesis.md").read_text()
        assert [key for key in section["properties"] if f"`{key}`" not in page and f'"{key}"' not in page] == []


def test_the_documented_mock_loads_as_it_is() -> None:
    arch = DeviceArch.from_json(DOCUMENTED)
    assert arch.warnings == ()
    assert arch.to_json() == json.loads(DOCUMENTED)
    assert arch == DeviceArch.named("ada_mock")
    assert arch.limits.max_workgroup_size == (1024, 1024, 64)


@shipped
def test_a_shipped_processor_has_a_target_with_its_numbers(name: str) -> None:
    arch = DeviceArch.named(name)
    if arch.device.type != "cpu":
        return
    target = cpu_machine(arch)
    assert (target.isa, target.vector_bits) == (arch.cpu.isa, arch.cpu.vector_bits)
    assert (target.l1d, target.l2) == (arch.cpu.l1d_bytes, arch.cpu.l2_bytes)
    assert target.isa in PRESETS or arch.toolchain.cflags, "flags of its own where the isa has no preset"


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('{"device": {"type": "tpu"}}')
    with pytest.raises(DeviceError) as caught:
        DeviceArch.load(path)
    assert (
        str(caught.value) == f"error[E802]: expected 'cpu', 'gpu' or 'fpga', found \"tpu\"\n  --> {path}: /device/type"
    )


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((1 << 20) + 1))
    for path in (tmp_path / "none.json", tmp_path, large):
        with pytest.raises(DeviceError) as caught:
            DeviceArch.load(path)
        assert caught.value.code is Code.BAD_DEVICE


def test_an_unknown_name_is_refused_and_the_nearest_is_suggested() -> None:
    with pytest.raises(DeviceError, match="did you mean 'generic'"):
        DeviceArch.named("genric")
    for name in ("schema", "../files/generic", ""):
        with pytest.raises(DeviceError):
            DeviceArch.named(name)


def test_unknown_keys_are_kept_and_warned_about() -> None:
    document = {**CPU, "cpu": {"coers": 4}, "x": {"y": 1}, "memory": {"regions": [{"name": "a", "bytes": 1, "b": 2}]}}
    arch = DeviceArch.from_json(json.dumps(document), name="d.json")
    assert arch.to_json() == document
    assert [(str(one.code), one.span) for one in arch.warnings] == [
        ("W801", DocumentSpan(path, "d.json")) for path in ("/x", "/memory/regions/0/b", "/cpu/coers")
    ]
    assert arch.warnings[-1].help == "did you mean 'cores'?"


def test_comments_are_no_unknown_keys() -> None:
    assert DeviceArch.from_json({**CPU, "comment": ["a", "b"], "cpu": {"comment": "c"}}).warnings == ()


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ([], ""),
        ({}, ""),
        ({"device": {}}, "/device"),
        ({"device": None}, "/device"),
        ({**CPU, "cpu": {"cores": True}}, "/cpu/cores"),
        ({**CPU, "cpu": {"cores": 0}}, "/cpu/cores"),
        ({**CPU, "cpu": {"cores": 2.0}}, "/cpu/cores"),
        ({**CPU, "cpu": {"isa": "a b"}}, "/cpu/isa"),
        ({**CPU, "cpu": {"vector_bits": 100}}, "/cpu/vector_bits"),
        ({**CPU, "cpu": {"l2_bytes": -1}}, "/cpu/l2_bytes"),
        ({**CPU, "cpu": {"l2_bytes": 1 << 63}}, "/cpu/l2_bytes"),
        ({**CPU, "limits": {"max_workgroup_size": [1, 2]}}, "/limits/max_workgroup_size"),
        ({**CPU, "limits": {"max_workgroup_size": [1, 2, "3"]}}, "/limits/max_workgroup_size/2"),
        ({**CPU, "memory": {"regions": [{"name": "a"}]}}, "/memory/regions/0"),
        ({**CPU, "memory": {"regions": [{"name": "a", "bytes": 1, "holds": ["x"]}]}}, "/memory/regions/0/holds/0"),
        ({**CPU, "preferences": {"max_kernel_ops": 0}}, "/preferences/max_kernel_ops"),
        ({**CPU, "comment": 3}, "/comment"),
        ({**CPU, "limits": {"max_workgroup_invocations": 0}}, "/limits/max_workgroup_invocations"),
        ({**CPU, "limits": {"subgroup_size": 0}}, "/limits/subgroup_size"),
        ({**CPU, "limits": {"subgroup_size": 33}}, "/limits/subgroup_size"),
        ({**CPU, "features": {"fp64": 1}}, "/features/fp64"),
        ({**CPU, "features": {"subgroup_shuffle": "yes"}}, "/features/subgroup_shuffle"),
        ({**CPU, "numerics": {"fma": "fused"}}, "/numerics/fma"),
        ({**CPU, "numerics": {"f32_subnormals": True}}, "/numerics/f32_subnormals"),
        ({**CPU, "matrix": {}}, "/matrix"),
        ({**CPU, "matrix": [MATRIX, {**MATRIX, "a": "f12"}]}, "/matrix/1/a"),
        ({**CPU, "matrix": [{**MATRIX, "k": 0}]}, "/matrix/0/k"),
        ({**CPU, "matrix": [{"a": "f16", "b": "f16", "sum": "f32", "m": 8, "n": 8}]}, "/matrix/0"),
        ({**CPU, "matrix": [MATRIX] * 1001}, "/matrix"),
        ({**CPU, "toolchain": {"glslang": "glslang -V"}}, "/toolchain/glslang"),
        ({**CPU, "toolchain": {"nvcc": "nvcc;ls"}}, "/toolchain/nvcc"),
        ({**CPU, "toolchain": {"nvccflags": ["-O3", "$(ls)"]}}, "/toolchain/nvccflags/1"),
    ],
)
def test_a_wrong_value_is_located(document: Any, where: str) -> None:
    error = refused(document)
    assert [str(one.code) for one in error.diagnostics] == ["E802"]
    assert places(error) == [where]


def test_everything_that_is_wrong_is_said_at_once_up_to_a_limit() -> None:
    assert places(refused({**CPU, "cpu": {"cores": "four", "fma": 1}})) == ["/cpu/fma", "/cpu/cores"]
    error = refused({**CPU, "toolchain": {"cflags": ["no flag"] * 1000}})
    assert error.diagnostics[-1].message == "980 more problems"


@pytest.mark.parametrize("text", ["", "{", "nan", '{"a": 1, "a": 2}', "[" * 100_000, b"\xff", '{"a": 1e999}'])
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    assert refused(text).code is Code.BAD_JSON


@pytest.mark.parametrize("flag", ["", "O2", "-O2 -g", "-O2;reboot", "-D$(reboot)", "-D`a`", "-a\n", "-I$HOME", "-I~"])
def test_a_flag_that_a_shell_or_make_would_read_otherwise_is_refused(flag: str) -> None:
    assert places(refused({**CPU, "toolchain": {"cflags": [flag]}})) == ["/toolchain/cflags/0"]


@pytest.mark.parametrize("compiler", ["", "gcc -O2", "gcc;reboot", "$CC", "gcc\n"])
def test_a_compiler_that_is_more_than_a_command_is_refused(compiler: str) -> None:
    assert places(refused({**CPU, "toolchain": {"cc": compiler}})) == ["/toolchain/cc"]


def loaded_or_refused(text: str) -> DeviceArch | DeviceError:
    try:
        return DeviceArch.from_json(text)
    except DeviceError as error:
        return error


TEXT = st.text(st.sampled_from("a1-/ .\n\u00e9\ud800"), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SECTIONS = ("device", "limits", "features", "numerics", "matrix", "memory", "preferences", "cpu", "toolchain")
KEYS = sorted({key for section in device_schema()["$defs"].values() for key in section["properties"]})


@settings(suppress_health_check=[HealthCheck.too_slow])  # as it is beside other tests
@given(st.dictionaries(st.sampled_from(SECTIONS), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4) | JSON))
def test_any_document_loads_or_is_refused_with_places(sections: dict[str, Any]) -> None:
    document = {**CPU, **sections}
    found = loaded_or_refused(json.dumps(document))
    if isinstance(found, DeviceError):
        assert len(places(found)) == len(found.diagnostics)
    else:
        assert DeviceArch.from_json(found.to_text()) == found
        assert all(warning.render() for warning in found.warnings)


# --- this machine -----------------------------------------------------------------------------------------------------

CPUINFO = """processor\t: {number}
vendor_id\t: GenuineIntel
model name\t: Some Xeon  @ 2GHz
physical id\t: 0
core id\t\t: {core}
flags\t\t: fpu sse2 avx2 fma f16c
"""


def machine(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_this_machine_can_be_described_and_the_file_read_back(tmp_path: Path) -> None:
    arch = DeviceArch.detect()
    assert arch.warnings == ()
    assert arch.cpu.isa == cpu_machine(arch).isa
    path = tmp_path / "host.json"
    path.write_text(arch.to_text())
    assert DeviceArch.load(path) == arch
    assert DeviceArch.detect() == arch
    jsonschema.validate(arch.to_json(), _closed(device_schema()))


def test_cores_caches_and_memory_are_what_the_system_says(tmp_path: Path) -> None:
    entries = [CPUINFO.format(number=number, core=number // 2) for number in range(8)]
    cache = "sys/devices/system/cpu/cpu0/cache"
    levels = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "30720K")]
    files = {"proc/cpuinfo": "\n".join(entries), "proc/meminfo": "MemTotal:       16000 kB\n"}
    for number, (level, kind, size) in enumerate(levels):
        files |= {f"{cache}/index{number}/level": level, f"{cache}/index{number}/type": f"{kind}\n"}
        files[f"{cache}/index{number}/size"] = f"{size}\n"
    found = host_document(machine(tmp_path, files), "x86_64", set(range(6)))
    arch = DeviceArch.from_json(found)
    assert (arch.device.name, arch.device.vendor) == ("Some Xeon  @ 2GHz", "GenuineIntel")
    assert (arch.cpu.isa, arch.cpu.vector_bits, arch.cpu.cores) == ("avx2", 256, 3)
    assert (arch.cpu.l1d_bytes, arch.cpu.l2_bytes, arch.cpu.l3_bytes) == (48 << 10, 2 << 20, 30 << 20)
    assert arch.memory.global_bytes == 16000 << 10


def test_a_machine_with_products_of_bytes_says_so(tmp_path: Path) -> None:
    flags = "fma f16c avx2 avx512f avx512vl avx512bw avx512dq"
    for name, more in (("without", ""), ("with", " avx512_vnni")):
        text = CPUINFO.format(number=0, core=0).replace("avx2 fma f16c", flags + more)
        arch = DeviceArch.from_json(host_document(machine(tmp_path / name, {"proc/cpuinfo": text}), "x86_64", {0}))
        assert (arch.cpu.isa, arch.features.int8, cpu_machine(arch).dot) == ("avx512", bool(more), bool(more))
        assert ("-mavx512vnni" in cpu_machine(arch).flags) is bool(more)
    assert cpu_machine(DeviceArch.named("x86-avx512")).flags == PRESETS["avx512"].flags


def test_an_arm_machine_says_less_and_is_described_all_the_same(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 50\n\nprocessor\t: 1\nBogoMIPS\t: 50\n"}
    arch = DeviceArch.from_json(host_document(machine(tmp_path, files), "aarch64", {0, 1, 2, 3}))
    assert (arch.cpu.isa, arch.cpu.cores, arch.cpu.l1d_bytes) == ("neon", 2, None)
    assert arch.title == "aarch64"


def test_a_machine_that_says_nothing_is_generic(tmp_path: Path) -> None:
    arch = DeviceArch.from_json(host_document(tmp_path, "riscv64", {0, 1}))
    assert (arch.cpu.isa, arch.cpu.cores, arch.memory.global_bytes) == ("generic", 2, None)


# --- devices in short -------------------------------------------------------------------------------------------------


def test_every_way_to_name_a_device_leads_to_a_description() -> None:
    assert arch_of(Device.CPU) == arch_of("cpu") == arch_of("host") == arch_of(DeviceSpec.CPU()) == DeviceArch.detect()
    assert arch_of(str(FOLDER / "x86-avx2.json")) == DeviceArch.named("x86-avx2")
    assert arch_of(Device.VULKAN) == arch_of(DeviceSpec.GPU().api("vulkan"))
    assert arch_of("x86-avx2") == DeviceArch.named("x86-avx2")
    assert arch_of(DeviceSpec.CPU().isa("neon")) == DeviceArch.named("aarch64-neon")
    arch = DeviceArch.named("generic")
    assert arch_of(arch) is arch


def test_an_isa_that_no_file_describes_is_a_device_all_the_same() -> None:
    arch = DeviceSpec.CPU().isa("rvv").arch()
    assert (arch.cpu.isa, cpu_machine(arch).isa) == ("rvv", "rvv")


@pytest.mark.parametrize("device", [Device.VULKAN, Device.CUDA, DeviceSpec.GPU(), "h200", "ada_mock"])
def test_devices_that_nothing_is_written_for_say_so(device: Device | DeviceSpec | str) -> None:
    with pytest.raises(GraphError, match="no target") as caught:
        cpu_machine(arch_of(device))
    assert caught.value.code is Code.NOT_SYNTHESIZED


def test_a_description_overrides_what_its_isa_has_in_general() -> None:
    arch = DeviceArch.from_json({**CPU, "cpu": {"isa": "avx512", "vector_bits": 256, "l2_bytes": 2 << 20}})
    target = cpu_machine(arch)
    assert (target.vector_bits, target.l2) == (256, 2 << 20)
    assert target.vector_registers == PRESETS["avx512"].vector_registers
