"""Bugs in passes, in choices among kernels, in whole programs and in what is written to disk."""

from tests.planted_bugs.bug import Bug

CONSTRAINTS = "tests/synth/test_constraints.py"
SIMPLIFY = "tests/synth/test_simplify.py"
PIPELINE = "tests/synth/test_pipeline.py"
TRACES = "tests/synth/test_trace_in_c.py"
THREADS = "tests/synth/test_threads.py"
TUNE = "tests/synth/test_tune.py"
TUNED = "tests/synth/test_tuned.py"
PROGRAMS = "tests/differential/test_random_programs.py"
EMISSION = "tests/synth/test_emission.py"
CACHE = "tests/synth/test_cache.py"

PASS_BUGS = (
    Bug(
        "rows that are left out are written over those that are not",
        "synth/passes/fuse/store_elsewhere.py",
        "long <= set(axes) and len",
        "len",
        "tests/synth/test_relayout.py",
        "moved_apart",
    ),
    Bug(
        "kernels are fused across a barrier",
        "synth/passes/fuse/body.py",
        "self._fences.append(place)",
        "pass",
        CONSTRAINTS,
        "keeps_apart and barrier",
    ),
    Bug(
        "a block's constraints do not count",
        "synth/program/constraints.py",
        "{**block.constraints, **node.constraints}",
        "{**node.constraints}",
        CONSTRAINTS,
        "keeps_apart and block",
    ),
    Bug(
        "a node is fused past one that a dep puts after it",
        "synth/program/constraints.py",
        "self._after.setdefault(one, []).append(other)",
        "self._after.setdefault(other, []).append(one)",
        CONSTRAINTS,
        "keeps_apart and dep",
    ),
    Bug(
        "an op is shared although its operand has changed",
        "synth/passes/simplify.py",
        "            self._forget_all(self.at_home)\n",
        "",
        SIMPLIFY,
        "computed_again or must_not_meet",
    ),
    Bug(
        "an op is shared across a barrier",
        "synth/passes/simplify.py",
        "if isinstance(step, Fence) or self.constraints.must_stay(step.node):",
        "if self.constraints.must_stay(step.node):",
        SIMPLIFY,
        "must_not_meet",
    ),
    Bug(
        "what was folded is lost",
        "synth/passes/simplify.py",
        "return value not in self._outputs and all(",
        "return all(",
        SIMPLIFY,
        "beforehand",
    ),
    Bug(
        "a stage of the pipeline shows what later ones made",
        "synth/pipeline.py",
        "StageResult(Stage.SIMPLIFY, partial(program_text, program))",
        "StageResult(Stage.SIMPLIFY, lambda: program_text(program))",
        PIPELINE,
        "pipeline_is_through",
    ),
    Bug(
        "kernels in loops stay as they are",
        "synth/program/ir.py",
        "with_body(step, map_steps(step.body, change)) if isinstance(step, LoopStep) else step",
        "step",
        PIPELINE,
        "inside_a_loop",
    ),
    Bug(
        "a trace shows memory that something else lies in",
        "synth/memory/fresh.py",
        "        if first < last:\n",
        "        if first > last:\n",
        TRACES,
        "another_has_taken",
    ),
    Bug(
        "a trace loses what only its mark needs",
        "synth/program/liveness.py",
        "self._keeps_marked = liveness.program.keeps_marked",
        "self._keeps_marked = False",
        TRACES,
        "random_graphs or every_node",
    ),
    Bug(
        "loops that write the same memory become kernels of their own",
        "synth/passes/split.py",
        "if part.written & known or part.read & later:",
        "if part.read & later:",
        THREADS,
        "stay_together",
    ),
)

