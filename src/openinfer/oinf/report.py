"""The contents of a model file, as facts for programs and as text for people."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.errors import Diagnostic
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import TensorInfo
from openinfer.oinf.payloads import PayloadValue
from openinfer.oinf.quant import QuantParams
from openinfer.oinf.statistics import Advance, Bar, Statistics, statistics
from openinfer.tensor import Tensor

_SHOWN = 5
_BAR_WIDTH = 40


def _group_facts(quant: QuantParams) -> dict[str, Any]:
    """The facts that only a quantization in groups has."""
    if quant.scale.group is None:
        return {}
    offset = None if quant.offset is None else quant.offset.values.tolist()
    return {"group": quant.scale.group, "scale_dtype": quant.scale_dtype.name, "offset": offset}


@dataclass(frozen=True)
class TensorReport:
    """One tensor: its table entry, a few values, and statistics if requested."""

    info: TensorInfo
    preview: tuple[str, ...] = ()
    statistics: Statistics | None = None

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        info = self.info
        quant = info.quant
        return {
            "name": info.name,
            "dtype": info.dtype.name,
            "shape": list(info.shape),
            "nbytes": info.nbytes if info.has_data else 0,
            "offset": info.offset,
            "initialized": info.has_data,
            "preview": list(self.preview),
            "statistics": None if self.statistics is None else jsonable(asdict(self.statistics)),
            "quantization": None
            if quant is None
            else {
                "scheme": quant.scheme,
                "axis": quant.scale.axis,
                "scale": quant.scale.values.tolist(),
                "zero_point": None if quant.zero_point is None else quant.zero_point.values.tolist(),
                **_group_facts(quant),
            },
        }

    def lines(self) -> Iterator[str]:
        """The documented text form."""
        info = self.info
        if not info.has_data:
            yield f"{info.name}: {info.type_text} -- uninitialized"
        elif info.shape:
            yield f"{info.name}: {info.type_text} = {_braced(self.preview)}"
        else:
            yield f"{info.name}: {info.type_text} = {self.preview[0]}"
        if info.quant is not None:
            yield f"- quant: {info.quant.describe()}"
        if self.statistics is not None:
            yield from _statistics_lines(info, self.statistics)


@dataclass(frozen=True)
class Report:
    """A checked model file."""

    path: str
    version: int
    file_size: int
    sizevars: dict[str, int]
    metadata: dict[str, tuple[str, PayloadValue]]
    tensors: tuple[TensorReport, ...]
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no check found an error."""
        return not any(not diagnostic.code.is_warning for diagnostic in self.diagnostics)

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "path": self.path,
            "version": self.version,
            "file_size": self.file_size,
            "sizevars": self.sizevars,
            "metadata": {
                name: {"type": type_name, "value": jsonable(value)}
                for name, (type_name, value) in self.metadata.items()
            },
            "tensors": [tensor.facts() for tensor in self.tensors],
            "diagnostics": [diagnostic.facts() for diagnostic in self.diagnostics],
            "ok": self.ok,
        }

    def to_json(self) -> str:
        """The facts as indented JSON (numbers that JSON lacks are the strings "nan", "inf" and "-inf")."""
        return json.dumps(self.facts(), indent=2, allow_nan=False)

    def text(self) -> str:
        """The documented summary: size variables, metadata, tensors."""
        sections = [
            [f"{name} := {value}" for name, value in self.sizevars.items()],
            [f"{name}: {type_name} = {_value_text(value)}" for name, (type_name, value) in self.metadata.items()],
            *(list(tensor.lines()) for tensor in self.tensors),
        ]
        return "\n\n".join("\n".join(section) for section in sections if section)


def describe(
    model: ModelLoader,
    names: Iterable[str] | None = None,
    *,
    with_statistics: bool = True,
    advance: Advance | None = None,
    checks: Iterable[Callable[[ModelLoader], Iterable[Diagnostic]]] = (),
) -> Report:
    """Collect a report on a model: on all tensors, or on the named ones."""
    wanted = list(model.tensors.values()) if names is None else [model.info(name) for name in names]
    return Report(
        model.path,
        model.version,
        model.file_size,
        dict(model.sizevars),
        {name: (info.type_name, model.metadata[name]) for name, info in model.metadata_info.items()},
        tuple(_tensor_report(model, info, advance, with_statistics=with_statistics) for info in wanted),
        tuple(found for check in checks for found in check(model)),
    )


def _tensor_report(
    model: ModelLoader, info: TensorInfo, advance: Advance | None, *, with_statistics: bool
) -> TensorReport:
    if not info.has_data:
        return TensorReport(info)
    tensor = model.load(info.name)
    told = advance and (lambda count: advance(info.dtype.nbytes(count)))
    result = statistics(tensor, told) if with_statistics else None
    return TensorReport(info, _preview(tensor), result)


def _preview(tensor: Tensor) -> tuple[str, ...]:
    flat = Tensor(tensor.dtype, (tensor.size,), tensor.storage)
    if tensor.size <= 2 * _SHOWN:
        return tuple(map(number_text, flat.to_numpy()))
    first, last = flat[:_SHOWN].to_numpy(), flat[tensor.size - _SHOWN :].to_numpy()
    return (*map(number_text, first), "...", *map(number_text, last))


