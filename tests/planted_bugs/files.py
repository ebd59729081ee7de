"""Bugs in what reads and writes model files."""

from tests.planted_bugs.bug import Bug

REFUSALS = "tests/oinf/test_refusals.py"
READING = "tests/oinf/test_reading.py"
WRITES = "tests/oinf/test_writes.py"
MODEL = "tests/oinf/test_against_layout_model.py"
MUTANTS = "tests/oinf/test_mutants.py"

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
