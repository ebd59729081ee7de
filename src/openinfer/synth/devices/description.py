"""Device descriptions: what a device is, has and allows, as documents that make synthesis repeatable.

``DeviceArch`` is such a document, ``DeviceSpec`` a short way to name a kind of device. Knows nothing of graphs.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from openinfer.device import Device
from openinfer.errors import Code, DeviceError, Diagnostic, DocumentSpan, counted, nearest
from openinfer.synth.devices.documents import document_bytes, parsed_document, validation_problems

FOLDER = Path(__file__).parent / "files"
"""The shipped descriptions; ``devices/`` in the repository is a link to it."""
MAX_DEVICE_BYTES = 1 << 20
HOST = "host"
"""What this machine is called."""
_Bytes = Annotated[int, Field(ge=0, lt=1 << 63)]
_Count = Annotated[int, Field(ge=1, lt=1 << 31)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]
_Program = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./+-]{1,200}$")]
_CommandWord = Annotated[str, Field(pattern=r"^-{0,2}[A-Za-z0-9][A-Za-z0-9_=,.+/:-]{0,200}$")]
_Flag = Annotated[str, Field(pattern=r"^-[A-Za-z0-9_=,.+/:-]{1,200}$")]
_Text = Annotated[str, Field(max_length=2000)]


class _Section(BaseModel):
    """A part of the document. Unknown keys are kept; ``DeviceArch.warnings`` names them."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, populate_by_name=True)

    comment: _Text | Annotated[tuple[_Text, ...], Field(strict=False)] | None = Field(
        default=None, description="For readers: where numbers come from."
    )


class DeviceFacts(_Section):
    """What the device is."""

    type: Literal["cpu", "gpu", "fpga"] = Field(description="`cpu`, `gpu` or `fpga`.")
    api: _Word | None = Field(
        default=None,
        description="What the code is written for: `c`, `vulkan`, `cuda`, `vhdl`. A CPU's is `c` unless given.",
    )
    vendor: _Text | None = Field(default=None, description="Who makes it.")
    name: _Text | None = Field(default=None, description="What people call it; it appears in the generated files.")
    architecture: _Text | None = Field(
        default=None, description="The maker's name of its generation, or the instruction set."
    )
    driver: _Text | None = Field(default=None, description="The driver's version.")


class Limits(_Section):
    """What the device's interface allows."""

    max_workgroup_size: Annotated[tuple[_Count, _Count, _Count], Field(strict=False)] | None = Field(
        default=None, description="The most invocations of a work group along each axis."
    )
    max_workgroup_invocations: _Count | None = Field(default=None, description="The most invocations of a work group.")
    max_shared_memory_bytes: _Bytes | None = Field(default=None, description="The most shared memory of a work group.")
    max_push_constants_bytes: _Bytes | None = Field(default=None, description="The most bytes of push constants.")
    max_storage_buffer_range_bytes: _Bytes | None = Field(default=None, description="The most bytes of one buffer.")
    subgroup_size: Literal[1, 2, 4, 8, 16, 32, 64, 128] | None = Field(
        default=None, description="How many invocations run in lockstep."
    )
    max_loop_iterations: _Count | None = Field(
        default=None, description="The most iterations of all loops of one thread, where a driver ends them then."
    )
    compute_units: _Count | None = Field(default=None, description="How many multiprocessors there are.")
    registers_per_unit: _Count | None = Field(default=None, description="32-bit registers of a multiprocessor.")


class Features(_Section):
    """What the device can do."""

    fp16: bool | None = Field(default=None, description="Arithmetic on f16.")
    bf16: bool | None = Field(default=None, description="Arithmetic on bf16.")
    int8: bool | None = Field(
        default=None,
        description="Arithmetic on 8-bit integers; of a processor with the isa `avx512`, its instructions VNNI.",
    )
    int8_dot: bool | None = Field(default=None, description="Dot products of 8-bit integers.")
    int16: bool | None = Field(default=None, description="Arithmetic on 16-bit integers.")
    subgroup_ops: bool | None = Field(
        default=None, description="Shuffles and reductions among invocations in lockstep."
    )
    subgroup_shuffle: bool | None = Field(
        default=None, description="Shuffles among them; as `subgroup_ops` says if it is left out."
    )
    buffer_addresses: bool | None = Field(default=None, description="Memory is reached by addresses that are numbers.")
    cooperative_matrix: bool | None = Field(default=None, description="Matrix instructions shared by invocations.")
    fp64: bool | None = Field(default=None, description="Arithmetic on f64.")
    int64: bool | None = Field(default=None, description="Arithmetic on 64-bit integers.")
    storage_8bit: bool | None = Field(default=None, description="Elements of 8 bits are stored on their own.")
    storage_16bit: bool | None = Field(default=None, description="Elements of 16 bits are stored on their own.")
    hosted: bool | None = Field(
        default=None,
        description="An operating system: files, threads and memory on request. Without it, code uses none.",
    )


