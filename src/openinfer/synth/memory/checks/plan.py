"""Plans the checks of a whole program, and numbers all failures."""

from collections.abc import Iterable

from openinfer.synth.memory.checks.records import Checks, InputChecks, InputFailures
from openinfer.synth.memory.checks.steps import Layouts, StepPlanner
from openinfer.synth.program.failures import (
    BROKEN_STATE,
    BROKEN_STEP,
    DEVICE_MISTAKES,
    FOREIGN_STATE,
    NO_POINTER,
    NO_STATE_MEMORY,
    NO_THREADS,
    OTHER_WEIGHTS,
    SMALL_MEMORY,
    SMALL_SAVED,
    UNKNOWN_NAME,
    FailureNumbers,
    Failures,
    Mistake,
    bad_input_size,
    missing_input,
    shared_input,
    unaligned,
)
from openinfer.synth.program.ir import Program


def plan_checks(
    layouts: Layouts, input_sizes: Iterable[str], alignment: int, *, on_device: bool = False
) -> tuple[Checks, Failures]:
    """The checks of a program. Failures of blocks are numbered first, then those of the interface."""
    numbers, known = FailureNumbers(), tuple(input_sizes)
    # Shared by all blocks: walking the graph for each block would be quadratic.
    nodes = {node.index: node for node in layouts.program.bound.graph.walk()}
    others = [block for block in layouts.program.blocks if block != "entry"]
    blocks = {name: StepPlanner(layouts, nodes, numbers, known).block(name) for name in (*others, "entry")}
    _give(numbers, SMALL_MEMORY, unaligned(alignment), OTHER_WEIGHTS)
    inputs = _inputs(layouts.program, StepPlanner(layouts, nodes, numbers, known), numbers, known)
    _give(numbers, NO_POINTER, BROKEN_STEP, SMALL_SAVED, BROKEN_STATE, FOREIGN_STATE)
    _give(numbers, *[NO_STATE_MEMORY] * bool(layouts.state.growing), UNKNOWN_NAME)
    _give(numbers, *[NO_THREADS] * (layouts.threads > 1))
    _give(numbers, *DEVICE_MISTAKES * on_device)
    return Checks(blocks, inputs), numbers.failures()


def _give(numbers: FailureNumbers, *mistakes: Mistake) -> None:
    for one in mistakes:
        numbers.number(-1, one)


def _inputs(program: Program, planner: StepPlanner, numbers: FailureNumbers, sizes: Iterable[str]) -> InputChecks:
    """The checks of inputs before anything runs."""
    found = {size: numbers.number(-1, bad_input_size(size, program.sizes[size])) for size in sizes}
    inputs = {}
    for key, value in program.inputs.items():
        missing, shared = numbers.number(-1, missing_input(key)), numbers.number(-1, shared_input(key))
        inputs[key] = InputFailures(missing, shared, planner.guard(value))
    return InputChecks(found, inputs)
