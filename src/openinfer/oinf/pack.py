"""Packs weights files into one model file: choose, rename, cast and quantize, one chunk at a time.

Filters match the names in the source; renames come next; batch norm folding, casts and quantizations match the final
names. If several rules match, the last one wins. A rule with wildcards skips tensors that it cannot sensibly apply to
(an integer tensor under ``*=bf16``); a rule with a plain name must apply.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from openinfer.dtypes import DType, convert, dtype_of
from openinfer.errors import Code, Diagnostic, OinfError, TensorError, nearest
from openinfer.oinf.authoring import in_field
from openinfer.oinf.file import AnyPath
from openinfer.oinf.fold_norms import with_folded_norms
from openinfer.oinf.options import bad_option, metadata_options
from openinfer.oinf.package import Blob, Held, Package, ProgressCallback, TensorEntry, duplicate_name
from openinfer.oinf.quant_spec import QuantSpec
from openinfer.oinf.quantize import CHUNK, Loss, QuantizedData, QuantPayload, packed_chunks
from openinfer.oinf.quantize_groups import GroupedData
from openinfer.oinf.report import jsonable
from openinfer.oinf.sources import SourceTensor, TensorSource, open_source
from openinfer.oinf.writer import write_package


@dataclass(frozen=True)
class PackOptions:
    """What to do while packing; each rule is written as on the command line."""

    rename: Sequence[str] = ()
    cast: Sequence[str] = ()
    quantize: Sequence[str] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    metadata: Sequence[str] = ()
    fold_batch_norm: Sequence[str] = ()


@dataclass(frozen=True)
class PackedTensor:
    """The outcome for one tensor, and what it lost."""

    name: str
    source_type: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    quantization: str | None
    loss: Loss | None

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        loss = self.loss
        return {
            "name": self.name,
            "from": self.source_type,
            "dtype": self.dtype.name,
            "shape": list(self.shape),
            "nbytes": self.nbytes,
            "quantization": self.quantization,
            "max_error": None if loss is None else jsonable(loss.largest),
            "rms_error": None if loss is None else jsonable(loss.rms),
            "snr_db": None if loss is None or loss.squares == 0 else jsonable(loss.snr_db),
        }


@dataclass(frozen=True)
class PackReport:
    """What was written."""

    path: str
    file_size: int
    tensors: tuple[PackedTensor, ...]
    skipped: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "path": self.path,
            "file_size": self.file_size,
            "tensors": [tensor.facts() for tensor in self.tensors],
            "skipped": list(self.skipped),
        }


class PackJob:
    """A packing job with all decisions made and no data read yet."""

    def __init__(self, sources: Sequence[TensorSource], options: PackOptions) -> None:
        self._rules = _Rules(options)
        named = self._rules.choose([tensor for source in sources for tensor in source.tensors])
        kept, used = with_folded_norms(dict(named), options.fold_batch_norm)
        for text in options.fold_batch_norm:
            if text not in used:
                raise _matched_nothing(f"{text.partition('=')[0]}.weight", [name for name, _ in named])
        chosen = list(kept.items())
        self._planned = [self._plan(name, tensor) for name, tensor in chosen]
        self._rules.require_all_used([name for name, _ in chosen])
        sizevars = {name: value for source in sources for name, value in source.sizevars.items()} | dict(options.sizes)
        metadata = {name: value for source in sources for name, value in source.metadata.items()}
        self.package = Package.of(
            sizevars,
            metadata | metadata_options(options.metadata),
            [entry for entry, _ in self._planned],
        )
        self.skipped = tuple(name for source in sources for name in source.skipped)

    @property
    def nbytes(self) -> int:
        """The bytes of tensor data that will be written."""
        return sum(entry.data.nbytes for entry, _ in self._planned if entry.data is not None)

    def write(self, path: str, progress: ProgressCallback | None = None) -> PackReport:
        """Write the model file."""
        write_package(path, self.package, progress)
        packed = tuple(sorted((result for _, result in self._planned), key=lambda result: result.name))
        return PackReport(path, os.stat(path).st_size, packed, self.skipped)

    def _plan(self, name: str, tensor: SourceTensor) -> tuple[TensorEntry, PackedTensor]:
        quantization = self._rules.quantization(name, tensor)
        target = self._rules.cast(name, tensor)
        loss: Loss | None = None
        data: Blob | None = None
        quant: Blob | None = None if tensor.quant is None else Held(tensor.quant.encode())
        dtype = target or tensor.dtype
        if quantization is not None:
            loss = Loss()
            kind = QuantizedData if quantization.groups is None else GroupedData
            coded = kind(name, tensor.shape, tensor.values, quantization, loss)
            data, quant = coded, QuantPayload(coded)
            dtype = quantization.dtype
        elif dtype is None or (tensor.dtype is None and tensor.read is None):
            raise _unsupported(name, tensor)
        elif tensor.read is not None:
            loss = Loss() if dtype is not tensor.dtype else None
            data = tensor.stored if loss is None and tensor.stored is not None else _CastData(name, tensor, dtype, loss)
        kept = tensor.quant if quantization is None else None
        has_groups = kept is not None and kept.scale.group is not None
        has_groups |= quantization is not None and quantization.groups is not None
        entry = TensorEntry(name, dtype, tensor.shape, data, quant, has_groups)
        text = str(quantization) if quantization is not None else None
        size = data.nbytes if data is not None else 0
        return entry, PackedTensor(name, tensor.type_name, dtype, tensor.shape, size, text, loss)


def pack(
    weights: Sequence[AnyPath],
    path: AnyPath,
    options: PackOptions | None = None,
    progress: ProgressCallback | None = None,
) -> PackReport:
    """Pack weights files into one model file.

    >>> import tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(f"{folder}/w.npz", w=np.linspace(-1, 1, 8, dtype=np.float32))
    >>> report = pack([f"{folder}/w.npz"], f"{folder}/w.oinf", PackOptions(quantize=["w=i8"]))
    >>> report.tensors[0].dtype, round(report.tensors[0].loss.snr_db)
    (<dtype i8>, 50)
    """
    resources = ExitStack()
    try:
        sources = [open_source(os.fsdecode(source), resources) for source in weights]
        return PackJob(sources, options or PackOptions()).write(os.fsdecode(path), progress)
    finally:
        resources.close()


@dataclass(frozen=True)
class _CastData:
    """The elements of a source tensor in another dtype, or in their own if they cannot be copied unchanged."""

    name: str
    tensor: SourceTensor
    dtype: DType
    loss: Loss | None

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(self.tensor.size)

    def chunks(self) -> Iterator[Any]:
        return packed_chunks(self._converted(), self.dtype)

    def _converted(self) -> Iterator[Any]:
        for start in range(0, self.tensor.size, CHUNK):
            values = self.tensor.values(start, min(CHUNK, self.tensor.size - start))
            if self.tensor.dtype is None:
                values = values.astype("float32")
            try:
                stored = convert(values, self.dtype)
            except TensorError as error:
                raise in_field(self.name, error) from error
            if self.loss is not None:
                self.loss.add(values, stored)
            yield stored


class _Rules:
    """The parsed options, and a record of the patterns that have matched something."""

    def __init__(self, options: PackOptions) -> None:
        self.include, self.exclude = options.include, options.exclude
        self.renames = [_rename_option(text) for text in options.rename]
        self.casts = [(pattern, dtype_of(value)) for pattern, value in map(_pattern_option, options.cast)]
        self.quantizations = [
            (pattern, QuantSpec.parse(value)) for pattern, value in map(_pattern_option, options.quantize)
        ]
        self.used: set[str] = set()
        self.applied: set[tuple[str, QuantSpec]] = set()
        self.without_axis: set[tuple[str, QuantSpec]] = set()

    def choose(self, tensors: Sequence[SourceTensor]) -> list[tuple[str, SourceTensor]]:
        """The tensors to pack, with their final names."""
        chosen: dict[str, SourceTensor] = {}
        for tensor in tensors:
            included = [pattern for pattern in self.include if fnmatchcase(tensor.name, pattern)]
            excluded = [pattern for pattern in self.exclude if fnmatchcase(tensor.name, pattern)]
            self.used.update(included, excluded)
            if excluded or (self.include and not included):
                continue
            name = self._renamed(tensor.name)
            if name in chosen:
                raise duplicate_name("tensor", name)
            chosen[name] = tensor
        if not chosen and not tensors:
            raise OinfError(Diagnostic(Code.BAD_WEIGHTS_FILE, "the weights hold no tensors"))
        unmatched = [pattern for pattern in (*self.include, *self.exclude) if pattern not in self.used]
        unmatched += [regex.pattern for regex, _ in self.renames if regex.pattern not in self.used]
        if unmatched:
            raise _matched_nothing(unmatched[0], [tensor.name for tensor in tensors])
        return list(chosen.items())

    def _renamed(self, name: str) -> str:
        for regex, replacement in self.renames:
            try:
                name, count = regex.subn(replacement, name)
            except (re.error, IndexError) as error:
                message = f"cannot rename with {regex.pattern!r}: {error}"
                raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message)) from error
            if count:
                self.used.add(regex.pattern)
        return name

    def cast(self, name: str, tensor: SourceTensor) -> DType | None:
        """The dtype to cast a tensor to, or None."""
        target = None
        for pattern, dtype in self.casts:
            if not fnmatchcase(name, pattern):
                continue
            self.used.add(pattern)
            exact = pattern == name
            if tensor.quant is not None or tensor.read is None:
                _refuse_exact(name, "is quantized or has no data and cannot be cast", is_exact=exact)
            elif tensor.is_float or dtype.kind != "float" or exact:
                target = dtype
        return target

    def quantization(self, name: str, tensor: SourceTensor) -> QuantSpec | None:
        """How to quantize a tensor, or None."""
        target = None
        for pattern, spec in self.quantizations:
            if not fnmatchcase(name, pattern):
                continue
            self.used.add(pattern)
            exact = pattern == name
            if not tensor.is_float or tensor.read is None:
                reason = f"is {tensor.type_name}; only float tensors with data can be quantized"
                _refuse_exact(name, reason, is_exact=exact)
            elif not spec.is_for(tensor.shape) and not exact:
                self.without_axis.add((pattern, spec))
            else:
                self.applied.add((pattern, spec))
                target = spec
        return target

    def require_all_used(self, names: Sequence[str]) -> None:
        """Reject a cast or quantization that matched nothing, or no tensor with its axis: most likely a misspelling."""
        for pattern in [pattern for pattern, _ in (*self.casts, *self.quantizations)]:
            if pattern not in self.used:
                raise _matched_nothing(pattern, names)
        for pattern, spec in self.without_axis - self.applied:
            message = f"no tensor that {pattern!r} matches has an axis {spec.axis} to quantize along"
            raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message))


def _unsupported(name: str, tensor: SourceTensor) -> OinfError:
    advice = (
        f"leave it out with --exclude '{tensor.name}'"
        if tensor.read is None
        else f"cast it, for example with --cast '{name}=bf16'"
    )
    message = f"tensor {name!r} has element type {tensor.type_name}, which .oinf does not have"
    return OinfError(Diagnostic(Code.UNSUPPORTED_WEIGHTS_DTYPE, message, help=advice))


def _refuse_exact(name: str, reason: str, *, is_exact: bool) -> None:
    if is_exact:
        raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, f"tensor {name!r} {reason}"))


def _matched_nothing(pattern: str, names: Sequence[str]) -> OinfError:
    return OinfError(
        Diagnostic(
            Code.PATTERN_MATCHED_NOTHING,
            f"the pattern {pattern!r} matches no tensor",
            help=nearest(pattern, names) or f"there are {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}",
        )
    )


def _pattern_option(text: str) -> tuple[str, str]:
    pattern, _, value = text.partition("=")
    if not pattern or not value:
        raise bad_option(text, "GLOB=VALUE")
    return pattern, value


def _rename_option(text: str) -> tuple[re.Pattern[str], str]:
    pattern, equals, replacement = text.rpartition("=")
    if not equals or not pattern:
        raise bad_option(text, "REGEX=REPLACEMENT")
    try:
        return re.compile(pattern), replacement
    except (re.error, RecursionError, OverflowError) as error:
        raise bad_option(text, f"REGEX=REPLACEMENT, and not a regular expression: {error}") from error
