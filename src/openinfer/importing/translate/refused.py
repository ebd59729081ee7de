"""Op types that the language cannot express: the reason, and advice."""

from openinfer.errors import nearest
from openinfer.importing.translate.context import TABLE

_SEQUENCES = (
    "the language has no sequences of tensors",
    "export the model so that it stacks or concatenates tensors, as torch.onnx.export(..., dynamo=True) does",
)
_OPTIONALS = ("the language has no values that may be missing", "export the model without optional inputs")
_TEXTS = ("it works on strings", "do this before the graph runs, and pass numbers to it")
_REFUSED = {
    **dict.fromkeys(
        ("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"), _SEQUENCES
    ),
    **dict.fromkeys(("SequenceLength", "SequenceMap", "SplitToSequence", "ConcatFromSequence"), _SEQUENCES),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), _OPTIONALS),
    **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"), _TEXTS),
}


def refusal(op: str) -> tuple[str, str | None]:
    """Why an op type cannot be imported, and advice.

    >>> refusal("SequenceAt")[0]
    'the language has no sequences of tensors'
    """
    return _REFUSED.get(op) or ("there is no translation of this op type", nearest(op, TABLE))
