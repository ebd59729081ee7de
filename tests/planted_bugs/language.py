"""Bugs in the language, in ops and in the simulator."""

from tests.planted_bugs.bug import Bug

SYNTAX = "tests/lang/test_syntax.py"
DIAGNOSTICS = "tests/lang/test_diagnostics.py"
BAD_JSON = "tests/ir/test_bad_json.py"
FORMAT = "tests/fmt/test_format.py"
BUILDER = "tests/builder/test_builder.py"
FAILED_STEPS = "tests/sim/test_failed_steps.py"
SCHEDULES = "tests/sim/test_concurrency.py"
TABLES = "tests/sim/language/test_tables.py"
ELEMENTWISE = "tests/ops/test_elementwise.py"

LANGUAGE_BUGS = (
    Bug(
        "operators of one rank apply from the right",
        "lang/literals.py",
        "while operators and _RANK[operators[-1]] >= _RANK[item.value]:",
        "while operators and _RANK[operators[-1]] > _RANK[item.value]:",
        SYNTAX,
        "value_reads",
    ),
    Bug(
        "parentheses dropped on the right",
        "ir/expr.py",
        "(inner.right, own + 1)]",
        "(inner.right, own)]",
        SYNTAX,
        "value_reads",
    ),
    Bug(
        "unknown keys of documents accepted",
        "ir/document.py",
        "if key not in required and key not in optional:",
        "if not key:",
        BAD_JSON,
        "unknown or key",
    ),
    Bug(
        "uuids ignore the position",
        "ir/graph.py",
        'f"{self.index} {node_head(self)}"',
        "node_head(self)",
        BUILDER,
        "uuids",
    ),
    Bug(
        "branch cycles go unnoticed",
        "ir/validate.py",
        "        self._branch_cycles()\n",
        "",
        DIAGNOSTICS,
        "E406",
    ),
    Bug(
        "constants can be written",
        "ir/operand_rules.py",
        "if variable is not None and variable.kind is MemoryKind.CONSTANT:",
        "if variable is None and access.base == '':",
        DIAGNOSTICS,
        "E503",
    ),
    Bug(
        "comments at the end of a body are dropped",
        "lang/format.py",
        "self.found.dangling.setdefault(owner, []).extend(lines)",
        "pass",
        FORMAT,
        "stay or survive",
    ),
    Bug(
        "a comment inside a statement is dropped",
        "lang/format.py",
        "self.found.leading.setdefault(self.current, []).extend(line for line in self.pending if line)",
        "pass",
        FORMAT,
        "survive",
    ),
    Bug(
        "named inputs become parameters",
        "lang/calls.py",
        "return declared.kind is not MemoryKind.CONSTANT or bool(declared.dims)",
        "return False",
        BUILDER,
        "equals_the_text or by_name",
    ),
    Bug(
        "a missing semicolon ends the search for errors",
        "lang/parser.py",
        "            missing = None if self._is_habit(token) else self._missing(token)\n",
        "            missing = None\n",
        DIAGNOSTICS,
        "semicolon or missing or cascade or recover",
    ),
)

SIMULATION_BUGS = (
    Bug(
        "a failed step keeps what it wrote into tables",
        "sim/growable.py",
        "data[change.region] = change.data",
        "pass",
        FAILED_STEPS,
        "leaves_persistent_state_untouched",
    ),
    Bug(
        "a consumer writes into entry's variable",
        "sim/memory.py",
        "if key in self._own:",
        "if False:",
        "tests/sim/language/test_yield_await.py",
        "consumer",
    ),
    Bug(
        "two consumers may write one variable",
        "check/concurrency.py",
        "        *_two_writers(running, bits),\n"
        "        *islice(_sharing(len(entry.nodes), running, bits), MOST_RACES),\n",
        "",
        SCHEDULES,
        "refused_when_it_is_bound",
    ),
    Bug(
        "a negative end of a slice is cut off",
        "sim/tables.py",
        "max(0, one + extent) if one < 0 else one",
        "max(0, one)",
        TABLES,
        "negative",
    ),
    Bug(
        "the node budget allows one more",
        "sim/step.py",
        "elif self._left == 0:",
        "elif self._left == -7:",
        FAILED_STEPS,
        "node_budget_that_is_too_small",
    ),
    Bug(
        "dynamic sizes are checked at their bounds only",
        "check/bind.py",
        "problems.found += _elsewhere(",
        "problems.found += () and _elsewhere(",
        "tests/check/test_sizes.py",
        "bound or below",
    ),
)

OP_BUGS = (
    Bug(
        "packed integers do not wrap",
        "ops/numeric.py",
        "(((array & mask) ^ half) - half).astype(stored)",
        "array.clip(-half, half - 1).astype(stored)",
        ELEMENTWISE,
        "add and i4",
    ),
    Bug("operands of sub swapped", "ops/binary.py", "return a - b", "return b - a", ELEMENTWISE, "sub and f32"),
    Bug(
        "negative gather indices not counted from the end",
        "ops/indexing.py",
        "np.where(positions < 0, positions + extent, positions)",
        "np.abs(positions)",
        "tests/ops/test_indexing.py",
        "gather and f32",
    ),
)
