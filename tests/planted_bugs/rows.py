"""Bugs in rows on GPUs: in what threads and groups share, keep and exchange."""

from tests.planted_bugs.bug import Bug

SHARED_ROWS = "tests/synth/test_simt_shared_rows.py"
EXTREMES = "tests/synth/test_simt_extremes.py"
ROWS = "tests/synth/test_simt_rows.py"
ALIGNED = "tests/synth/test_simt_aligned.py"
ROWS_ON_LAVAPIPE = "tests/synth/vulkan/test_shared_rows_on_lavapipe.py"

ROW_BUGS = (
    Bug(
        "aligned chunks end after their row",
        "synth/targets/simt/aligned.py",
        "(self.extent - before) // self.width",
        "self.extent // self.width",
        ALIGNED,
        "odd_length",
    ),
    Bug(
        "loops of different lengths share what is beside their chunks",
        "synth/targets/simt/aligned.py",
        "taken |= own",
        "taken |= set()",
        ALIGNED,
        "other_lengths",
    ),
    Bug(
        "elements beside aligned chunks are those before them",
        "synth/targets/simt/aligned.py",
        "select(outer < start, outer, outer + inside)",
        "outer",
        ALIGNED,
        "odd_length",
    ),
    Bug(
        "results stay in registers although what they depend on changes",
        "synth/targets/simt/again.py",
        "return not parts & (inside | changed) and not loaded & stored",
        "return not parts & inside and not loaded & stored",
        ROWS,
        "computed_again",
    ),
    Bug(
        "powers of a group without numbers are relative to its largest element",
        "synth/targets/simt/powers.py",
        "select(var.eq(Const(-inf, var.dtype)), Const(0, var.dtype), var)",
        "var",
        SHARED_ROWS,
        "sums_of_powers",
    ),
    Bug(
        "powers of a group are used as if they were relative to all of a row",
        "synth/targets/simt/powers.py",
        "return part * factor if is_power else None",
        "return part if is_power else None",
        SHARED_ROWS,
        "sums_of_powers",
    ),
    Bug(
        "powers that stay in memory are those of a group",
        "synth/targets/simt/powers.py",
        "if len(places) != 1 or name in",
        "if len(places) > 1 or name in",
        SHARED_ROWS,
        "more_depends",
    ),
    Bug(
        "a group leaves its largest element while some of it still read the last one",
        "synth/targets/simt/team.py",
        "is_last=is_last or self.across is None",
        "is_last=self.across is None",
        SHARED_ROWS,
        "sums_of_powers and turns",
    ),
    Bug(
        "threads without the extreme do not look for NaN",
        "synth/targets/simt/extremes.py",
        """here | unary("isnan", best) if best""",
        "here if best",
        EXTREMES,
        "find_the_place",
    ),
    Bug(
        "an extreme that is changed later is looked for by few threads",
        "synth/targets/simt/extremes.py",
        "if is_extreme and _is_whole(each.var, most, between):",
        "if is_extreme:",
        EXTREMES,
        "if_it_is_no_extreme",
    ),
    Bug(
        "groups of a row read what others have not exchanged yet",
        "synth/targets/simt/group_team.py",
        "yield Exchange(values, memory, self.row, self.words, self._place)",
        "yield from ()",
        SHARED_ROWS,
        "right_at_every_length",
    ),
    Bug(
        "threads behind the last group add what another one has",
        "synth/targets/simt/group_team.py",
        "if self.groups == self.width:",
        "if self.groups > 0:",
        SHARED_ROWS,
        "right_at_every_length",
    ),
    Bug(
        "the exchanges of a row use the same words",
        "synth/targets/simt/group_team.py",
        "self._place += self.groups * sum",
        "self._place += 0 * sum",
        SHARED_ROWS,
        "ops_of_shared_rows",
    ),
    Bug(
        "groups of a team end after others have gone on",
        "synth/targets/simt/ready.py",
        "isinstance(part, Exchange)",
        "isinstance(part, ())",
        SHARED_ROWS,
        "look_for_failures",
    ),
    Bug(
        "a row in which groups may end early is shared",
        "synth/targets/simt/rows.py",
        "shares=not can_fail",
        "shares=True",
        SHARED_ROWS,
        "may_end_early",
    ),
    Bug(
        "the words of a row are not zeroed for the next launch",
        "synth/targets/vulkan/waiting.py",
        "i <= count; ++i",
        "i < count; ++i",
        ROWS_ON_LAVAPIPE,
        "in_every_step",
    ),
)
