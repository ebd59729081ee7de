"""Small files with enormous claims, and sparse files that are enormous without taking room on the disk."""

import os
from pathlib import Path

from tests.oinf.corpus import array, bits, tensor, text
from tests.oinf.layout_model import TAG, Document, Image, SizeVarRow, TensorRow, quant

from openinfer import Code

SPARSE_BYTES = 1 << 40


def _with(document: Document, *changes: tuple[str, int]) -> bytes:
    return Image(document.to_bytes()).with_values(*changes)


def _tensor_with_dims(dims: list[int], dtype: str = "u8") -> bytes:
    return Document(2, [], [], [TensorRow(b"w", TAG[dtype], dims, b"\1")]).to_bytes()


def _declared(dims: list[int], quantization: bytes | None = None) -> Document:
    return Document(2, [], [], [TensorRow(b"w", TAG["u1"], dims, None, quantization)])


def bombs() -> dict[str, tuple[bytes, Code]]:
    """Each bomb with the code it must be refused with."""
    small = Document(2, [SizeVarRow(b"D", 1)], [text("m", "x")], [tensor("w", "u8", [1])])
    per_channel = quant(1, [1.0, 2.0], axis=0)
    return {
        "2^60 elements": (_tensor_with_dims([2**60]), Code.SHAPE_OVERFLOW),
        "2^60 one-bit elements": (_tensor_with_dims([2**60], "u1"), Code.SHAPE_OVERFLOW),
        "2^32 x 2^32 elements": (_tensor_with_dims([2**32, 2**32]), Code.SHAPE_OVERFLOW),
        "sixteen dims of 2^64-1": (_tensor_with_dims([2**64 - 1] * 16), Code.SHAPE_OVERFLOW),
        "zero dim hiding an overflow": (_tensor_with_dims([2**63, 2**63, 0]), Code.SHAPE_OVERFLOW),
        "leading zero dim hiding an overflow": (_tensor_with_dims([0, 2**64 - 1]), Code.SHAPE_OVERFLOW),
        "2^60 elements without data": (_declared([2**60]).to_bytes(), Code.SHAPE_OVERFLOW),
        "2^40 elements": (_tensor_with_dims([2**40]), Code.SIZE_MISMATCH),
        "2^40 elements and bytes": (
            _with(Document(2, [], [], [TensorRow(b"w", TAG["u8"], [2**40], b"\1")]), ("tensors[0].data_nbytes", 2**40)),
            Code.BAD_BLOB_OFFSET,
        ),
        "data_nbytes 2^64-1": (_with(small, ("tensors[0].data_nbytes", 2**64 - 1)), Code.SIZE_MISMATCH),
        "data_offset 2^63": (_with(small, ("tensors[0].data_offset", 2**63)), Code.BAD_BLOB_OFFSET),
        "data_offset that wraps": (_with(small, ("tensors[0].data_offset", 2**64 - 8)), Code.BAD_BLOB_OFFSET),
        "n_sizevars 2^32-1": (_with(small, ("n_sizevars", 2**32 - 1)), Code.IMPOSSIBLE_COUNT),
        "n_metadata 2^32-1": (_with(small, ("n_metadata", 2**32 - 1)), Code.IMPOSSIBLE_COUNT),
        "n_tensors 2^32-1": (_with(small, ("n_tensors", 2**32 - 1)), Code.IMPOSSIBLE_COUNT),
        "offset_data 2^60": (_with(small, ("offset_data", 2**60)), Code.BAD_SECTION_OFFSET),
        "file_size 2^64-1": (_with(small, ("file_size", 2**64 - 1)), Code.FILE_SIZE_MISMATCH),
        "name length 2^32-1": (_with(small, ("tensors[0].name.length", 2**32 - 1)), Code.BAD_NAME),
        "ndim 2^32-1": (_with(small, ("tensors[0].ndim", 2**32 - 1)), Code.TOO_MANY_DIMS),
        "string length 2^32-1": (_with(small, ("metadata[0].text.length", 2**32 - 1)), Code.SIZE_MISMATCH),
        "string nbytes 2^60": (_with(small, ("metadata[0].nbytes", 2**60)), Code.BAD_BLOB_OFFSET),
        **_payload_bombs(per_channel),
    }


