"""The tests are tested: known bugs are planted one at a time, and each must make the tests meant for it fail.

``python -m tests.planted_bugs`` copies ``src``, patches the copy, and runs a narrow selection of tests against it. A
patch whose text no longer occurs exactly once is an error too: the bug must move with the code. Words after the command
choose the bugs whose names contain one of them; ``--match`` only looks whether the patches fit.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.planting import FAILED, PACKAGE, PASSED, ROOT, Copies

WORKERS = 2
CAUGHT = "caught"

REFUSALS = "tests/oinf/test_refusals.py"
READING = "tests/oinf/test_reading.py"
WRITES = "tests/oinf/test_writes.py"
MODEL = "tests/oinf/test_against_layout_model.py"
MUTANTS = "tests/oinf/test_mutants.py"
SYNTAX = "tests/lang/test_syntax.py"
DIAGNOSTICS = "tests/lang/test_diagnostics.py"
BAD_JSON = "tests/ir/test_bad_json.py"
FORMAT = "tests/fmt/test_format.py"
BUILDER = "tests/builder/test_builder.py"
FAILED_STEPS = "tests/sim/test_failed_steps.py"
SCHEDULES = "tests/sim/test_concurrency.py"
TABLES = "tests/sim/language/test_tables.py"
ELEMENTWISE = "tests/ops/test_elementwise.py"
WITNESSES = "tests/differential/test_witnesses.py"
FOUND = "tests/differential/test_found.py"
CONSTRAINTS = "tests/synth/test_constraints.py"
SIMPLIFY = "tests/synth/test_simplify.py"
PIPELINE = "tests/synth/test_pipeline.py"
TRACES = "tests/synth/test_trace_in_c.py"
THREADS = "tests/synth/test_threads.py"
LAVAPIPE = "tests/synth/vulkan/test_ops_on_lavapipe.py"
SHADER_FEATURES = "tests/synth/vulkan/test_features.py"
KERNELS = "tests/synth/vulkan/test_kernels_on_lavapipe.py"
BASELINE = "tests/synth/test_simt_baseline.py"
FORMS = "tests/synth/test_simt_schedule.py"
LAUNCHES = "tests/synth/test_simt_checks.py"
REQUIRE = "tests/synth/vulkan/test_require.py"
DETECT = "tests/synth/vulkan/test_detect.py"
BYTES = "tests/synth/test_byte_contraction.py"
TUNE = "tests/synth/test_tune.py"
TUNED = "tests/synth/test_tuned.py"
WINDOWS = "tests/synth/test_windows.py"
PROGRAMS = "tests/differential/test_random_programs.py"
EMISSION = "tests/synth/test_emission.py"
CACHE = "tests/synth/test_cache.py"


@dataclass(frozen=True)
class Bug:
    """One text replaced in one file, and the tests (a file and a ``-k`` expression) that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    expression: str