class Rounding(_Section):
    """How a GPU rounds where its interface leaves it open. What is left out is taken to be inexact."""

    f32_division: Literal["exact", "last bit"] | None = Field(
        default=None, description="Quotients of f32: `exact`, or wrong in the `last bit`."
    )
    f32_sqrt: Literal["exact", "last bit"] | None = Field(
        default=None, description="Square roots of f32: `exact`, or wrong in the `last bit`."
    )
    fma: Literal["exact", "two roundings"] | None = Field(
        default=None, description="Fused multiply-add: `exact`, or `two roundings`."
    )
    f32_subnormals: Literal["exact", "flushed", "when_asked"] | None = Field(
        default=None,
        description="Subnormal f32: computed with as they are (`exact`; `when_asked`: if a shader says so), or as 0 "
        "(`flushed`).",
    )


_Matrix = Literal["f64", "f32", "f16", "bf16", "f8", "i32", "u32", "i8", "u8"]
_Side = Annotated[int, Field(ge=1, le=1024)]


class MatrixShape(_Section):
    """A product that a matrix unit computes: `m` rows and `k` columns times `k` rows and `n` columns."""

    a: _Matrix = Field(description="The dtype of the first factor.")
    b: _Matrix = Field(description="The dtype of the second factor.")
    sum: _Matrix = Field(description="The dtype in which products are added.")
    m: _Side = Field(description="Rows of the result.")
    n: _Side = Field(description="Columns of the result.")
    k: _Side = Field(description="Products of a sum.")


class MemoryRegion(_Section):
    """One memory of several."""

    name: _Word = Field(description="Its name in the linker script or the manual.")
    bytes: _Bytes = Field(description="How large it is.")
    speed: Literal["fast", "normal", "slow"] = Field(
        default="normal", description="`fast`, `normal` or `slow`, compared with the others."
    )
    holds: Annotated[tuple[Literal["arena", "state", "weights"], ...], Field(strict=False)] = Field(
        default=("arena", "state", "weights"), description="What may lie there: `arena`, `state`, `weights`."
    )


class Memory(_Section):
    """How much memory there is, and how fast."""

    global_bytes: _Bytes | None = Field(default=None, description="All of its main memory.")
    shared_bytes_per_sm: _Bytes | None = Field(default=None, description="Shared memory of a multiprocessor.")
    l2_bytes: _Bytes | None = Field(default=None, description="The cache that all multiprocessors share.")
    bandwidth_bytes_per_second: _Rate | None = Field(default=None, description="The most that main memory delivers.")
    regions: Annotated[tuple[MemoryRegion, ...], Field(strict=False)] = Field(
        default=(), description="Several memories, fast first."
    )


KernelTrial = Literal["early_launches", "early_launches_after_one", "early_launches_in_a_chain", "restrict_weights"]


class Preferences(_Section):
    """What the synthesizer should do where it has a choice."""

    default_precision: _Word | None = Field(
        default=None, description="The dtype to compute in where the graph allows several."
    )
    prefer_fusion: bool | None = Field(default=None, description="`false` gives every node a kernel of its own.")
    prefer_persistent_kv: bool | None = Field(default=None, description="Keep tables of keys and values on the device.")
    max_kernel_ops: Annotated[int, Field(ge=1, lt=1 << 31)] | None = Field(
        default=None, description="The most nodes of one kernel."
    )
    allow: Annotated[tuple[Literal["winograd"], ...], Field(strict=False, max_length=100)] = Field(
        default=(), description="What is faster and less exact, and may be done: `winograd`."
    )
    trials: Annotated[tuple[KernelTrial, ...], Field(strict=False, max_length=100)] = Field(
        default=(),
        description="Ways to write kernels that are not the usual ones, to be measured; devices with CUDA alone.",
    )