TUNING_BUGS = (
    Bug(
        "a tile that does not fit is taken from a file",
        "synth/tuning/records.py",
        "if (choice.rows, choice.vectors) not in possible_tiles(product, one.processor):",
        "if choice.rows < 1:",
        TUNED,
        "cannot_be",
    ),
    Bug(
        "choices count for any number of threads",
        "synth/tuning/records.py",
        "if one.processor == processor}",
        "if one.processor.isa == processor.isa}",
        TUNED,
        "measured_on",
    ),
    Bug(
        "who was lucky once is the fastest",
        "synth/tuning/tune.py",
        "times = self._times(trial, list(dict.fromkeys(finalists)))",
        "times = first",
        TUNE,
        "certainly_better",
    ),
    Bug(
        "half of the rounds are enough",
        "synth/tuning/tune.py",
        "shares = np.where(high < 1, middle, np.maximum(middle, 1))",
        "shares = middle",
        TUNE,
        "certainly_better",
    ),
    Bug(
        "what was chosen is divided otherwise",
        "synth/targets/cpu/divide.py",
        "if tile.wanted not in (None, what) or (",
        "if (",
        TUNE,
        "shares_of_what_was_chosen",
    ),
    Bug(
        "kernels that copy and that do not are one function",
        "synth/targets/cpu/tile.py",
        '" of columns in place" if self.is_direct else ""',
        '""',
        TUNE,
        "not_one_function",
    ),
)

PROGRAM_BUGS = (
    Bug(
        "what a loop needs at home moves inside it",
        "synth/lower/graph.py",
        "        for name in current.astray(needed | written):\n"
        "            variables.bring_home(name, node.index)\n"
        "        variables.spare(current.guests(written))\n"
        "        scalars = variables.scalars(kind.start, kind.end)\n"
        "        # The index shadows an outer one of the same name: copy what that one selects while it is visible.\n"
        "        variables.spare(current.chosen_by(kind.index))\n"
        "        loops, self._place.loops = self._place.loops, (*self._place.loops, kind)\n"
        "        with self._emission.body() as body:\n",
        "        for name in current.astray(written):\n"
        "            variables.bring_home(name, node.index)\n"
        "        variables.spare(current.guests(written))\n"
        "        scalars = variables.scalars(kind.start, kind.end)\n"
        "        # The index shadows an outer one of the same name: copy what that one selects while it is visible.\n"
        "        variables.spare(current.chosen_by(kind.index))\n"
        "        loops, self._place.loops = self._place.loops, (*self._place.loops, kind)\n"
        "        with self._emission.body() as body:\n"
        "            for name in current.astray(needed):\n"
        "                variables.bring_home(name, node.index)\n",
        PROGRAMS,
        "agree[4]",
    ),
    Bug(
        "a write of what was read from a table is a view",
        "synth/targets/c/parts.py",
        "return step.action is Action.READ and step.value in",
        "return step.value in",
        PROGRAMS,
        "agree[7]",
    ),
    Bug(
        "a consumer works in the home that others are copied from",
        "synth/lower/consumers.py",
        "variables.spare(current.residents(self._clobbered[block.name]))",
        "pass",
        PROGRAMS,
        "agree[5]",
    ),
    Bug(
        "an inferred temporary has the bound of its dynamic size",
        "synth/lower/shapes.py",
        "            return variable.shape\n        try:",
        "            return tuple(map(int, variable.shape))\n        try:",
        PROGRAMS,
        "agree[5]",
    ),
    Bug(
        "a dynamic size without a value is empty",
        "synth/lower/emission.py",
        "sorted({name for extent in extents for name in sizes_in(extent)} - self._known.sizes)",
        "sorted({name for extent in extents for name in sizes_in(extent)} & set[str]())",
        PROGRAMS,
        "agree[10]",
    ),
)

EMISSION_BUGS = (
    Bug(
        "a project builds while its files are replaced",
        "synth/run/emission.py",
        '        self._move("", gate)\n',
        "",
        EMISSION,
        "to_its_end",
    ),
    Bug(
        "a compiled library is loaded whatever it is",
        "synth/run/cache.py",
        "return record.startswith(self._size(size)) and record == self._record(file)",
        "return record.startswith(self._size(size))",
        CACHE,
        "damaged and bit",
    ),
)
