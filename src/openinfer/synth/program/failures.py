"""The failures of a step of generated code: for each mistake the status that the caller sees, and the error code.

Statuses are coarse; codes are the same for a mistake whoever runs the graph, including the simulator.
"""

from dataclasses import dataclass
from functools import cached_property

from openinfer.errors import Code

STATUS = {
    "OK": "",
    "ERROR_MEMORY": "memory is too small or not aligned to {alignment} bytes, or a table cannot grow",
    "ERROR_WEIGHTS": "the weights are not those that the code was made for",
    "ERROR_INPUT": "an input is missing, or overlaps memory that a step writes",
    "ERROR_VALUE": "an operation has no result for a value",
    "ERROR_INDEX": "an index is out of bounds",
    "ERROR_SIZE": "a dynamic size has no value, a value out of range, or two values",
    "ERROR_STATE": "the last step failed, or the state is that of another graph: call reset or load_state",
    "ERROR_NAME": "there is no output or persistent variable of that name",
    "ERROR_THREADS": "threads cannot be started, or are already running",
    "ERROR_BUSY": "another call with this context is running: this one has no effect",
    "ERROR_INTERRUPTED": "the step was interrupted: it has no effect",
    "ERROR_BUDGET": "the step has run its budget of nodes: it has no effect",
}
"""The status codes and their meanings; ``{alignment}`` stands for the target's."""
DEVICE_STATUS = {**STATUS, "ERROR_DEVICE": "there is no device, it lacks something, or it is lost"}
"""The status codes where the code runs on a device that is reached through a driver."""
OF_STATUS = {
    "ERROR_MEMORY": Code.OUT_OF_MEMORY,
    "ERROR_VALUE": Code.BAD_VALUE,
    "ERROR_INDEX": Code.INDEX_OUT_OF_RANGE,
    "ERROR_SIZE": Code.SIZE_CONFLICT,
    "ERROR_STATE": Code.WRONG_MOMENT,
    "ERROR_INPUT": Code.NOT_INSERTED,
    "ERROR_THREADS": Code.OUT_OF_MEMORY,
    "ERROR_BUSY": Code.BUSY,
    "ERROR_INTERRUPTED": Code.INTERRUPTED,
    "ERROR_BUDGET": Code.NODE_BUDGET,
    "ERROR_DEVICE": Code.NO_GPU,
}
"""The error code of a failure of which only the status is known."""


@dataclass(frozen=True)
class Mistake:
    """A kind of failure: its status, error code and message."""

    status: str
    code: Code
    reason: str


@dataclass(frozen=True)
class Failure:
    """A mistake at a node."""

    node: int
    mistake: Mistake

    @property
    def reason(self) -> str:
        """The message."""
        return self.mistake.reason


@dataclass(frozen=True)
class Failures:
    """The failures of a program, in the order of their numbers.

    >>> numbers = FailureNumbers()
    >>> numbers.number(3, OUTSIDE), numbers.number(3, NEGATIVE), numbers.number(3, OUTSIDE)
    (0, 1, 0)
    >>> numbers.failures().number(3, NEGATIVE)
    1
    """

    rows: tuple[Failure, ...]

    @cached_property
    def _numbers(self) -> dict[Failure, int]:
        return {row: number for number, row in enumerate(self.rows)}

    def number(self, node: int, what: Mistake) -> int:
        """The number of a mistake at a node; node -1 stands for mistakes that belong to no node."""
        return self._numbers[Failure(node, what)]


class FailureNumbers:
    """Numbers failures in the order in which they are first requested."""

    def __init__(self) -> None:
        self._numbers: dict[Failure, int] = {}

    def number(self, node: int, what: Mistake) -> int:
        """The number of a mistake at a node, assigned on first use."""
        return self._numbers.setdefault(Failure(node, what), len(self._numbers))

    def failures(self) -> Failures:
        """All numbered failures."""
        return Failures(tuple(self._numbers))


def mistake(status: str, reason: str) -> Mistake:
    """A mistake with the default code of its status."""
    return Mistake(status, OF_STATUS.get(status, Code.BAD_VALUE), reason)


