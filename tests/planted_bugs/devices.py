"""Bugs in what is made for GPUs."""

from tests.planted_bugs.bug import Bug

LAVAPIPE = "tests/synth/vulkan/test_ops_on_lavapipe.py"
SHADER_FEATURES = "tests/synth/vulkan/test_features.py"
KERNELS = "tests/synth/vulkan/test_kernels_on_lavapipe.py"
BASELINE = "tests/synth/test_simt_baseline.py"
FORMS = "tests/synth/test_simt_schedule.py"
LAUNCHES = "tests/synth/test_simt_checks.py"
REQUIRE = "tests/synth/vulkan/test_require.py"
DETECT = "tests/synth/vulkan/test_detect.py"
SIMULATED = "tests/synth/vulkan/test_simulator_on_lavapipe.py"
MADE_UP = "tests/sim/test_backend.py"

DEVICE_BUGS = (
    Bug(
        "sums of shaders may be fused",
        "synth/targets/vulkan/dialect.py",
        'exact="precise ",',
        'exact="",',
        SHADER_FEATURES,
        "compiler_finds and softplus",
    ),
    Bug(
        "sums in arguments of functions may be fused",
        "synth/targets/vulkan/exact.py",
        "if not is_arithmetic or is_covered:",
        "if is_arithmetic or not is_covered:",
        SHADER_FEATURES,
        "compiler_finds and softplus",
    ),
    Bug(
        "a feature of shaders is overlooked",
        "synth/targets/vulkan/features.py",
        'Feature.I8: r"u?int8_t"',
        'Feature.I8: r"u?int4_t"',
        SHADER_FEATURES,
        "compiler_finds and cast",
    ),
    Bug(
        "a device that denies a feature is taken",
        "synth/targets/simt/require.py",
        "if stated(arch, feature) is False:",
        "if stated(arch, feature) == 0 and not needed.features:",
        REQUIRE,
        "denies",
    ),
    Bug(
        "what support code needs is forgotten",
        "synth/targets/vulkan/require.py",
        "for need in used.code.needs)",
        "for need in ())",
        REQUIRE,
        "denies",
    ),
    Bug(
        "a device is taken to be exact without looking",
        "synth/devices/probe/probe.c",
        "if (i < NORMAL) exact &= ~(1 << k);",
        "if (i < 0) exact &= ~(1 << k);",
        DETECT,
        "noticed and quotient",
    ),
    Bug(
        "launches are proved in one order",
        "synth/targets/simt/interpret.py",
        "for order in (iter, reversed)",
        "for order in (iter, iter)",
        LAUNCHES,
        "one_order",
    ),
    Bug(
        "an element behind a buffer is seen as one of it",
        "loops/interpret.py",
        "if not 0 <= place < extent:",
        "if not 0 <= place <= extent:",
        LAUNCHES,
        "next_to",
    ),
    Bug(
        "threads read what was there before",
        "loops/interpret.py",
        "if not memory.is_written[offset]:",
        "if offset < 0:",
        LAUNCHES,
        "thread_before",
    ),
    Bug(
        "a thread too many",
        "synth/targets/vulkan/threads.py",
        'f"if ({name} < {',
        'f"if ({name} <= {',
        LAVAPIPE,
        "no_iteration",
    ),
    Bug(
        "integers are widened by a cast",
        "synth/targets/vulkan/dialect.py",
        'casts={("i32", "i64"): "oi_widened"},',
        "casts={},",
        KERNELS,
        "widened",
    ),
    Bug(
        "drivers see zeros",
        "synth/targets/vulkan/dialect.py",
        'zeros={"f32": "OI_ZERO", "f64": "OI_ZERO64"},',
        "zeros={},",
        KERNELS,
        "with_zero",
    ),
    Bug(
        "launches after a failure run",
        "synth/targets/vulkan/dialect.py",
        "if (own != 0u && status.v[0] < own) return;",
        "if (own != 0u && status.v[0] < 0u) return;",
        LAVAPIPE,
        "check_has_failed",
    ),
    Bug(
        "what is written later is computed again",
        "synth/targets/simt/segments.py",
        "part.buffer in written for part",
        "part.buffer is None for part",
        BASELINE,
        "memory_that_changes",
    ),
    Bug(
        "threads join what others have not left yet",
        "synth/targets/simt/team.py",
        "eq(0), stores)\n        yield GroupBarrier()",
        "eq(0), stores)",
        FORMS,
        "rows_are_right and subgroups",
    ),
    Bug(
        "a whole access behind the last one",
        "synth/targets/simt/flat.py",
        "If(chunk < full",
        "If(chunk <= full",
        FORMS,
        "flat_launches_are_right",
    ),
    Bug(
        "a row of sums too many",
        "synth/targets/simt/blocks.py",
        "(If(var < count, body),)",
        "(If(var <= count, body),)",
        FORMS,
        "are_in_blocks",
    ),
    Bug(
        "threads share the memory of an iteration",
        "synth/targets/simt/threads.py",
        "return rows[buffer], (self._thread, *where)",
        "return rows[buffer], (index(0), *where)",
        BASELINE,
        "threads_own",
    ),
    Bug(
        "a node that fails on a device has a result",
        "synth/run/node_device.py",
        "if ended == _REFUSED:",
        "if ended == -2:",
        SIMULATED,
        "fails_on_the_device",
    ),
    Bug(
        "nodes of a device are compared with nothing",
        "sim/compared.py",
        "if found is not None:",
        "if found is not None and not results:",
        MADE_UP,
        "first_node",
    ),
    Bug(
        "times of a device are those of the caller",
        "sim/trace.py",
        "end = end if taken is None else start + taken",
        "end = end if taken is None else end",
        MADE_UP,
        "clock_counts",
    ),
)