READER_BUGS = (
    Bug(
        "overflow limit dropped",
        "tensor.py",
        "if is_large and (count or prod(extent or 1 for extent in shape)) * dtype.bits > most:",
        "if count < 0:",
        REFUSALS,
        "dims and product",
    ),
    Bug(
        "a zero dim hides an overflow",
        "tensor.py",
        "(count or prod(extent or 1 for extent in shape))",
        "count",
        REFUSALS,
        "dims and product",
    ),
    Bug("file_size unchecked", "oinf/parse.py", "if size != self.file.size:", "if size < 0:", REFUSALS, "file_size"),
    Bug("overlap unchecked", "oinf/parse.py", "if start < end:", "if start < 0:", REFUSALS, "overlap"),
    Bug(
        "blob may end one byte past the file",
        "oinf/parse.py",
        "or end > self.file.size:",
        "or end > self.file.size + 1:",
        REFUSALS,
        "blobs and past",
    ),
    Bug(
        "padding unchecked",
        "oinf/parse.py",
        "bad = first_non_zero(self.file.read(start, end - start)) if end > start else None",
        "bad = None",
        REFUSALS,
        "padding and gap",
    ),
    Bug(
        "name padding unchecked",
        "oinf/parse.py",
        'name: str = stored.rstrip(b"\\0").decode("latin-1")',
        'name: str = stored[:length].decode("latin-1")',
        REFUSALS,
        "padding and name",
    ),
    Bug(
        "duplicate name accepted",
        "oinf/parse.py",
        'if name in infos:\n                self._duplicate("tensors"',
        'if not name:\n                self._duplicate("tensors"',
        REFUSALS,
        "duplicate",
    ),
    Bug(
        "ndim limit dropped",
        "oinf/parse.py",
        "if ndim > MAX_DIMS:",
        "if ndim < 0:",
        REFUSALS,
        "ndim",
    ),
    Bug(
        "metadata type tag unchecked",
        "oinf/parse.py",
        "if tag not in DTYPE_BY_TAG and tag not in _CONTAINER_TAGS:",
        "if tag < 0:",
        REFUSALS,
        "unknown and dtype and metadata",
    ),
    Bug(
        "counts unchecked", "oinf/parse.py", "if count * smallest[section] > room:", "if count < 0:", REFUSALS, "counts"
    ),
    Bug(
        "version 1 takes the flags of version 2",
        "oinf/parse.py",
        "if flags >> min(self.version, 2):",
        "if flags >> 2:",
        REFUSALS,
        "HAS_QUANT",
    ),
    Bug("quant axis unchecked", "oinf/payloads.py", "if axis >= len(shape):", "if axis < 0:", REFUSALS, "scale_axis"),
    Bug(
        "NaN scale accepted",
        "oinf/payloads.py",
        "good = np.isfinite(values)",
        "good = values == values",
        REFUSALS,
        "finite and scales",
    ),
    Bug(
        "bool bytes unchecked",
        "oinf/payloads.py",
        "if piece.max(initial=0) > 1:",
        "if piece.max(initial=0) > 255:",
        REFUSALS,
        "bool",
    ),
    Bug(
        "spare bits accepted",
        "dtypes/packing.py",
        "if used and int(stream[-1]) >> used:",
        "if used and int(stream[-1]) >> 8:",
        REFUSALS,
        "spare and load",
    ),
    Bug(
        "t2 code for -2 accepted",
        "dtypes/packing.py",
        "bad = piece & ~(piece << 1) & 0xAA",
        "bad = piece & 0",
        REFUSALS,
        "t2 and codes",
    ),
    Bug(
        "tensor flags unchecked (left to the mutants)",
        "oinf/parse.py",
        "if flags >> min(self.version, 2):",
        "if flags < 0:",
        MUTANTS,
        "located_error and 0",
    ),
    Bug(
        "name padding unchecked (left to the mutants)",
        "oinf/parse.py",
        'name: str = stored.rstrip(b"\\0").decode("latin-1")',
        'name: str = stored[:length].decode("latin-1")',
        MUTANTS,
        "located_error and 0",
    ),
    Bug("a closed model reads on", "oinf/model.py", "if self._closed:", "if not self.path:", READING, "after_close"),
)

WRITER_BUGS = (
    Bug(
        "fsync dropped",
        "oinf/atomic.py",
        "os.fsync(descriptor)\n        finally:\n            os.close(descriptor)\n        os.rename",
        "pass\n        finally:\n            os.close(descriptor)\n        os.rename",
        WRITES,
        "on_disk_before",
    ),
    Bug(
        "fsync of the folder dropped",
        "oinf/atomic.py",
        "    _sync_folder(path, folder)\n",
        "",
        WRITES,
        "on_disk_before",
    ),
    Bug(
        "rename before fsync",
        "oinf/atomic.py",
        "os.fsync(descriptor)\n        finally:\n            os.close(descriptor)\n        "
        "os.rename(temporary, target)",
        "os.rename(temporary, target)\n            os.fsync(descriptor)\n        finally:\n            "
        "os.close(descriptor)",
        WRITES,
        "on_disk_before",
    ),
    Bug("no cleanup", "oinf/atomic.py", "os.unlink(temporary)", "pass", WRITES, "failure_of_any"),
    Bug(
        "short writes not continued",
        "oinf/atomic.py",
        "rest = rest[count:]",
        "rest = rest[1 << 30 :]",
        WRITES,
        "short_writes",
    ),
    Bug(
        "permissions not kept",
        "oinf/atomic.py",
        "return stat.S_IMODE(status.st_mode)",
        "return 0o666",
        WRITES,
        "permissions and replaced and 384",
    ),
    Bug(
        "scales and zero points swapped",
        "oinf/quant.py",
        "header + self.scale.values.tobytes() + others.tobytes()",
        "header + others.tobytes() + self.scale.values.tobytes()",
        MODEL,
        "quantization",
    ),
    Bug(
        "tensors not sorted",
        "oinf/package.py",
        "ordered = tuple(sorted(entries, key=lambda tensor: tensor.name))",
        "ordered = tuple(entries)",
        MUTANTS,
        "rewriting and unsorted",
    ),
    Bug("wrong alignment", "oinf/layout.py", "TENSOR_ALIGNMENT = 64", "TENSOR_ALIGNMENT = 32", MUTANTS, "rewriting"),
    Bug(
        "packing forgets the last element of a tail",
        "dtypes/packing.py",
        "tail[: flat.size - whole] = flat[whole:].view(np.uint8)",
        "tail[: flat.size - whole - 1] = flat[whole:-1].view(np.uint8)",
        MODEL,
        "packed",
    ),
    Bug(
        "nibbles swapped",
        "dtypes/packing.py",
        "packed = piece & 0x0F\n            packed |= (piece >> 4) & 0xF0",
        "packed = (piece & 0x0F) << 4\n            packed |= (piece >> 8) & 0x0F",
        MODEL,
        "packed",
    ),
)


