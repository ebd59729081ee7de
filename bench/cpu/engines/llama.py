"""llama.cpp, for decoders: keys and values in f16, as is its default, and what it multiplies rounded to 8 bits."""

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import Array, CannotError

LIBRARY = "llama.so"
FILE, NOTE = "model.gguf", "decoder.json"
FIRST = (3, 5, 7, 11)
"""The tokens of a fresh context after which outputs are compared."""


class Llama:
    """The library through a few functions in C. A step reads the last token that its context has room for, or all."""

    name: ClassVar[str] = "llama.cpp"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        del model
        self.folder, self._threads = folder, threads
        facts = json.loads((folder / NOTE).read_text(encoding="ascii"))
        self._tokens, self._classes, self._prompt = facts["tokens"], facts["classes"], facts["prompt"]
        self._library = ctypes.CDLL(str(Path(facts["library"])))
        self._library.bench_logits.restype = ctypes.POINTER(ctypes.c_float)

    def load(self) -> None:
        if self._library.bench_load(str(self.folder / FILE).encode(), self._threads, self._tokens):
            raise CannotError("llama.cpp does not load the model")
        self._read(self._prompt or FIRST, 0)
        self._first = np.ctypeslib.as_array(self._library.bench_logits(), (self._classes,)).copy()
        last = self._tokens - 1
        if not self._prompt:
            self._read([3 + place % 97 for place in range(last)], 0)
        given, place = (self._prompt, 0) if self._prompt else ([3], last)
        tokens, read = (ctypes.c_int32 * len(given))(*given), self._library.bench_read
        count = len(given)

        def step() -> None:
            if read(tokens, count, place):
                raise CannotError("llama.cpp does not take the tokens")

        self.step = step

    def _read(self, tokens: Sequence[int], position: int) -> None:
        given = (ctypes.c_int32 * len(tokens))(*tokens)
        if self._library.bench_read(given, len(tokens), position):
            raise CannotError("llama.cpp does not take the tokens")

    def output(self) -> Array:
        """The logits after the first tokens; those after a step depend on keys that other engines do not have."""
        return self._first
