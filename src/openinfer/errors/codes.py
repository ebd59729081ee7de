"""Every diagnostic code, by name.

A code is stable: once released it keeps its meaning. What each one means, with a wrong and a right example, is in
``explanations/CODE.md``; ``openinfer explain CODE`` prints it.
"""

from enum import StrEnum


class Code(StrEnum):
    """The stable codes of errors (``E``) and warnings (``W``).

    >>> Code.BAD_MAGIC
    <Code.BAD_MAGIC: 'E703'>
    """

    # E3xx: types and shapes
    UNKNOWN_DTYPE = "E301"
    VALUE_OUT_OF_RANGE = "E302"
    BAD_SHAPE = "E303"
    UNSUPPORTED_ARRAY = "E304"
    NO_EXCHANGE = "E305"

    # E70x-E72x: reading a model file
    NOT_A_MODEL_FILE = "E701"
    SHORT_FILE = "E702"
    BAD_MAGIC = "E703"
    UNKNOWN_VERSION = "E704"
    RESERVED_BITS = "E705"
    IMPOSSIBLE_COUNT = "E706"
    BAD_SECTION_OFFSET = "E707"
    FILE_SIZE_MISMATCH = "E708"
    TABLE_OVERRUN = "E709"
    BAD_NAME = "E710"
    DUPLICATE_NAME = "E711"
    UNKNOWN_TYPE_TAG = "E712"
    TOO_MANY_DIMS = "E713"
    SHAPE_OVERFLOW = "E714"
    SIZE_MISMATCH = "E715"
    BAD_BLOB_OFFSET = "E716"
    OVERLAPPING_BLOBS = "E717"
    NON_ZERO_PADDING = "E718"
    BAD_METADATA = "E719"
    BAD_QUANTIZATION = "E720"
    BAD_TENSOR_DATA = "E721"
    NO_SUCH_ENTRY = "E722"
    NO_DATA = "E723"
    MODEL_CLOSED = "E724"

    # E73x: writing a model file
    BAD_AUTHORING_VALUE = "E730"
    WRITE_FAILED = "E731"
    VERSION_CANNOT_HOLD = "E732"

    # E74x: importing weights
    UNKNOWN_WEIGHTS_FORMAT = "E740"
    BAD_WEIGHTS_FILE = "E741"
    UNSUPPORTED_WEIGHTS_DTYPE = "E742"
    BAD_PACK_OPTION = "E743"
    PATTERN_MATCHED_NOTHING = "E744"

    # E75x: around model files
    CHECK_FAILED = "E750"
    MISSING_EXTRA = "E751"

    @property
    def is_warning(self) -> bool:
        """Whether this code only warns."""
        return self.value.startswith("W")
