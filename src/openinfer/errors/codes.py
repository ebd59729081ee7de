"""All diagnostic codes, by name.

A code is stable: once released, it keeps its meaning. ``explanations/CODE.md`` explains each one, with a wrong and a
right example; ``openinfer explain CODE`` prints it.
"""

from enum import StrEnum


class Code(StrEnum):
    """The stable codes of errors (``E``) and warnings (``W``).

    >>> Code.BAD_MAGIC
    <Code.BAD_MAGIC: 'E703'>
    """

    # E1xx: syntax
    SYNTAX = "E101"
    UNTERMINATED = "E102"
    BAD_NUMBER = "E103"
    TOO_DEEP = "E104"
    RESERVED_WORD = "E105"
    REPEATED = "E106"
    POSITIONAL_AFTER_NAMED = "E107"
    BAD_ATTRIBUTE = "E108"
    BAD_STRING = "E109"
    BAD_JSON = "E110"
    BAD_DOCUMENT = "E111"
    BAD_SOURCE_FILE = "E112"
    BAD_PROJECT = "E113"

    # E2xx: names
    UNKNOWN_VARIABLE = "E201"
    DUPLICATE_DECLARATION = "E202"
    UNKNOWN_BLOCK = "E203"
    UNKNOWN_ATTRIBUTE = "E204"
    UNKNOWN_INDEX = "E205"
    UNKNOWN_OP = "E206"
    UNKNOWN_PARAMETER = "E207"
    UNKNOWN_SIZE = "E208"
    UNKNOWN_LINK = "E209"
    USED_BEFORE_ASSIGN = "E210"

    # E3xx: types and shapes
    UNKNOWN_DTYPE = "E301"
    VALUE_OUT_OF_RANGE = "E302"
    BAD_SHAPE = "E303"
    UNSUPPORTED_ARRAY = "E304"
    NO_EXCHANGE = "E305"
    WRONG_OPERANDS = "E306"
    WRONG_DTYPE = "E307"
    SHAPE_MISMATCH = "E308"
    RESULT_TYPE = "E309"
    BAD_PARAMETER = "E310"
    LINK_TYPE = "E311"
    SIZE_CONFLICT = "E312"
    BAD_VALUE = "E313"

    # E4xx: control flow
    NO_ENTRY = "E401"
    NO_TERMINATOR = "E402"
    AFTER_TERMINATOR = "E403"
    RETURN_IN_LOOP = "E404"
    ASSIGN_OUTSIDE_ENTRY = "E405"
    BRANCH_CYCLE = "E406"
    BAD_BRANCH_TARGET = "E407"
    BAD_YIELD = "E408"
    UNMATCHED_DEP = "E409"
    NODE_BUDGET = "E410"
    INTERRUPTED = "E411"
    WRONG_MOMENT = "E412"
    BUSY = "E413"
    BAD_CALL = "E414"

    # E5xx: memory and tables
    WRONG_SECTION = "E501"
    BAD_INDEXING = "E502"
    CONSTANT_WRITTEN = "E503"
    BAD_CACHE_TARGET = "E504"
    NEGATIVE_INDEX = "E505"
    UNKNOWN_AXIS = "E506"
    INDEX_OUT_OF_RANGE = "E507"
    NOT_INSERTED = "E508"
    NOT_WRITABLE = "E509"
    BAD_STATE = "E510"
    OUT_OF_MEMORY = "E511"

    # E6xx: concurrency
    TOUCHED_WHILE_YIELDED = "E601"
    TWO_WRITERS = "E602"
    RACE = "E603"
    NEVER_SATISFIED = "E604"

    # E70x-E72x: reading model files
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

    # E73x: writing model files
    BAD_AUTHORING_VALUE = "E730"
    WRITE_FAILED = "E731"
    VERSION_CANNOT_HOLD = "E732"

    # E74x: importing weights
    UNKNOWN_WEIGHTS_FORMAT = "E740"
    BAD_WEIGHTS_FILE = "E741"
    UNSUPPORTED_WEIGHTS_DTYPE = "E742"
    BAD_PACK_OPTION = "E743"
    PATTERN_MATCHED_NOTHING = "E744"

    # E75x: tools for model files
    CHECK_FAILED = "E750"
    MISSING_EXTRA = "E751"
    MISSING_TOOL = "E752"

    # E76x: importing models
    BAD_IMPORT_FILE = "E760"
    UNSUPPORTED_NODE = "E761"
    OPEN_SIZE = "E762"
    BAD_IMPORT_OPTION = "E763"
    NO_SUCH_PIECE = "E764"

    # E77x: quantizing graphs
    BAD_CALIBRATION = "E770"
    BAD_QUANTIZE_OPTION = "E771"
    NOTHING_TO_QUANTIZE = "E772"

    # E8xx: synthesis
    NOT_SYNTHESIZED = "E801"
    BAD_DEVICE = "E802"
    UNKNOWN_STAGE = "E803"
    BAD_TUNED = "E804"
    MISSING_FEATURE = "E805"
    NO_GPU = "E806"
    UNSAFE_CACHE = "E807"
    DIFFERENT_RESULT = "E808"

    # E9xx: serving, and runs over files
    BAD_REQUEST = "E901"
    UNKNOWN_MODEL = "E902"
    QUEUE_FULL = "E903"
    DEADLINE = "E904"
    UNAUTHORIZED = "E905"
    REQUEST_TOO_LARGE = "E906"
    BAD_SEQUENCE = "E907"
    BAD_SERVE_OPTION = "E908"
    BAD_BATCH = "E909"
    WORKER_LOST = "E910"
    NOT_SPLIT = "E911"

    # W8xx: warnings about devices
    UNKNOWN_DEVICE_KEY = "W801"

    # W9xx: warnings
    OLD_SPELLING = "W901"
    UNCONSUMED_YIELD = "W902"
    UNUSED_PARAM = "W903"
    UNCALLED_BLOCK = "W904"

    @property
    def is_warning(self) -> bool:
        """Whether this code is a warning."""
        return self.value.startswith("W")