EMISSION_BUGS = (
    Bug(
        "a project builds while its files are replaced",
        "synth/run/emission.py",
        '        self._move("", gate)\n',
        "",
        EMISSION,
        "to_its_end",
    ),
    Bug(
        "a compiled library is loaded whatever it is",
        "synth/run/cache.py",
        "return record.startswith(self._size(size)) and record == self._record(file)",
        "return record.startswith(self._size(size))",
        CACHE,
        "damaged and bit",
    ),
)


LANGUAGE_BUGS = (
    Bug(
        "operators of one rank apply from the right",
        "lang/literals.py",
        "while operators and _RANK[operators[-1]] >= _RANK[item.value]:",
        "while operators and _RANK[operators[-1]] > _RANK[item.value]:",
        SYNTAX,
        "value_reads",
    ),
    Bug(
        "parentheses dropped on the right",
        "ir/expr.py",
        "(inner.right, own + 1)]",
        "(inner.right, own)]",
        SYNTAX,
        "value_reads",
    ),
    Bug(
        "unknown keys of documents accepted",
        "ir/document.py",
        "if key not in required and key not in optional:",
        "if not key:",
        BAD_JSON,
        "unknown or key",
    ),
    Bug(
        "uuids ignore the position",
        "ir/graph.py",
        'f"{self.index} {node_head(self)}"',
        "node_head(self)",
        BUILDER,
        "uuids",
    ),
    Bug(
        "branch cycles go unnoticed",
        "ir/validate.py",
        "        self._branch_cycles()\n",
        "",
        DIAGNOSTICS,
        "E406",
    ),
    Bug(
        "constants can be written",
        "ir/operand_rules.py",
        "if variable is not None and variable.kind is MemoryKind.CONSTANT:",
        "if variable is None and access.base == '':",
        DIAGNOSTICS,
        "E503",
    ),
    Bug(
        "comments at the end of a body are dropped",
        "lang/format.py",
        "self.found.dangling.setdefault(owner, []).extend(lines)",
        "pass",
        FORMAT,
        "stay or survive",
    ),
    Bug(
        "a comment inside a statement is dropped",
        "lang/format.py",
        "self.found.leading.setdefault(self.current, []).extend(line for line in self.pending if line)",
        "pass",
        FORMAT,
        "survive",
    ),
    Bug(
        "named inputs become parameters",
        "lang/calls.py",
        "return declared.kind is not MemoryKind.CONSTANT or bool(declared.dims)",
        "return False",
        BUILDER,
        "equals_the_text or by_name",
    ),
    Bug(
        "a missing semicolon ends the search for errors",
        "lang/parser.py",
        "            missing = None if self._is_habit(token) else self._missing(token)\n",
        "            missing = None\n",
        DIAGNOSTICS,
        "semicolon or missing or cascade or recover",
    ),
)

SIMULATION_BUGS = (
    Bug(
        "a failed step keeps what it wrote into tables",
        "sim/growable.py",
        "data[change.region] = change.data",
        "pass",
        FAILED_STEPS,
        "leaves_persistent_state_untouched",
    ),
    Bug(
        "a consumer writes into entry's variable",
        "sim/memory.py",
        "if key in self._own:",
        "if False:",
        "tests/sim/language/test_yield_await.py",
        "consumer",
    ),
    Bug(
        "two consumers may write one variable",
        "check/concurrency.py",
        "        *_two_writers(running, bits),\n"
        "        *islice(_sharing(len(entry.nodes), running, bits), MOST_RACES),\n",
        "",
        SCHEDULES,
        "refused_when_it_is_bound",
    ),
    Bug(
        "a negative end of a slice is cut off",
        "sim/tables.py",
        "max(0, one + extent) if one < 0 else one",
        "max(0, one)",
        TABLES,
        "negative",
    ),
    Bug(
        "the node budget allows one more",
        "sim/step.py",
        "elif self._left == 0:",
        "elif self._left == -7:",
        FAILED_STEPS,
        "node_budget_that_is_too_small",
    ),
    Bug(
        "dynamic sizes are checked at their bounds only",
        "check/bind.py",
        "problems.found += _elsewhere(",
        "problems.found += () and _elsewhere(",
        "tests/check/test_sizes.py",
        "bound or below",
    ),
)