class Cpu(_Section):
    """A processor. What is left out is as for its instruction set in general."""

    isa: _Word = Field(default="generic", description="`generic`, `avx2`, `avx512`, `neon`, `cortex-m4`, ...")
    vector_bits: Annotated[int, Field(ge=0, le=2048, multiple_of=32)] | None = Field(
        default=None, description="The width of its vectors; 0 where it has none."
    )
    vector_registers: Annotated[int, Field(ge=0, le=1024)] | None = Field(
        default=None, description="How many vectors it can hold."
    )
    fma: bool | None = Field(default=None, description="Whether it multiplies and adds in one instruction.")
    address_bits: Literal[32, 64] | None = Field(
        default=None, description="The width of its addresses; 32 for a `cortex-m` and 64 for others if it is left out."
    )
    cores: Annotated[int, Field(ge=1, lt=1 << 16)] | None = Field(
        default=None, description="How many cores may be used."
    )
    l1d_bytes: _Bytes | None = Field(
        default=None, description="The first-level data cache of a core; 0 where there is none."
    )
    l2_bytes: _Bytes | None = Field(
        default=None, description="The second-level cache of a core; 0 where there is none."
    )
    l3_bytes: _Bytes | None = Field(
        default=None, description="The third-level cache of all cores; 0 where there is none."
    )
    flops_per_second: _Rate | None = Field(
        default=None, description="The most f32 operations of all cores in a second."
    )


class MemoryBlocks(_Section):
    """Memories of one kind that an FPGA has on the chip."""

    kind: _Word = Field(description="What its maker calls them: `ebr`, `spram`, ...")
    count: _Count = Field(description="How many there are.")
    bits: _Count = Field(description="What one of them holds.")
    width: _Count = Field(description="The widest word of one of them, in bits.")
    is_initialised: bool = Field(default=True, description="Whether the configuration says what it holds at first.")


class Fpga(_Section):
    """What circuits are made of, in devices of type `fpga`. What is left out is not looked at."""

    logic_cells: _Count | None = Field(default=None, description="Look-up tables, each with a flip-flop.")
    multipliers: _Count | None = Field(default=None, description="Multipliers in hardware.")
    multiplier_bits: _Count | None = Field(default=None, description="The width of their operands.")
    blocks: Annotated[tuple[MemoryBlocks, ...], Field(strict=False, max_length=100)] = Field(
        default=(), description="Memories on the chip."
    )
    clock_hz: _Rate | None = Field(default=None, description="The clock that circuits are made for.")
    synthesis: Annotated[tuple[_CommandWord, ...], Field(strict=False)] = Field(
        default=(), description="The command of yosys that maps to it, and its options; `synth` if not given."
    )
    place: Annotated[tuple[_CommandWord, ...], Field(strict=False)] = Field(
        default=(), description="The command that places and routes, and its options."
    )


class Toolchain(_Section):
    """How generated code is compiled. A device file is trusted like a Makefile: its compiler is run."""

    cc: _Program | None = Field(default=None, description="The compiler, as a command or a path.")
    cflags: Annotated[tuple[_Flag, ...], Field(strict=False)] = Field(
        default=(), description="More flags for it; those of the instruction set are added anyway."
    )
    glslang: _Program | None = Field(
        default=None, description="The compiler of shaders; `glslangValidator` if not given."
    )
    nvcc: _Program | None = Field(default=None, description="The compiler of CUDA; `nvcc` if not given.")
    nvccflags: Annotated[tuple[_Flag, ...], Field(strict=False)] = Field(
        default=(), description="More flags for it; that of the architecture is added anyway."
    )


