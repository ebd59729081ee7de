"""The sections of a device description, with their keys and allowed values."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

_Bytes = Annotated[int, Field(ge=0, lt=1 << 63)]
_Count = Annotated[int, Field(ge=1, lt=1 << 31)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]
_ProgramName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./+-]{1,200}$")]
_CommandWord = Annotated[str, Field(pattern=r"^-{0,2}[A-Za-z0-9][A-Za-z0-9_=,.+/:-]{0,200}$")]
_Flag = Annotated[str, Field(pattern=r"^-[A-Za-z0-9_=,.+/:-]{1,200}$")]
_Text = Annotated[str, Field(max_length=2000)]


class DeviceSection(BaseModel):
    """A part of the document. Unknown keys are kept; ``DeviceArch.warnings`` names them."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, populate_by_name=True)

    comment: _Text | Annotated[tuple[_Text, ...], Field(strict=False)] | None = Field(
        default=None, description="For readers: where numbers come from."
    )


class DeviceFacts(DeviceSection):
    """What the device is."""

    type: Literal["cpu", "gpu", "fpga"] = Field(description="`cpu`, `gpu` or `fpga`.")
    api: _Word | None = Field(
        default=None,
        description="What the code is written for: `c`, `vulkan`, `cuda`, `vhdl`. A CPU's is `c` unless given.",
    )
    vendor: _Text | None = Field(default=None, description="Who makes it.")
    name: _Text | None = Field(default=None, description="What people call it; it appears in the generated files.")
    architecture: _Text | None = Field(
        default=None, description="The vendor's name of its generation, or the instruction set."
    )
    driver: _Text | None = Field(default=None, description="The driver's version.")


class Limits(DeviceSection):
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
        default=None, description="The most iterations of all loops of one thread, after which a driver ends them."
    )
    compute_units: _Count | None = Field(default=None, description="How many multiprocessors there are.")
    registers_per_unit: _Count | None = Field(default=None, description="32-bit registers of a multiprocessor.")


class Features(DeviceSection):
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
        default=None, description="Shuffles among them; that of `subgroup_ops` if left out."
    )
    buffer_addresses: bool | None = Field(default=None, description="Buffers have addresses that are numbers.")
    ordered_launches: bool | None = Field(
        default=None,
        description="Groups of a launch begin before those of later ones, and see what others write while they run: "
        "a later launch may wait for an earlier one inside its kernel, and groups for others of their launch.",
    )
    cooperative_matrix: bool | None = Field(default=None, description="Matrix instructions shared by invocations.")
    fp64: bool | None = Field(default=None, description="Arithmetic on f64.")
    int64: bool | None = Field(default=None, description="Arithmetic on 64-bit integers.")
    storage_8bit: bool | None = Field(default=None, description="Elements of 8 bits are stored on their own.")
    storage_16bit: bool | None = Field(default=None, description="Elements of 16 bits are stored on their own.")
    hosted: bool | None = Field(
        default=None,
        description="An operating system: files, threads and memory on request. Without it, code uses none.",
    )


class Rounding(DeviceSection):
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
    f16_conversions: Literal["exact", "inexact"] | None = Field(
        default=None,
        description="What converts pairs of f32 to f16 and back: rounds to the nearest and keeps subnormal numbers and "
        "NaN (`exact`), or not (`inexact`).",
    )


_Matrix = Literal["f64", "f32", "f16", "bf16", "f8", "i32", "u32", "i8", "u8"]
_Side = Annotated[int, Field(ge=1, le=1024)]


class MatrixShape(DeviceSection):
    """A product that a matrix unit computes: `m` rows and `k` columns times `k` rows and `n` columns."""

    a: _Matrix = Field(description="The dtype of the first factor.")
    b: _Matrix = Field(description="The dtype of the second factor.")
    sum: _Matrix = Field(description="The dtype in which products are added.")
    m: _Side = Field(description="Rows of the result.")
    n: _Side = Field(description="Columns of the result.")
    k: _Side = Field(description="Products of a sum.")