def number_text(value: Any) -> str:
    """A number with at most six digits.

    >>> number_text(0.1234567), number_text(np.bool_(True)), number_text(-3)
    ('0.123457', 'true', '-3')
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(value)
    return f"{float(value):.6g}"


def _statistics_lines(info: TensorInfo, found: Statistics) -> Iterator[str]:
    facts = [("nbytes", str(info.nbytes))]
    for name in ("min", "max", "mean", "median", "std"):
        value = getattr(found, {"min": "minimum", "max": "maximum"}.get(name, name))
        if value is not None:
            facts.append((name, number_text(value)))
    facts += [(name, str(count)) for name, count in (("nan", found.nan), ("inf", found.infinite)) if count]
    yield f"- [{', '.join(f'{name}: {value}' for name, value in facts)}]"
    if found.finite > 2 * _SHOWN:
        yield "- hist:"
        yield from _histogram_lines(found.histogram)


def _histogram_lines(bars: Sequence[Bar]) -> Iterator[str]:
    highest = max(bar.count for bar in bars)
    ranges = [
        number_text(bar.low) if bar.low == bar.high else f"[{number_text(bar.low)}, {number_text(bar.high)})"
        for bar in bars
    ]
    ranges[-1] = ranges[-1].replace(")", "]")
    for bar, text in zip(bars, ranges, strict=True):
        marks = "#" * round(bar.count / highest * _BAR_WIDTH)
        yield f"    {text:<{max(map(len, ranges))}} {bar.count:>{len(str(highest))}} {marks}".rstrip()


def _value_text(value: PayloadValue) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, np.ndarray):
        return _braced(_array_preview(value))
    return number_text(value)


def _braced(values: Sequence[str]) -> str:
    return f"{{ {', '.join(values)} }}" if values else "{ }"


def _array_preview(array: npt.NDArray[Any]) -> list[str]:
    flat = array.reshape(-1)
    if flat.size <= 2 * _SHOWN:
        return [number_text(value) for value in flat]
    return [*map(number_text, flat[:_SHOWN]), "...", *map(number_text, flat[-_SHOWN:])]


def jsonable(value: Any) -> Any:
    """Values for JSON; the numbers that it lacks become the strings "nan", "inf" and "-inf".

    >>> jsonable({"largest": float("inf"), "shape": (1, 2)})
    {'largest': 'inf', 'shape': [1, 2]}
    """
    match value:
        case dict():
            return {key: jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [jsonable(item) for item in value]
        case np.ndarray():
            return jsonable(value.astype(np.float64).tolist() if value.dtype.kind == "V" else value.tolist())
        case float() if not isfinite(value):
            return str(value)
        case _:
            return value


def summary_facts(model: ModelLoader) -> dict[str, Any]:
    """The contents of a summary, as plain values for JSON."""
    tensors = model.tensors.values()
    kinds = Counter(info.dtype.name for info in tensors)
    return {
        "path": model.path,
        "version": model.version,
        "file_size": model.file_size,
        "sizevars": dict(model.sizevars),
        "metadata": list(model.metadata_info),
        "tensors": len(tensors),
        "dtypes": dict(sorted(kinds.items(), key=lambda item: -item[1])),
        "elements": sum(Tensor(info.dtype, info.shape, _NOTHING).size for info in tensors),
        "nbytes": sum(info.nbytes for info in tensors if info.has_data),
        "without_data": [info.name for info in tensors if not info.has_data],
        "sha256": _sha256(model),
    }


def summary(model: ModelLoader) -> str:
    """A few lines for release notes: the file, its contents, and its SHA-256."""
    facts = summary_facts(model)
    sizes = ", ".join(f"{name}={value}" for name, value in facts["sizevars"].items())
    kinds = ", ".join(f"{count} {name}" for name, count in facts["dtypes"].items())
    held = f"{facts['elements']:,} elements, {size_text(facts['nbytes'])}"
    lines = [
        f"{model.path}: .oinf version {model.version}, {size_text(model.file_size)}",
        f"sizes:    {sizes or 'none'}",
        f"metadata: {', '.join(facts['metadata']) or 'none'}",
        f"tensors:  {facts['tensors']} ({kinds or 'none'}), {held}",
    ]
    if facts["without_data"]:
        lines.append(f"without data: {', '.join(facts['without_data'])}")
    lines.append(f"sha256:   {facts['sha256']}")
    return "\n".join(lines)


_NOTHING = np.empty(0, np.uint8)


def size_text(nbytes: int) -> str:
    """A size in a readable unit.

    >>> size_text(999), size_text(5 << 20)
    ('999 B', '5.0 MiB')
    """
    if nbytes < 1 << 10:
        return f"{nbytes} B"
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.1f} {unit}"
    return f"{nbytes / 1024:.1f} KiB"


def _sha256(model: ModelLoader) -> str:
    digest = hashlib.sha256()
    for start in range(0, model.file_size, 1 << 20):
        digest.update(model.payload(start, min(1 << 20, model.file_size - start)).data)
    return digest.hexdigest()