OP_BUGS = (
    Bug(
        "packed integers do not wrap",
        "ops/numeric.py",
        "(((array & mask) ^ half) - half).astype(stored)",
        "array.clip(-half, half - 1).astype(stored)",
        ELEMENTWISE,
        "add and i4",
    ),
    Bug("operands of sub swapped", "ops/binary.py", "return a - b", "return b - a", ELEMENTWISE, "sub and f32"),
    Bug(
        "negative gather indices not counted from the end",
        "ops/indexing.py",
        "np.where(positions < 0, positions + extent, positions)",
        "np.abs(positions)",
        "tests/ops/test_indexing.py",
        "gather and f32",
    ),
)

SYNTHESIZER_BUGS = (
    Bug(
        "a row of tiles too few",
        "synth/targets/cpu/emit/contraction.py",
        'f"for ({tiling.index} m0 = {first}, rows; m0 < {count}; m0 += rows)"',
        'f"for ({tiling.index} m0 = {first}, rows; m0 + 1 < {count}; m0 += rows)"',
        WITNESSES,
        "tiles_end or rows_of_a_dynamic",
    ),
    Bug(
        "the last columns have a whole tile",
        "synth/targets/cpu/emit/contraction.py",
        'columns = least(number(tiling.product.columns.extent), "n0", width)',
        "columns = str(width)",
        WITNESSES,
        "tiles_end",
    ),
    Bug(
        "the end of packed weights is cut off",
        "synth/program/packing.py",
        "inside = index < len(offsets)",
        "inside = index < max(len(offsets) - 1, 1)",
        WITNESSES,
        "tiles_end",
    ),
    Bug(
        "what flipped bytes add stays in the sum",
        "synth/targets/cpu/emit/byte_factors.py",
        'return f"(int32_t)((uint32_t){total} - (uint32_t)flips[column])" if self._tiling.tile.is_flipped else total',
        "return total",
        BYTES,
        "every_size and flipped",
    ),
    Bug(
        "bytes behind the last line of a panel count",
        "synth/targets/cpu/emit/byte_factors.py",
        "copied_panel(self._tiling, lines)\n        if depth % GROUP:",
        "copied_panel(self._tiling, lines)\n        if depth % GROUP == GROUP:",
        BYTES,
        "every_size and flipped",
    ),
    Bug(
        "operands of sub swapped in C",
        "ops/lower/elementwise.py",
        "return lambda _builder, _call, a, b: wrapping(op, a, b)",
        "return lambda _builder, _call, a, b: wrapping(op, b, a)",
        WITNESSES,
        "operands_keep",
    ),
    Bug(
        "a kernel writes over what it reads elsewhere",
        "synth/memory/place.py",
        "all(one.index == where for one in loads)",
        "any(loads)",
        WITNESSES,
        "read_elsewhere",
    ),
    Bug(
        "a kernel that reads a value twice writes over it",
        "synth/memory/place.py",
        "if not _occurrences(step, operand, classes) <= set(fitting):",
        "if step is operand:",
        WITNESSES,
        "read_elsewhere",
    ),
    Bug(
        "memory is given away while its value is read",
        "synth/memory/place.py",
        "Request(max(value.nbytes, 1), tuple(classes.occupied(value)), value.name)",
        "Request(max(value.nbytes, 1), tuple((a + 1, b) for a, b in classes.occupied(value) if a < b), value.name)",
        WITNESSES,
        "still_read",
    ),
    Bug(
        "lives end where a loop begins again",
        "synth/program/liveness.py",
        "is_needed = alive or self._needs_inside(touch.inner)",
        "is_needed = alive",
        WITNESSES,
        "next_turn",
    ),
    Bug(
        "fusion across a barrier",
        "synth/passes/fuse/body.py",
        "fence, other = _next(self._fences, first), _next(self._obstacles, first)",
        "fence, other = _next([], first), _next(self._obstacles, first)",
        WITNESSES,
        "across_a_barrier",
    ),
    Bug(
        "a fused op does not round what it reads",
        "synth/passes/fuse/inline.py",
        "element = rounded(expression(form), producer.outputs[0].dtype)",
        "element = expression(form)",
        WITNESSES,
        "element_of_a_reduction",
    ),
    Bug(
        "a fused result does not round before what follows",
        "synth/passes/fuse/sink.py",
        "own = rounded(store.value, out.dtype)",
        "own = store.value",
        WITNESSES,
        "fused_chain or fused_reduction",
    ),
    Bug(
        "what a step computes is not left behind",
        "synth/lower/variables.py",
        "            self._emission.move(value, home, node)\n            self.current[name] = home",
        "            self.current[name] = home",
        WITNESSES,
        "leaves_behind",
    ),
    Bug(
        "a table is one entry short",
        "synth/targets/c/runtime/tables.c",
        "if (end > *extent) *extent = end;",
        "if (end > *extent + 1) *extent = end - 1;",
        WITNESSES,
        "as_long_as",
    ),
    Bug(
        "the last thread stops too early",
        "synth/targets/cpu/emit/parts.py",
        'joined(joined(end, "*", ExprText(count)), "/", ExprText(str(parts)))',
        'joined(end, "*", joined(ExprText(count), "/", ExprText(str(parts))))',
        WITNESSES,
        "threads_together",
    ),
    Bug(
        "an op shares the result of one before a change",
        "synth/passes/simplify.py",
        "            self._forget(step)\n",
        "",
        WITNESSES,
        "sees_other_values",
    ),
    Bug(
        "loops go one too far",
        "synth/targets/cstyle/statements.py",
        "{name} < {last}; ++",
        "{name} <= {last}; ++",
        WITNESSES,
        "inside_its_memory",
    ),
    Bug(
        "sizes that are too small are not refused",
        "synth/lower/ops.py",
        "                self._emission.emit(step)\n        except ManyValuesError",
        "                pass\n        except ManyValuesError",
        FOUND,
        "window_that_does_not_fit",
    ),
    Bug(
        "a consumer runs once in a step",
        "synth/lower/consumers.py",
        "            self._given[block.name] = set()\n",
        '            self._given[block.name] = {""}\n',
        "tests/synth/test_yield_again_in_c.py",
        "every_run",
    ),
    Bug(
        "a negative index is one outside",
        "synth/program/failures.py",
        'NEGATIVE = Mistake("ERROR_INDEX", Code.NEGATIVE_INDEX,',
        'NEGATIVE = Mistake("ERROR_INDEX", Code.INDEX_OUT_OF_RANGE,',
        "tests/synth/test_mistakes.py",
        "negative",
    ),
    Bug(
        "long sums have one accumulator",
        "synth/targets/cpu/blocked.py",
        "if _terms(statement, var) > BLOCK]",
        "if _terms(statement, var) > BLOCK << 40]",
        "tests/synth/test_long_sums.py",
        "long_sums",
    ),
    Bug(
        "running sums have one accumulator",
        "loops/running.py",
        "while count > _BLOCK:",
        "while count > _BLOCK << 40:",
        "tests/synth/test_long_sums.py",
        "long_sums",
    ),
    Bug(
        "long products have one accumulator",
        "synth/targets/cpu/emit/float_factors.py",
        "LongTile(found, block) if is_long else found",
        "found",
        "tests/synth/test_long_sums.py",
        "many_terms",
    ),
    Bug(
        "an input that a step has written is shown as it was inserted",
        "synth/run/module.py",
        "if name in self._used and name not in self._written:",
        "if name in self._used:",
        "tests/synth/test_module.py",
        "as_it_was_inserted",
    ),
    Bug(
        "unused names stay in kernels",
        "loops/rewrite.py",
        "made = without_unused(_reached(",
        "made = (_reached(",
        FOUND,
        "nothing_uses",
    ),
    Bug(
        "a table is read where it lies while it changes",
        "synth/memory/views.py",
        "and not lives.occupied[step.value].meets(changed.get(id(step.table), []))",
        "",
        "tests/synth/test_views.py",
        "copy_is_made",
    ),
    Bug(
        "the extents of a table are not taken back",
        "synth/targets/c/runtime/tables.c",
        "    oi_keep(g->undo, g->extent, (size_t)t->axes * sizeof(int64_t));\n    oi_over(&walk, part);",
        "    oi_over(&walk, part);",
        "tests/synth/test_failed_steps_in_c.py",
        "has_not_happened and bounded-2 and good",
    ),
    Bug(
        "what a step has written of the model lasts",
        "synth/lower/graph.py",
        "entry = (*fresh, *entry, *self._emission.taken())",
        "entry = (*entry, *self._emission.taken())",
        "tests/synth/test_tables_in_c.py",
        "hold_until_the_step_ends",
    ),
    Bug(
        "a dead node forgets which tensor it would have read",
        "synth/passes/dead_steps.py",
        "            return _weight_checks(step)\n",
        "            return ()\n",
        "tests/synth/test_mistakes.py",
        "dead and tensor and loop",
    ),
    Bug(
        "dynamic sizes are judged one by one",
        "synth/lower/op_sizes.py",
        "    if not together.is_exact:\n        return True",
        "    if together is not None:\n        return True",
        "tests/synth/test_sizes_together.py",
        "judged_together",
    ),
    Bug(
        "slices that are written alike have one length",
        "synth/lower/slice_lengths.py",
        "        if not stretched:\n",
        "        if found:\n",
        "tests/synth/test_slices_written_alike.py",
        "different_lengths",
    ),
    Bug(
        "an index that changes chooses another tensor",
        "synth/lower/variables.py",
        "        if not scalars:\n            if weight.can_miss",
        "        if weight is not None:\n            if weight.can_miss",
        "tests/synth/test_tables_in_c.py",
        "when_it_was_copied",
    ),
    Bug(
        "an arena of one byte less is good enough",
        "synth/targets/c/entry.py",
        "arena_bytes < {upper}_ARENA_BYTES",
        "arena_bytes + 1 < {upper}_ARENA_BYTES",
        "tests/synth/test_project.py",
        "weights_can_be_part and array",
    ),
    Bug(
        "padding is zeros that meet infinities",
        "synth/targets/cpu/schedule.py",
        "other.name not in self._finite",
        "other.name is None",
        "tests/synth/test_contractions_in_c.py",
        "meets_no_padding",
    ),
    Bug(
        "zeros around an input that meet infinities",
        "synth/targets/cpu/schedule.py",
        "if one.valid is not None and one.b.name not in self._finite:",
        "if one.valid is None and one.b.name not in self._finite:",
        WINDOWS,
        "infinity",
    ),
    Bug(
        "nobody asks whether a window reaches over the last row",
        "synth/targets/cpu/window.py",
        "at.first < 0 or last >= extent",
        "at.first < 0",
        WINDOWS,
        "means_the_same",
    ),
    Bug(
        "a row of what windows see begins one too early",
        "synth/targets/cpu/window.py",
        "(*places, at + index(low))",
        "(*places, at + index(low - 1))",
        WINDOWS,
        "means_the_same",
    ),
    Bug(
        "all bands are the first one",
        "synth/targets/cpu/window.py",
        "BAND * index(height) + var if",
        "var if",
        WINDOWS,
        "means_the_same",
    ),
    Bug(
        "the places of a window column by column",
        "synth/targets/cpu/emit/float_factors.py",
        "for start in found for at in range(extent)]",
        "for at in range(extent) for start in found]",
        WINDOWS,
        "generated_code and generic",
    ),
    Bug(
        "roots without an instruction are cut off",
        "synth/targets/cstyle/runtime/math_exact.c",
        "(root >> 1) + (root & 1u)",
        "(root >> 1)",
        "tests/synth/test_math_runtime.py",
        "without_an_instruction",
    ),
    Bug(
        "gelu forgets what a rounding lost",
        "synth/targets/cstyle/runtime/math_gelu.c",
        "lost_d = (1.0f - (d - back)) + (halved - back)",
        "lost_d = back - back",
        "tests/synth/test_math_runtime.py",
        "f32_are_close and gelu",
    ),
    Bug(
        "the second part of an angle counts as small",
        "ops/lower/rotary.py",
        'math("sin", low)',
        "low",
        "tests/synth/test_ops_in_c.py",
        "far_off",
    ),
)