class MemoryRegion(DeviceSection):
    """One memory of several."""

    name: _Word = Field(description="Its name in the linker script or the manual.")
    bytes: _Bytes = Field(description="How large it is.")
    speed: Literal["fast", "normal", "slow"] = Field(
        default="normal", description="`fast`, `normal` or `slow`, compared with the others."
    )
    holds: Annotated[tuple[Literal["arena", "state", "weights"], ...], Field(strict=False)] = Field(
        default=("arena", "state", "weights"), description="What may be placed there: `arena`, `state`, `weights`."
    )


class Memory(DeviceSection):
    """How much memory there is, and how fast."""

    global_bytes: _Bytes | None = Field(default=None, description="All of its main memory.")
    shared_bytes_per_sm: _Bytes | None = Field(default=None, description="Shared memory of a multiprocessor.")
    l2_bytes: _Bytes | None = Field(default=None, description="The cache that all multiprocessors share.")
    bandwidth_bytes_per_second: _Rate | None = Field(default=None, description="The most that main memory delivers.")
    regions: Annotated[tuple[MemoryRegion, ...], Field(strict=False)] = Field(
        default=(), description="Separate memories, fastest first."
    )


KernelTrial = Literal[
    "early_launches", "early_launches_after_one", "early_launches_in_a_chain", "launches_in_turn", "restrict_weights"
]


class Preferences(DeviceSection):
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
        default=(), description="Faster and less exact algorithms that are allowed: `winograd`."
    )
    trials: Annotated[tuple[KernelTrial, ...], Field(strict=False, max_length=100)] = Field(
        default=(),
        description="Experimental forms of kernels, for measurements; CUDA devices only.",
    )


class Cpu(DeviceSection):
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


class MemoryBlocks(DeviceSection):
    """Memories of one kind that an FPGA has on the chip."""

    kind: _Word = Field(description="The vendor's name for them: `ebr`, `spram`, ...")
    count: _Count = Field(description="How many there are.")
    bits: _Count = Field(description="The bits that one of them holds.")
    width: _Count = Field(description="The widest word of one of them, in bits.")
    is_initialised: bool = Field(default=True, description="Whether the configuration sets its initial contents.")
    has_write_port: bool = Field(default=True, description="Whether it can be read and written in the same clock.")

    @field_validator("width")
    @classmethod
    def _holds_a_word(cls, width: int, others: ValidationInfo) -> int:
        bits = others.data.get("bits", width)
        if width > bits:
            raise PydanticCustomError("too_wide", "a width of at most {bits}, the bits of a block", {"bits": bits})
        return width


class Fpga(DeviceSection):
    """What circuits are made of, in devices of type `fpga`. What is left out is not looked at."""

    logic_cells: _Count | None = Field(default=None, description="Look-up tables, each with a flip-flop.")
    multipliers: _Count | None = Field(default=None, description="Hardware multipliers.")
    multiplier_bits: _Count | None = Field(default=None, description="The width of their operands.")
    blocks: Annotated[tuple[MemoryBlocks, ...], Field(strict=False, max_length=100)] = Field(
        default=(), description="Memories on the chip."
    )
    clock_hz: _Rate | None = Field(default=None, description="The clock frequency that circuits are made for.")
    synthesis: Annotated[tuple[_CommandWord, ...], Field(strict=False)] = Field(
        default=(), description="The yosys command that maps to it, and its options; `synth` if not given."
    )
    place: Annotated[tuple[_CommandWord, ...], Field(strict=False)] = Field(
        default=(), description="The command that places and routes, and its options."
    )


class Toolchain(DeviceSection):
    """How generated code is compiled. A device file is trusted like a Makefile: its compiler is run."""

    cc: _ProgramName | None = Field(default=None, description="The compiler, as a command or a path.")
    cflags: Annotated[tuple[_Flag, ...], Field(strict=False)] = Field(
        default=(), description="More flags for it; those of the instruction set are always added."
    )
    glslang: _ProgramName | None = Field(
        default=None, description="The shader compiler; `glslangValidator` if not given."
    )
    nvcc: _ProgramName | None = Field(default=None, description="The CUDA compiler; `nvcc` if not given.")
    nvccflags: Annotated[tuple[_Flag, ...], Field(strict=False)] = Field(
        default=(), description="More flags for it; that of the architecture is always added."
    )