class DeviceArch(_Section):
    """A device description, as read from a JSON document.

    >>> arch = DeviceArch.from_json('{"device": {"type": "cpu"}, "cpu": {"isa": "avx2", "coers": 4}}')
    >>> arch.cpu.isa, [warning.message for warning in arch.warnings]
    ('avx2', ["the key 'coers' is unknown"])
    """

    schema_url: str | None = Field(
        default=None, alias="$schema", description="For editors: where the schema of this file is."
    )
    device: DeviceFacts = Field(description="What kind of device it is, and what it is called.")
    limits: Limits = Field(default=Limits(), description="What its interface allows.")
    features: Features = Field(default=Features(), description="What it can do.")
    numerics: Rounding = Field(default=Rounding(), description="How it rounds.")
    matrix: Annotated[tuple[MatrixShape, ...], Field(strict=False, max_length=1000)] = Field(
        default=(), description="What its matrix units compute; nothing if there are none."
    )
    memory: Memory = Field(default=Memory(), description="Its memories: how much there is, and how fast.")
    preferences: Preferences = Field(
        default=Preferences(), description="Wishes for where the synthesizer has a choice."
    )
    cpu: Cpu = Field(default=Cpu(), description="The processor, of devices of type `cpu`.")
    fpga: Fpga = Field(default=Fpga(), description="What circuits are made of, in devices of type `fpga`.")
    toolchain: Toolchain = Field(default=Toolchain(), description="How generated code is compiled.")
    _document: str = PrivateAttr("<device>")

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any], *, name: str = "<device>") -> Self:
        """The description in a JSON text, or in what was parsed from one; ``name`` is what errors call it."""
        value = dict(document) if isinstance(document, Mapping) else parsed_document(document, name)
        _require_writable(value, name)
        try:
            found = cls.model_validate(value)
        except ValidationError as error:
            raise DeviceError(*validation_problems(error, value, name, Code.BAD_DEVICE)) from error
        found._document = name
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The description in a file."""
        data = document_bytes(path, "device description", Code.BAD_DEVICE, MAX_DEVICE_BYTES)
        return cls.from_json(data, name=os.fspath(path))

    @classmethod
    def named(cls, name: str) -> Self:
        """One of the shipped descriptions.

        >>> DeviceArch.named("cortex-m4").features.hosted
        False
        """
        if name not in device_names():
            advice = (
                nearest(name, device_names()) or f"there are {', '.join(device_names())}; a FILE.json describes another"
            )
            raise DeviceError(Diagnostic(Code.BAD_DEVICE, f"there is no device {name!r}", None, advice))
        return cls.load(FOLDER / f"{name}.json")

    @classmethod
    def called(cls, name: str) -> Self:
        """A device by the name of a shipped description, ``host`` for this machine, or the path of a ``.json`` file.

        >>> DeviceArch.called("host").device.type
        'cpu'
        """
        if name.lower().endswith(".json"):
            return cls.load(name)
        return cls.detect() if name == HOST else cls.named(name)

    @classmethod
    def detect(cls, api: str = "c") -> Self:
        """The description of this machine: instruction set, cores, caches, memory and compiler.

        With the api ``vulkan`` or ``cuda``, that of its GPU, which is asked and tried out; error E806 says what is
        missing for that.
        """
        from openinfer.synth.devices.cuda import cuda_document
        from openinfer.synth.devices.host import host_document
        from openinfer.synth.devices.vulkan import vulkan_document

        ways = {"c": host_document, "vulkan": vulkan_document, "cuda": cuda_document}
        if api not in ways:
            advice = nearest(api, ways) or f"devices are found by {', '.join(ways)}"
            message = f"nothing finds devices by {api[:80]!r} on this machine"
            raise DeviceError(Diagnostic(Code.BAD_DEVICE, message, None, advice))
        return cls.from_json(ways[api](), name="<this machine>")

    def to_json(self) -> dict[str, Any]:
        """The document: what was given, unknown keys included, and nothing else."""
        found: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return found

    def to_text(self) -> str:
        """The document as the text of a file."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    def __eq__(self, other: object) -> bool:
        """Whether two documents say the same; where they were read does not matter."""
        return self.to_json() == other.to_json() if isinstance(other, DeviceArch) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_text())

    def __repr__(self) -> str:
        what = f"{self.cpu.isa}, {counted(self.cpu.cores or 1, 'core')}" if self.device.type == "cpu" else self.api
        return f"<DeviceArch {self.title!r}: {what}>"

    @property
    def title(self) -> str:
        """What to call the device in one line."""
        return self.device.name or f"{self.device.type} {self.api}"

    @property
    def api(self) -> str | None:
        """What code is written for."""
        return self.device.api or ("c" if self.device.type == "cpu" else None)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """A warning for every key that is not known; it is kept and has no effect."""
        return tuple(
            Diagnostic(
                Code.UNKNOWN_DEVICE_KEY, f"the key {key!r:.80} is unknown", DocumentSpan(path, self._document), advice
            )
            for path, key, advice in _unknown(self, "")
        )