PASS_BUGS = (
    Bug(
        "rows that are left out are written over those that are not",
        "synth/passes/fuse/store_elsewhere.py",
        "long <= set(axes) and len",
        "len",
        "tests/synth/test_relayout.py",
        "moved_apart",
    ),
    Bug(
        "kernels are fused across a barrier",
        "synth/passes/fuse/body.py",
        "self._fences.append(place)",
        "pass",
        CONSTRAINTS,
        "keeps_apart and barrier",
    ),
    Bug(
        "a block's constraints do not count",
        "synth/program/constraints.py",
        "{**block.constraints, **node.constraints}",
        "{**node.constraints}",
        CONSTRAINTS,
        "keeps_apart and block",
    ),
    Bug(
        "a node is fused past one that a dep puts after it",
        "synth/program/constraints.py",
        "self._after.setdefault(one, []).append(other)",
        "self._after.setdefault(other, []).append(one)",
        CONSTRAINTS,
        "keeps_apart and dep",
    ),
    Bug(
        "an op is shared although its operand has changed",
        "synth/passes/simplify.py",
        "            self._forget_all(self.at_home)\n",
        "",
        SIMPLIFY,
        "computed_again or must_not_meet",
    ),
    Bug(
        "an op is shared across a barrier",
        "synth/passes/simplify.py",
        "if isinstance(step, Fence) or self.constraints.must_stay(step.node):",
        "if self.constraints.must_stay(step.node):",
        SIMPLIFY,
        "must_not_meet",
    ),
    Bug(
        "what was folded is lost",
        "synth/passes/simplify.py",
        "return value not in self._outputs and all(",
        "return all(",
        SIMPLIFY,
        "beforehand",
    ),
    Bug(
        "a stage of the pipeline shows what later ones made",
        "synth/pipeline.py",
        "StageResult(Stage.SIMPLIFY, partial(program_text, program))",
        "StageResult(Stage.SIMPLIFY, lambda: program_text(program))",
        PIPELINE,
        "pipeline_is_through",
    ),
    Bug(
        "kernels in loops stay as they are",
        "synth/program/ir.py",
        "with_body(step, map_steps(step.body, change)) if isinstance(step, LoopStep) else step",
        "step",
        PIPELINE,
        "inside_a_loop",
    ),
    Bug(
        "a trace shows memory that something else lies in",
        "synth/memory/fresh.py",
        "        if first < last:\n",
        "        if first > last:\n",
        TRACES,
        "another_has_taken",
    ),
    Bug(
        "a trace loses what only its mark needs",
        "synth/program/liveness.py",
        "self._keeps_marked = liveness.program.keeps_marked",
        "self._keeps_marked = False",
        TRACES,
        "random_graphs or every_node",
    ),
    Bug(
        "loops that write the same memory become kernels of their own",
        "synth/passes/split.py",
        "if part.written & known or part.read & later:",
        "if part.read & later:",
        THREADS,
        "stay_together",
    ),
)

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
        "if (status.v[0] < own) return;",
        "if (status.v[0] < 0u) return;",
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
)


