"""The records told to people and programs: the page of all ops, and the facts about one."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from openinfer.dtypes import DType
from openinfer.ops.arguments import usage, value_text
from openinfer.ops.record import OPS, OpRecord, OutputSpec, Param, op_dtypes
from openinfer.ops.types import ALL, FLOATS, INTEGERS, SIGNED, UNSIGNED

FAMILIES = (
    *("Binary", "Ternary", "Compare", "Unary", "Test", "Activation", "Fill", "Reduce", "Linear", "Pool", "Normalise"),
    *("Attention", "Move", "Signal", "Type", "Recurrent", "Sample"),
)
"""The order of the page; families that are not here come last."""

_GROUPS = (("all", ALL), ("floats", FLOATS), ("integers", INTEGERS), ("signed", SIGNED), ("unsigned", UNSIGNED))

INTRODUCTION = """\
# Operators

Every op is written `op name(inputs, parameters) >> outputs`. This page is made from the records that the checker and
the simulator use; `openinfer ops NAME` prints one of them.

* `?` marks an input that can be left out, `...` any number of inputs or outputs. Parameters come after the inputs, by
  name; those without a value here have no default, or one that the table explains.
* Elementwise shapes broadcast as in NumPy. Negative axes count from the end.
* All inputs of an op have one dtype unless their dtypes are listed separately; `cast` changes it. Integers wrap at
  their own width. f8, bf16 and f16 are computed in f32 and rounded once.
* The dtypes in one word: *floats* are {floats}; *signed* are {signed}; *unsigned* are {unsigned}; *integers* are
  *signed* and *unsigned*; *all* are those and t1, t2 and bool.
