"""Moves the comments of a float graph to the nodes of the integer graph that theirs have become."""

from openinfer.ir.text import CommentKey, Comments
from openinfer.quantizing.writing import WrittenGraph


def carried(comments: Comments, written: WrittenGraph) -> Comments:
    """The comments of a float graph, at the nodes of the integer graph that theirs have become."""
    places: dict[int, int] = {}
    for index, olds in enumerate(written.origins):
        for node in olds:
            places.setdefault(node, index)

    def key(old: CommentKey) -> CommentKey | None:
        if old[0] not in ("node", "end of node"):
            return old
        return (old[0], places[old[1]]) if isinstance(old[1], int) and old[1] in places else None

    found = Comments()
    for one, other in (
        (comments.leading, found.leading),
        (comments.trailing, found.trailing),
        (comments.dangling, found.dangling),
    ):
        for old, lines in one.items():
            new = key(old)
            if new is not None:
                other[new] = [*other.get(new, ()), *lines]
    return found