TUNING_BUGS = (
    Bug(
        "a tile that does not fit is taken from a file",
        "synth/tuning/records.py",
        "if (choice.rows, choice.vectors) not in possible_tiles(product, one.processor):",
        "if choice.rows < 1:",
        TUNED,
        "cannot_be",
    ),
    Bug(
        "choices count for any number of threads",
        "synth/tuning/records.py",
        "if one.processor == processor}",
        "if one.processor.isa == processor.isa}",
        TUNED,
        "measured_on",
    ),
    Bug(
        "who was lucky once is the fastest",
        "synth/tuning/tune.py",
        "times = self._times(trial, list(dict.fromkeys(finalists)))",
        "times = first",
        TUNE,
        "certainly_better",
    ),
    Bug(
        "half of the rounds are enough",
        "synth/tuning/tune.py",
        "shares = np.where(high < 1, middle, np.maximum(middle, 1))",
        "shares = middle",
        TUNE,
        "certainly_better",
    ),
    Bug(
        "what was chosen is divided otherwise",
        "synth/targets/cpu/divide.py",
        "if tile.wanted not in (None, what) or (",
        "if (",
        TUNE,
        "shares_of_what_was_chosen",
    ),
    Bug(
        "kernels that copy and that do not are one function",
        "synth/targets/cpu/tile.py",
        '" of columns as they lie" if self.is_direct else ""',
        '""',
        TUNE,
        "not_one_function",
    ),
)

