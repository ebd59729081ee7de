"""Counts with their nouns, for messages and reports."""

_IRREGULAR = {"axis": "axes", "index": "indices", "entry": "entries"}


def counted(count: int, noun: str) -> str:
    """A count with its noun in the singular or plural.

    >>> counted(1, "call"), counted(0, "call"), counted(2, "spatial axis")
    ('1 call', '0 calls', '2 spatial axes')
    """
    if count == 1:
        return f"{count} {noun}"
    *before, last = noun.split(" ")
    return " ".join([str(count), *before, _IRREGULAR.get(last, f"{last}s")])