def _payload_bombs(per_channel: bytes) -> dict[str, tuple[bytes, Code]]:
    bitsets = Document(2, [], [bits("b", 3)])
    arrays = Document(2, [], [array("a", "u8", [1, 1])])
    quantized = _declared([2], per_channel)
    huge = _declared([2**46], per_channel)
    return {
        "bit_count 2^32-1": (
            _with(bitsets, ("metadata[0].bit_count", 2**32 - 1), ("metadata[0].byte_count", 2**29)),
            Code.SIZE_MISMATCH,
        ),
        "byte_count 2^32-1": (_with(bitsets, ("metadata[0].byte_count", 2**32 - 1)), Code.BAD_METADATA),
        "array ndim 2^32-1": (_with(arrays, ("metadata[0].ndim", 2**32 - 1)), Code.TOO_MANY_DIMS),
        "array of 2^60": (_with(arrays, ("metadata[0].dims[0]", 2**60)), Code.SHAPE_OVERFLOW),
        "array of 2^40": (_with(arrays, ("metadata[0].dims[0]", 2**40)), Code.SIZE_MISMATCH),
        "array of 2^32 x 2^32": (
            _with(arrays, ("metadata[0].dims[0]", 2**32), ("metadata[0].dims[1]", 2**32)),
            Code.SHAPE_OVERFLOW,
        ),
        "array with a zero dim hiding an overflow": (
            _with(arrays, ("metadata[0].dims[0]", 2**63), ("metadata[0].dims[1]", 0)),
            Code.SHAPE_OVERFLOW,
        ),
        "array nbytes 2^60": (_with(arrays, ("metadata[0].nbytes", 2**60)), Code.BAD_BLOB_OFFSET),
        "scale_count 2^60": (_with(quantized, ("tensors[0].quant.scale_count", 2**60)), Code.BAD_QUANTIZATION),
        "scale_count 2^46 as the tensor says": (
            _with(huge, ("tensors[0].quant.scale_count", 2**46)),
            Code.BAD_QUANTIZATION,
        ),
        "zp_count 2^60": (_with(quantized, ("tensors[0].quant.zp_count", 2**60)), Code.BAD_QUANTIZATION),
        "quant_nbytes 2^60": (_with(quantized, ("tensors[0].quant_nbytes", 2**60)), Code.BAD_BLOB_OFFSET),
        "quant_offset that wraps": (_with(quantized, ("tensors[0].quant_offset", 2**64 - 8)), Code.BAD_BLOB_OFFSET),
    }


def write_sparse_bombs(folder: Path) -> list[Path]:
    """Files of a tebibyte, almost all of it a hole, with claims that fill them."""
    end = SPARSE_BYTES // 8 * 8
    tables = Image(Document().to_bytes()).with_values(("offset_data", end))
    quantized = Image(_declared([2**46], quant(1, [1.0], axis=0)).to_bytes())
    quant_size = SPARSE_BYTES - quantized.number("tensors[0].quant_offset")
    strings = Image(Document(2, [], [text("m", "x")]).to_bytes())
    string_size = SPARSE_BYTES - strings.number("metadata[0].offset")
    arrays = Image(Document(2, [], [array("a", "u8", [1])]).to_bytes())
    array_size = SPARSE_BYTES - arrays.number("metadata[0].offset")
    heads = {
        "tables": tables,
        "quantization": quantized.with_values(
            ("tensors[0].quant_nbytes", quant_size), ("tensors[0].quant.scale_count", 2**46)
        ),
        "string": strings.with_values(("metadata[0].nbytes", string_size)),
        "array": arrays.with_values(("metadata[0].nbytes", array_size), ("metadata[0].dims[0]", array_size - 16)),
    }
    paths = []
    for name, head in heads.items():
        path = folder / f"sparse {name}"
        path.write_bytes(head[:61] + SPARSE_BYTES.to_bytes(8, "little") + head[69:])
        os.truncate(path, SPARSE_BYTES)
        paths.append(path)
    return paths