PROGRAM_BUGS = (
    Bug(
        "what a loop needs at home moves inside it",
        "synth/lower/graph.py",
        "        for name in current.astray(needed | written):\n"
        "            variables.bring_home(name, node.index)\n"
        "        variables.spare(current.guests(written))\n"
        "        scalars = variables.scalars(kind.start, kind.end)\n"
        "        # An outer index of the same name is hidden now: what it chose is copied while it still has a value.\n"
        "        variables.spare(current.chosen_by(kind.index))\n"
        "        loops, self._place.loops = self._place.loops, (*self._place.loops, kind)\n"
        "        with self._emission.body() as body:\n",
        "        for name in current.astray(written):\n"
        "            variables.bring_home(name, node.index)\n"
        "        variables.spare(current.guests(written))\n"
        "        scalars = variables.scalars(kind.start, kind.end)\n"
        "        # An outer index of the same name is hidden now: what it chose is copied while it still has a value.\n"
        "        variables.spare(current.chosen_by(kind.index))\n"
        "        loops, self._place.loops = self._place.loops, (*self._place.loops, kind)\n"
        "        with self._emission.body() as body:\n"
        "            for name in current.astray(needed):\n"
        "                variables.bring_home(name, node.index)\n",
        PROGRAMS,
        "agree[3]",
    ),
    Bug(
        "a write of what was read from a table is a view",
        "synth/targets/c/parts.py",
        "is_view = step.action is Action.READ and step.value in",
        "is_view = step.value in",
        PROGRAMS,
        "agree[7]",
    ),
    Bug(
        "a consumer works in the home that others are copied from",
        "synth/lower/consumers.py",
        "variables.spare(current.residents(self._clobbered[block.name]))",
        "pass",
        PROGRAMS,
        "agree[5]",
    ),
    Bug(
        "an inferred temporary has the bound of its dynamic size",
        "synth/lower/shapes.py",
        "            return variable.shape\n        try:",
        "            return tuple(map(int, variable.shape))\n        try:",
        PROGRAMS,
        "agree[5]",
    ),
    Bug(
        "a dynamic size without a value is empty",
        "synth/lower/emission.py",
        "sorted({name for extent in extents for name in sizes_in(extent)} - self._known.sizes)",
        "sorted({name for extent in extents for name in sizes_in(extent)} & set[str]())",
        PROGRAMS,
        "agree[10]",
    ),
)