OUTSIDE = mistake("ERROR_INDEX", "an index is out of bounds")
NEGATIVE = Mistake("ERROR_INDEX", Code.NEGATIVE_INDEX, "an index is negative")
TOO_LONG = mistake("ERROR_INDEX", "an index expression needs more than 64 bits")
BY_ZERO = Mistake("ERROR_INDEX", Code.BAD_VALUE, "an index expression divides by zero")
NO_TENSOR = Mistake("ERROR_INDEX", Code.UNKNOWN_LINK, "the model has no tensor for these indices")
BAD_SIZE = mistake("ERROR_SIZE", "a dynamic size has no value, one out of range, or two different values")
BAD_LENGTH = Mistake("ERROR_SIZE", Code.SHAPE_MISMATCH, "a value does not have the extents of its destination")
NO_SHAPE = Mistake("ERROR_SIZE", Code.BAD_SHAPE, "a dimension is negative, too large, or does not divide evenly")
NO_MEMORY = mistake("ERROR_MEMORY", "there is no memory for a table to grow")
INTERRUPTED = mistake("ERROR_INTERRUPTED", "the step was interrupted")
OVER_BUDGET = mistake("ERROR_BUDGET", "the step has run its budget of nodes")


def no_result(code: Code, *, is_small: bool) -> Mistake:
    """The mistake of a dynamic size that an op rejects."""
    size = "a dynamic size this small" if is_small else "this value of a dynamic size"
    return Mistake("ERROR_SIZE", code, f"an operation has no result for {size}")


# --- mistakes of callers ----------------------------------------------------------------------------------------------

SMALL_MEMORY = mistake("ERROR_MEMORY", "the arena or the state is too small")
OTHER_WEIGHTS = mistake("ERROR_WEIGHTS", "the weights have another size")
NO_POINTER = mistake("ERROR_INPUT", "there are no inputs or outputs: a pointer is NULL")
BROKEN_STEP = mistake("ERROR_STATE", "the last step failed: reset or load the state first")
SMALL_SAVED = mistake("ERROR_MEMORY", "the saved state does not fit the memory given for it")
BROKEN_STATE = mistake("ERROR_STATE", "the last step failed: there is no state to save")
FOREIGN_STATE = mistake("ERROR_STATE", "saved state is corrupt or from another program")
NO_STATE_MEMORY = mistake("ERROR_MEMORY", "there is no memory for the tables of the state")
UNKNOWN_NAME = mistake("ERROR_NAME", "no output of the last step and no persistent variable has this name")
NO_THREADS = mistake("ERROR_THREADS", "threads cannot be started, or are already running")

# --- failures of devices ----------------------------------------------------------------------------------------------

NO_DRIVER = mistake("ERROR_DEVICE", "there is no driver: no device of this kind was found")
NO_FEATURE = mistake("ERROR_DEVICE", "no device has what the code needs")
NO_PIPELINE = mistake("ERROR_DEVICE", "the driver rejects a kernel")
LOST_DEVICE = mistake("ERROR_DEVICE", "the device is lost: initialise the instance again")
FORKED = mistake("ERROR_DEVICE", "the device belongs to another process: a fork does not copy it")
NO_DEVICE_MEMORY = mistake("ERROR_MEMORY", "the device does not have enough memory")
FOREIGN_MEMORY = mistake("ERROR_MEMORY", "the arena or the state was not allocated by the code's memory function")
TWO_DEVICES = mistake("ERROR_MEMORY", "the arena, the state and the weights are on different devices")
DEVICE_MISTAKES = (
    NO_DRIVER,
    NO_FEATURE,
    NO_PIPELINE,
    LOST_DEVICE,
    FORKED,
    NO_DEVICE_MEMORY,
    FOREIGN_MEMORY,
    TWO_DEVICES,
)
"""Device failures, in the order of their numbers in the support code."""


def unaligned(alignment: int) -> Mistake:
    """The mistake of memory that is not aligned."""
    return mistake("ERROR_MEMORY", f"memory is not aligned to {alignment} bytes")


def bad_input_size(size: str, most: int) -> Mistake:
    """The mistake of a caller's dynamic size that is out of range."""
    return mistake("ERROR_SIZE", f"the size {size} is not between 0 and {most}")


def missing_input(key: str) -> Mistake:
    """The mistake of a missing input."""
    return mistake("ERROR_INPUT", f"the input {key} is missing")


def shared_input(key: str) -> Mistake:
    """The mistake of an input that aliases memory which the step overwrites."""
    return mistake("ERROR_INPUT", f"the input {key} overlaps memory that a step writes: copy it")
