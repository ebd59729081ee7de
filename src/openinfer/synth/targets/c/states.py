"""Saved states in C: persistent variables as bytes, and back.

A saved state is untrusted input, and its checksum is not a signature: anyone who changes the state can recompute it. So
everything that later code relies on (extents, capacity, codes of elements) is checked before anything is replaced.
"""

from dataclasses import dataclass

import numpy as np

from openinfer.dtypes import DType, pack
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.state import TableLayout
from openinfer.synth.program.failures import BROKEN_STATE, FOREIGN_STATE, NO_STATE_MEMORY, SMALL_SAVED, Mistake
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.pointers import byte_at
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.function import PAD

MAGIC = b"OINFST01"
SAVED_HEAD = 48


def allowed_codes(dtype: DType) -> int | None:
    """The valid codes of elements, as a bit set; None if every bit pattern is an element.

    >>> from openinfer.dtypes import dtype_of
    >>> allowed_codes(dtype_of("bool")), bin(allowed_codes(dtype_of("t2"))), allowed_codes(dtype_of("f32"))
    (3, '0b1011', None)
    """
    if dtype.kind == "bool":
        return 3
    if dtype.values is None or len(dtype.values) == 1 << dtype.bits:
        return None
    return sum(1 << int(pack(np.array([value], dtype.array), dtype)[0]) for value in dtype.values)