BUGS = (
    READER_BUGS
    + WRITER_BUGS
    + EMISSION_BUGS
    + LANGUAGE_BUGS
    + SIMULATION_BUGS
    + OP_BUGS
    + SYNTHESIZER_BUGS
    + PASS_BUGS
    + DEVICE_BUGS
    + TUNING_BUGS
    + PROGRAM_BUGS
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the chosen bugs, print what became of each, and return 1 if one survived."""
    parser = ArgumentParser(prog="python -m tests.planted_bugs", description="Plants known bugs; each must be caught.")
    parser.add_argument("words", nargs="*", help="only bugs whose names contain one of these")
    parser.add_argument("--match", action="store_true", help="only look whether the patches fit the sources")
    options = parser.parse_args(arguments)
    chosen = [bug for bug in BUGS if not options.words or any(word in bug.name for word in options.words)]
    if not chosen:
        parser.error("no planted bug has such a name")
    lost = len(_drifted(chosen)) if options.match else _survivors(chosen)
    done = "match" if options.match else "were caught"
    print(f"{len(chosen) - lost} of {len(chosen)} planted bugs {done}")
    return 1 if lost else 0


def _drifted(bugs: Sequence[Bug]) -> list[Bug]:
    """The bugs whose text does not occur exactly once; each is printed."""
    found = [bug for bug in bugs if (ROOT / "src" / PACKAGE / bug.file).read_text().count(bug.old) != 1]
    for bug in found:
        print(f"DRIFTED   {bug.name}: {bug.file}")
    return found


def _survivors(bugs: Sequence[Bug]) -> int:
    """Plant bugs in copies of the sources; how many no test has caught. All, where tests fail without them."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        copies = Copies(Path(folder), WORKERS)
        if not all(list(pool.map(lambda group: _sound(copies, *group), _groups(bugs).items()))):
            return len(bugs)
        return sum(not caught for caught in pool.map(lambda bug: _is_caught(bug, copies), bugs))


def _groups(bugs: Sequence[Bug]) -> dict[str, list[str]]:
    """The selections of tests, by their files."""
    expressions: dict[str, list[str]] = {}
    for bug in bugs:
        expressions.setdefault(bug.tests, []).append(f"({bug.expression})")
    return expressions


def _sound(copies: Copies, tests: str, selected: list[str]) -> bool:
    """Whether the selected tests pass where no bug is planted; otherwise catching one would prove nothing."""
    with copies.borrowed() as source:
        done = copies.run(source, tests, " or ".join(selected))
    if done.status != PASSED:
        print(f"{tests} fails without any planted bug:\n{done.text}")
        return False
    print(f"sound     {tests}: {done.text.strip().splitlines()[-1]}", flush=True)
    return True


def _is_caught(bug: Bug, copies: Copies) -> bool:
    start = perf_counter()
    with copies.borrowed() as source:
        verdict, witness = _verdict(bug, copies, source)
    print(f"{verdict:9}{perf_counter() - start:5.1f} s  {bug.name:45} {witness}", flush=True)
    return verdict == CAUGHT


def _verdict(bug: Bug, copies: Copies, source: Path) -> tuple[str, str]:
    """Plant the bug, run its tests, take it out again; what became of it, and the test that noticed."""
    path = source / PACKAGE / bug.file
    original = path.read_text()
    if original.count(bug.old) != 1:
        return "DRIFTED", f"{bug.old!r} occurs {original.count(bug.old)} times in {bug.file}"
    path.write_text(original.replace(bug.old, bug.new))
    try:
        done = copies.run(source, bug.tests, bug.expression)
    finally:
        path.write_text(original)
    if done.status == FAILED and done.noticed:
        return CAUGHT, done.noticed[0]
    print(done.text)
    return ("SURVIVED" if done.status == PASSED else "NOT RUN"), ""


if __name__ == "__main__":
    sys.exit(main())
