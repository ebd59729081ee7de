"""The chat beside llama.cpp: how programs are run and what is read of what they say."""

from pathlib import Path

import pytest
from bench.chat import Llama, Ours, run_alone


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_memory_of_a_program_is_its_own_and_not_that_of_this_process(tmp_path: Path) -> None:
    mine = bytearray(200_000_000)
    mine[::4096] = b"x" * len(mine[::4096])
    out, err, peak = run_alone(["sh", "-c", "echo out; echo err >&2"], tmp_path)
    assert (out, err) == ("out\n", "err\n")
    assert 0 < peak < 60_000_000


def test_a_program_that_fails_ends_the_benchmark_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="failed with status 3:\nno model"):
        run_alone(["sh", "-c", "echo no model >&2; exit 3"], tmp_path)


def test_rates_are_those_that_the_programs_say(tmp_path: Path) -> None:
    line = "[38 tokens read, 93 a second; 16 said, 70 a second; 54 of 2048 in use]"
    script(tmp_path / "chat", f"echo '{line}' >&2")
    ours = Ours(tmp_path, "a prompt")
    assert (ours.reads().rate, ours.says().rate) == (93, 70)
    program = script(tmp_path / "llama-bench", """echo '[{"avg_ts": 12.5}]'""")
    assert Llama(program, tmp_path / "model.gguf", 2).says().rate == 12.5