# --- reading ----------------------------------------------------------------------------------------------------------


def _require_writable(value: Any, name: str) -> None:
    """Refuse what could not be written as a file again: unknown keys are kept, whatever their values."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DeviceError(_problem("half of a surrogate pair is not text", name)) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise DeviceError(_problem(f"this is not a JSON document: {error}", name)) from error


def _problem(message: str, name: str) -> Diagnostic:
    return Diagnostic(Code.BAD_DEVICE, message, DocumentSpan("", name))


def _unknown(section: _Section, path: str) -> Iterator[tuple[str, str, str | None]]:
    known = [field.alias or key for key, field in type(section).model_fields.items()]
    for key in section.model_extra or {}:
        yield f"{path}/{key}", key, nearest(key, known)
    for name in type(section).model_fields:
        value = getattr(section, name)
        parts = value if isinstance(value, tuple) else (value,)
        for number, part in enumerate(parts):
            if isinstance(part, _Section):
                yield from _unknown(part, f"{path}/{name}" + (f"/{number}" if part is not value else ""))


@cache
def device_names() -> tuple[str, ...]:
    """The shipped descriptions.

    >>> device_names()[:3]
    ('aarch64-neon', 'ada_mock', 'cortex-m4')
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "schema"))


def device_schema() -> dict[str, Any]:
    """The JSON Schema of device descriptions, as published in ``devices/schema.json``."""
    schema = DeviceArch.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "OpenInfer device description",
        "description": "What a device is, has and allows. Unknown keys are kept and warned about.",
    }


# --- devices in short -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceSpec:
    """A kind of device, said in one line.

    >>> DeviceSpec.GPU().api("vulkan").arch().device.api
    'vulkan'
    >>> DeviceSpec.CPU().isa("avx2").arch().cpu.vector_bits
    256
    """

    type: str
    _api: str | None = None
    _isa: str | None = None

    @classmethod
    def CPU(cls) -> Self:  # noqa: N802  (the documented name)
        """The processor of this machine, unless ``isa`` says which."""
        return cls("cpu")

    @classmethod
    def GPU(cls) -> Self:  # noqa: N802  (the documented name)
        """A GPU; ``api`` says how it is programmed."""
        return cls("gpu")

    def api(self, name: str) -> Self:
        """The same device, programmed through this interface."""
        return replace(self, _api=name)

    def isa(self, name: str) -> Self:
        """The same processor, with this instruction set."""
        return replace(self, _isa=name)

    def arch(self) -> DeviceArch:
        """The description that this stands for."""
        if self.type == "cpu" and self._isa is None and self._api in (None, "c"):
            return DeviceArch.detect()
        described: dict[str, Any] = {"device": {"type": self.type, "api": self._api}}
        if self._isa is not None:
            shipped = (DeviceArch.named(name) for name in device_names())
            same = next((one for one in shipped if one.device.type == "cpu" and one.cpu.isa == self._isa), None)
            if same is not None:
                return same
            described["cpu"] = {"isa": self._isa}
        elif self.type == "gpu" and self._api in device_names():
            return DeviceArch.named(self._api)
        return DeviceArch.from_json(described)


def arch_of(device: Device | DeviceSpec | DeviceArch | str) -> DeviceArch:
    """The description of whatever names a device; a text is a kind of device, or what ``DeviceArch.called`` takes.

    >>> arch_of("generic").cpu.isa, arch_of(Device.VULKAN).device.type, arch_of("host") == arch_of(Device.CPU)
    ('generic', 'gpu', True)
    """
    if isinstance(device, DeviceArch):
        return device
    if isinstance(device, DeviceSpec):
        return device.arch()
    if device == Device.CPU:
        return DeviceArch.detect()
    if device in tuple(Device):
        return DeviceSpec.GPU().api(str(device)).arch()
    return DeviceArch.called(device)