@dataclass(frozen=True)
class StatePrinter:
    """Prints ``NAME_saved_bytes``, and the functions that save and load."""

    name: str
    placed: Placed
    file: HostFile
    state_hash: bytes

    @property
    def upper(self) -> str:
        """The prefix of macros."""
        return self.name.upper()

    def _fail(self, what: Mistake) -> str:
        return self.file.fail(self.file.of_caller(what))

    def functions(self) -> str:
        """The functions behind ``NAME_save_state`` and ``NAME_load_state``, which return whether they failed."""
        self.file.needs |= {"oi_crc32"}
        return f"{self._save()}\n{self._load()}"

    def _save(self) -> str:
        name, upper = self.name, self.upper
        codes = [f"0x{byte:02x}" for byte in (*MAGIC, *self.state_hash)]
        magic = ",\n    ".join(", ".join(codes[start : start + 12]) for start in (0, 12))
        sizes, copies = [], []
        for layout in self.placed.state.growing:
            self.file.needs.add("oi_table_bytes")
            room = f"(const int64_t *)(const void *)(c->state + {layout.extents_at + 8 * layout.axes})"
            has_memory = f"c->heap[{layout.heap}] != NULL && oi_table_bytes(&table{layout.number}, {room}, &own)"
            sizes += [f"if ({has_memory}) total += own;"]
            copies += [
                f"if ({has_memory}) {{",
                f"    memcpy(at, c->heap[{layout.heap}], own);",
                "    at += own;",
                "}",
            ]
        kept = [f"memcpy(at, c->state, {upper}_STATE_BYTES);", f"at += {upper}_STATE_BYTES;"] * self.placed.has_state
        if self.placed.has_state and self.placed.rules.on_device:
            kept = [f"if (look(c, c->state, {upper}_STATE_BYTES)) return 1;", *kept]
        own = ["size_t own = 0;"] * bool(self.placed.state.growing)
        unused = [] if self.placed.state.growing else ["(void)c;"]
        small = self._fail(SMALL_SAVED)
        broken = self._fail(BROKEN_STATE)
        return f"""/* A saved state begins with a magic number, a layout hash, its length, and a CRC-32 of the rest. */
static const unsigned char saved_head[24] = {{
    {magic},
}};

size_t {name}_saved_bytes(const {name}_context *c)
{{
    size_t total = {SAVED_HEAD} + {upper}_STATE_BYTES;
{_lines([*own, *sizes, *unused])}    return total;
}}

static int put_state({name}_context *c, unsigned char *to, size_t bytes)
{{
    const uint64_t total = {name}_saved_bytes(c);
    if (c->is_broken) {broken}
    if (to == NULL || bytes < total) {small}
    unsigned char *{"" if self.placed.has_state else "const "}at = to + {SAVED_HEAD};
    memset(to, 0, {SAVED_HEAD});
    memcpy(to, saved_head, sizeof saved_head);
    memcpy(to + 24, &total, 8);
{_lines([*kept, *own, *copies])}\
    const uint32_t crc = oi_crc32(0, to + {SAVED_HEAD}, (size_t)(at - to) - {SAVED_HEAD});
    memcpy(to + 32, &crc, 4);
    return 0;
}}
"""

    def _load(self) -> str:
        name, upper = self.name, self.upper
        foreign = self._fail(FOREIGN_STATE)
        checks = [line for home in self.placed.state.homes for line in self._checked_variable(home, foreign)]
        for layout in self.placed.state.tables.values():
            if layout.heap is None:
                checks += self._checked_table(layout, f"table{layout.number}_bound", foreign)
        lines = self._loaded_tables(foreign) if self.placed.state.growing else []
        if self.placed.has_state:
            checks = [f"const unsigned char *const state = from + {SAVED_HEAD};", *checks]
            lines = [*lines, f"memcpy(c->state, state, {upper}_STATE_BYTES);"]
            if self.placed.rules.on_device:
                lines += [f"oi_upload(c->device, c->state, {upper}_STATE_BYTES);", "if (settle(c)) return 1;"]
        length = (
            f"bytes {'<' if self.placed.state.growing else '!='} {SAVED_HEAD} + {upper}_STATE_BYTES || total != bytes"
        )
        return f"""/* Replaces the state with a saved one; one that is refused changes nothing. */
static int take_state({name}_context *c, const unsigned char *from, size_t bytes)
{{
    static const unsigned char zeros[12];
    uint64_t total = 0;
    uint32_t crc = 0;
    if (from == NULL || bytes < {SAVED_HEAD}) {foreign}
    if (memcmp(from, saved_head, sizeof saved_head) != 0) {foreign}
    if (memcmp(from + 36, zeros, sizeof zeros) != 0) {foreign}
    memcpy(&total, from + 24, 8);
    memcpy(&crc, from + 32, 4);
    if ({length}) {foreign}
    if (oi_crc32(0, from + {SAVED_HEAD}, bytes - {SAVED_HEAD}) != crc) {foreign}
{_lines([*checks, *lines])}    c->status = {upper}_OK;
    c->is_broken = 0;
    c->has_outputs = 0;
    return 0;
}}
"""

    def _checked_variable(self, home: Value, foreign: str) -> list[str]:
        allowed, place = allowed_codes(home.dtype), self.placed.state.homes[home]
        if allowed is None or home.nbytes == 0:
            return []
        self.file.needs.add("oi_codes")
        count = 1
        for extent in home.shape:
            count *= int(extent)
        return [f"if (!oi_codes({byte_at('state', place)}, {home.dtype.bits}, {count}, 0x{allowed:x}u)) {foreign}"]

    def _checked_table(self, layout: TableLayout, room: str, foreign: str, memory: str = "") -> list[str]:
        self.file.needs.add("oi_state_table")
        dtype = layout.table.variable.dtype
        every = (1 << (1 << dtype.bits)) - 1 if dtype.is_packed else 0  # in tables they have a byte each
        allowed = allowed_codes(dtype) or every
        places = f"{byte_at('state', layout.extents_at)}, {memory or byte_at('state', layout.memory_at)}"
        return [f"if (!oi_state_table(&table{layout.number}, {room}, {places}, 0x{allowed:x}u)) {foreign}"]

    def _loaded_tables(self, foreign: str) -> list[str]:
        """Checks the tables that own memory, allocates new memory for all of them, and only then frees the old."""
        heaps, upper = len(self.placed.state.growing), self.upper
        memory = self._fail(NO_STATE_MEMORY)
        lines = [
            f"unsigned char *made[{heaps}] = {{ 0 }};",
            f"size_t own[{heaps}] = {{ 0 }}, rest = bytes - {SAVED_HEAD} - {upper}_STATE_BYTES;",
            f"const unsigned char *at = state + {upper}_STATE_BYTES;",
        ]
        for layout in self.placed.state.growing:
            lines += self._loaded_table(layout, foreign)
        lines += [f"if (rest != 0) {foreign}", f"at = state + {upper}_STATE_BYTES;"]
        if heaps == 1:
            return [
                *lines,
                "if (own[0] > 0) {",
                "    made[0] = malloc(own[0]);",
                f"    if (made[0] == NULL) {memory}",
                "    memcpy(made[0], at, own[0]);",
                "}",
                "free(c->heap[0]);",
                "c->heap[0] = made[0];",
            ]
        return [
            *lines,
            "bool is_short = false;",
            f"for (int i = 0; i < {heaps} && !is_short; ++i) {{",
            "    if (own[i] == 0) continue;",
            "    made[i] = malloc(own[i]);",
            "    if (made[i] != NULL) memcpy(made[i], at, own[i]);",
            "    is_short = made[i] == NULL;",
            "    at += own[i];",
            "}",
            f"for (int i = 0; i < {heaps}; ++i) {{",
            "    free(is_short ? made[i] : c->heap[i]);",
            "    if (!is_short) c->heap[i] = made[i];",
            "}",
            f"if (is_short) {memory}",
        ]

    def _loaded_table(self, layout: TableLayout, foreign: str) -> list[str]:
        axes, heap, number = layout.axes, layout.heap, layout.number
        self.file.needs.add("oi_state_room")
        return [
            f"int64_t room{number}[{axes}];",
            f"memcpy(room{number}, state + {layout.extents_at + 8 * axes}, sizeof room{number});",
            f"if (!oi_state_room(&table{number}, room{number}, rest, &own[{heap}])) {foreign}",
            *self._checked_table(layout, f"room{number}", foreign, "at"),
            f"rest -= own[{heap}];",
            f"at += own[{heap}];",
        ]


def _lines(lines: list[str]) -> str:
    return "".join(f"{PAD}{line}\n" for line in lines)