* *Precision* says how far generated code may be from the simulator. Integers and bools are always equal bit for bit.
"""


def families() -> dict[str, list[OpRecord]]:
    """All records by family, in the order of the page.

    >>> [record.name for record in families()["Ternary"]]
    ['fma', 'where']
    """
    records = [record for name, record in OPS.items() if name == record.name]
    names = dict.fromkeys((*FAMILIES, *(record.family for record in records)))
    found = {name: [record for record in records if record.family == name] for name in names}
    return {name: members for name, members in found.items() if members}


def dtypes_text(dtypes: Iterable[DType]) -> str:
    """Dtypes in few words.

    >>> from openinfer.ops.types import BOOL
    >>> dtypes_text(ALL), dtypes_text(INTEGERS + BOOL)
    ('all', 'integers, bool')
    """
    left = [dtype for dtype in ALL if dtype in set(dtypes)]
    words = []
    for word, group in _GROUPS:
        if all(dtype in left for dtype in group):
            words.append(word)
            left = [dtype for dtype in left if dtype not in group]
    return ", ".join(words + [dtype.name for dtype in left])


def tolerance_text(record: OpRecord) -> str:
    """How far a correct implementation may be from the reference."""
    units = f"{record.tolerance.ulps:g} units in the last place"
    return {
        "exact": "equal bit for bit",
        "ulp": f"within {units}",
        "sum": "within twice the error bound of any order of summation",
        "row": f"within {units} of the largest result",
    }[record.tolerance.kind]


# --- facts for programs -----------------------------------------------------------------------------------------------


def op_facts(record: OpRecord) -> dict[str, Any]:
    """A record as plain values, for JSON."""
    allowed = record.signature.allowed
    return {
        "name": record.name,
        "family": record.family,
        "aliases": list(record.aliases),
        "usage": usage(record),
        "doc": record.doc,
        "dtypes": [dtype.name for dtype in op_dtypes(record)],
        "inputs": [
            {
                "name": spec.name,
                "type": spec.type,
                "dtypes": [dtype.name for dtype in ALL if dtype in allowed(spec.type)],
                "optional": spec.optional,
                "variadic": spec.variadic,
                "dequantizes": spec.dequantizes,
            }
            for spec in record.signature.inputs
        ],
        "params": [_param_facts(param) for param in record.params],
        "outputs": [
            {"name": out.name, "dtype": _output_dtype(record, out), "variadic": out.variadic}
            for out in record.signature.outputs
        ],
        "tolerance": {"kind": record.tolerance.kind, "ulps": record.tolerance.ulps},
    }


def _param_facts(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "kind": param.kind,
        "required": param.is_required,
        "default": None if param.is_required else _plain(param.default),
        "choices": list(param.choices),
        "aliases": list(param.aliases),
        "doc": param.doc,
    }


def _plain(value: object) -> Any:
    """A default that JSON has; infinities and dtypes are their names."""
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, DType) or (isinstance(value, float) and not isfinite(value)):
        return str(value)
    return value


def _output_dtype(record: OpRecord, out: OutputSpec) -> str:
    """What decides the dtype of an output, in words."""
    if record.dtype is not None:
        return "as the parameters say"
    if out.type not in record.signature.types:
        return out.type
    like = next((spec.name for spec in record.signature.inputs if spec.type == out.type), None)
    return f"the dtype of {like}" if like else dtypes_text(record.signature.allowed(out.type))


# --- pages for people -------------------------------------------------------------------------------------------------


def op_markdown(record: OpRecord) -> str:
    """One record as a page of its own."""
    parts = [f"# {record.name}", f"```text\n{usage(record)}\n```", record.doc]
    if record.aliases:
        parts.append(f"Also written {', '.join(f'`{alias}`' for alias in record.aliases)}.")
    parts.append(_table(("Input", "Dtypes", "Notes"), _input_rows(record)))
    if record.params:
        parts.append(_table(("Parameter", "Type", "Default", "Meaning"), map(_param_row, record.params)))
    outputs = [
        f"`{out.name}{', ...' * out.variadic}`: {_output_dtype(record, out)}" for out in record.signature.outputs
    ]
    parts.append(f"Outputs: {'; '.join(outputs)}. Precision: {tolerance_text(record)}.")
    return "\n\n".join(parts) + "\n"


def _input_rows(record: OpRecord) -> Iterable[tuple[str, ...]]:
    seen: dict[str, str] = {}
    for spec in record.signature.inputs:
        allowed = dtypes_text(record.signature.allowed(spec.type))
        first = seen.setdefault(spec.type, spec.name)
        dtypes = allowed if first == spec.name or spec.type not in record.signature.types else f"the dtype of {first}"
        notes = (
            "can be left out" * spec.optional,
            "any number, of one dtype" * spec.variadic,
            "a quantized tensor counts as its real numbers" * spec.dequantizes,
        )
        yield f"`{spec.name}`", dtypes, "; ".join(filter(None, notes))


def _param_row(param: Param) -> tuple[str, ...]:
    names = " or ".join(f"`{name}`" for name in (param.name, *param.aliases))
    default = "required" if param.is_required else "" if param.default is None else f"`{value_text(param.default)}`"
    choices = f" One of {', '.join(f'`{value_text(choice)}`' for choice in param.choices)}." if param.choices else ""
    return names, param.kind, default, param.doc + choices


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def support_table() -> str:
    """Which dtypes the simulator computes each op on."""
    rows = [
        (f"[{record.name}](#{record.name})", *("x" if dtype in record.dtypes else "" for dtype in ALL))
        for members in families().values()
        for record in members
    ]
    return _table(("Op", *(dtype.name for dtype in ALL)), rows)


def catalogue_markdown() -> str:
    """The page of all ops: each family with its ops, and which dtypes they take."""
    groups = {word: ", ".join(dtype.name for dtype in group) for word, group in _GROUPS}
    parts = [INTRODUCTION.format(**groups)]
    for family, members in families().items():
        # Not the bare name: ops and families share some, and links go to the ops.
        parts += [f"## {family} ops\n", *(op_markdown(record).replace("# ", "### ", 1) for record in members)]
    parts += ["## Dtypes in the simulator\n", "An x marks what the op is defined on.\n", support_table() + "\n"]
    return "\n".join(parts)
