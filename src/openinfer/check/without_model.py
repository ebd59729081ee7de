"""Reports a missing model once, not for every variable that needs it."""

from collections.abc import Collection

from openinfer.check.links import GIVE_A_MODEL, Links
from openinfer.check.sizes import Sizes
from openinfer.errors import Code, Diagnostic, fixes_of

_MOST_NAMED = 6


def told_once(problems: list[Diagnostic], sizes: Sizes, links: Links) -> list[Diagnostic]:
    """The problems, with all that a missing model causes merged into the first; a single one stays as it is."""
    lacking = [problem for problem in problems if _is_lacking(problem)]
    if len(lacking) < 2:
        return problems
    code = Code.UNKNOWN_LINK if any(one.code is Code.UNKNOWN_LINK for one in lacking) else Code.UNKNOWN_SIZE
    wanted = [*_listed("size", sizes.missing), *_listed("value of", links.missing)]
    verb = "comes" if len(sizes.missing) + len(links.missing) == 1 else "come"
    what = f"{' and '.join(wanted)} {verb} from it" if wanted else "the graph takes tensors from it"
    advice = GIVE_A_MODEL
    if sizes.missing:
        advice += f"; sizes also by --size {next(iter(sizes.missing))}=4 or sizes={{...}}"
    summary = Diagnostic(code, f"no model was given; {what}", lacking[0].span, advice)
    return [
        summary if problem is lacking[0] else problem
        for problem in problems
        if problem is lacking[0] or not _is_lacking(problem)
    ]


def without_what_a_model_gives(problems: list[Diagnostic]) -> list[Diagnostic]:
    """The certain problems of a graph that was given neither a model nor sizes.

    If it needs them, its types are unknown, and only unknown ops are certain.
    """
    if any(problem.code in (Code.UNKNOWN_SIZE, Code.UNKNOWN_LINK) for problem in problems):
        return [problem for problem in problems if problem.code is Code.UNKNOWN_OP]
    return problems


def _is_lacking(problem: Diagnostic) -> bool:
    """Whether a missing model may be the only cause; a name that looks misspelt is a mistake of its own."""
    is_guessed = bool(fixes_of(problem.help))
    return problem.code in (Code.UNKNOWN_SIZE, Code.UNKNOWN_LINK) and problem.span is not None and not is_guessed


def _listed(what: str, names: Collection[str]) -> list[str]:
    if not names:
        return []
    if len(names) > 1:
        what = what.replace("size", "sizes").replace("value", "values")
    shown = ", ".join([*names][:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return [f"the {what} {shown}" + (f" and {more} more" if more > 0 else "")]
