"""Records of measured tiles, which can be saved to a file, committed, and used where nothing is measured."""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, DeviceError, Diagnostic, DocumentSpan, counted
from openinfer.oinf.atomic import atomic_file
from openinfer.synth.devices.documents import document_bytes, parsed_document, validation_problems
from openinfer.synth.targets.cpu.choices import Choice, ChooseTile, Facts, ProductShape
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes
from openinfer.synth.targets.cpu.windows import window_tiles

FOLDER = Path(__file__).parent / "files"
"""The shipped records, one file per instruction set."""
MAX_TUNED_BYTES = 16 << 20


class Processor(Facts):
    """The scope of a choice: a processor, and the number of threads of a step."""

    isa: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]
    vector_bits: Annotated[int, Field(ge=0, le=2048, multiple_of=32)]
    vector_registers: Annotated[int, Field(ge=0, le=1024)]
    fma: bool
    threads: Annotated[int, Field(ge=1, lt=1 << 31)]

    @classmethod
    def of(cls, target: CpuMachine, threads: int) -> Self:
        """The processor that code is generated for."""
        return cls(
            isa=target.isa,
            vector_bits=target.vector_bits,
            vector_registers=target.vector_registers,
            fma=target.fma,
            threads=threads,
        )


class Record(Facts):
    """The result for one product; no choice means that no tile beats the default rule."""

    processor: Processor
    product: ProductShape
    choice: Choice | None = None


class Tuned(Facts):
    """Records, one for each product on each processor.

    >>> Tuned.from_json('{"schema": "openinfer.tuned", "version": 1, "records": []}').records
    ()
    """

    document: Literal["openinfer.tuned"] = Field(default="openinfer.tuned", alias="schema")
    version: Literal[1] = 1
    records: Annotated[tuple[Record, ...], Field(strict=False)] = ()

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any], *, name: str = "<tuned>") -> Self:
        """The records in a JSON text; an impossible tile is an error."""
        value = dict(document) if isinstance(document, Mapping) else parsed_document(document, name)
        try:
            found = cls.model_validate(value)
        except ValidationError as error:
            raise DeviceError(*validation_problems(error, value, name, Code.BAD_TUNED)) from error
        problems = found._problems(name)
        if problems:
            raise DeviceError(*problems)
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The records in a file."""
        data = document_bytes(path, "file of measured choices", Code.BAD_TUNED, MAX_TUNED_BYTES)
        return cls.from_json(data, name=os.fspath(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records to a file, replacing it atomically."""
        with atomic_file(os.fspath(path)) as sink:
            sink.write(self.to_text().encode("ascii"))

    def to_text(self) -> str:
        """The document as the text of a file: one line per record, sorted."""
        lines = sorted(json.dumps(one.model_dump(mode="json", exclude_none=True)) for one in self.records)
        records = "".join(f"\n    {line}," for line in lines).removesuffix(",")
        return f'{{\n  "schema": "{self.document}",\n  "version": {self.version},\n  "records": [{records}\n  ]\n}}\n'

    def choices(self, processor: Processor) -> dict[ProductShape, Choice | None]:
        """The choices for products on a processor; None where the default rule is best."""
        return {one.product: one.choice for one in self.records if one.processor == processor}

    def choose(self, processor: Processor) -> ChooseTile:
        """The choices for a processor, as a lookup function for a schedule."""
        return self.choices(processor).get

    def including(self, *found: Record) -> "Tuned":
        """The records extended by others, which replace those of the same product and processor."""
        known = {(one.processor, one.product): one for one in (*self.records, *found)}
        return Tuned(records=tuple(known.values()))

    def _problems(self, name: str) -> list[Diagnostic]:
        found = []
        seen = set()
        for number, one in enumerate(self.records):
            message, key = _problem(one), (one.processor, one.product)
            if key in seen:
                message = "there are two records about this product"
            seen.add(key)
            if message:
                found.append(Diagnostic(Code.BAD_TUNED, message, DocumentSpan(f"/records/{number}", name)))
        return found


def _problem(one: Record) -> str | None:
    """Why a record is invalid, or None."""
    product, choice = one.product, one.choice
    unknown = [dtype for dtype in (product.accumulator, product.stored) if dtype not in DTYPES]
    if unknown:
        return f"there is no dtype {unknown[0]!r}"
    if choice is None:
        return None
    if (choice.rows, choice.vectors) not in possible_tiles(product, one.processor):
        return (
            f"this product has no tile of {counted(choice.rows, 'row')} and {choice.vectors} vectors on this processor"
        )
    if choice.copies is not None and product.right != "lies":
        return "the columns of this product cannot be read in place: it has no choice of copies"
    if choice.divided is not None and product.left == "windows":
        return "threads share the bands of a convolution: it has no choice of what is divided"
    return None


def possible_tiles(product: ProductShape, processor: Processor) -> list[tuple[int, int]]:
    """The rows and vectors of all tiles that a product can have, those expected to be fastest first."""
    target = CpuMachine(
        processor.isa, processor.vector_bits, processor.vector_registers, fma=processor.fma, l1d=0, l2=0
    )
    pairs = product.right == "panels" and DTYPES[product.stored].bits < 8
    lanes = target.lanes(DTYPES[product.accumulator].bits)
    if product.left == "windows":
        return window_tiles(product.rows, product.columns, lanes, target)
    return tile_shapes(product.rows, product.columns, lanes, target, pairs=pairs)


@cache
def shipped() -> Tuned:
    """The records that ship with the package."""
    found = (Tuned.load(path) for path in sorted(FOLDER.glob("*.json")))
    return Tuned().including(*(record for one in found for record in one.records))
