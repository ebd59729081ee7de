"""Compiles shaders at run time: once per machine, kept in the cache of compiled modules."""

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openinfer.synth.run.build import compile_shader, shader_compiler, temporary_folder, tool_version
from openinfer.synth.run.cache import cache_entry

_KEPT = "shader.spv"
_SOURCE = "shader.comp"


class ShaderStore:
    """SPIR-V by source text."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def compile(self, texts: Iterable[str]) -> None:
        """Compile what is not known yet, in parallel on all processors."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._known]
        if not wanted:
            return
        version = tool_version(shader_compiler())
        with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
            made = pool.map(lambda text: _compiled(text, version), wanted)
            self._known.update(zip(wanted, made, strict=True))

    def words(self, text: str) -> bytes:
        """A shader in SPIR-V."""
        self.compile((text,))
        return self._known[text]


def _compiled(text: str, version: str) -> bytes:
    digest = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()[:40]
    try:
        with cache_entry(digest, _KEPT) as entry:
            if not entry.is_whole():
                with entry.workplace() as place:
                    entry.keep(_made(text, place))
            return entry.library.read_bytes()
    except OSError:  # the cache cannot be written, or is full
        with temporary_folder() as place:
            return _made(text, place).read_bytes()


def _made(text: str, folder: Path) -> Path:
    (folder / _SOURCE).write_text(text, encoding="ascii", newline="\n")
    compile_shader(_SOURCE, folder, ("-o", _KEPT))
    return folder / _KEPT
