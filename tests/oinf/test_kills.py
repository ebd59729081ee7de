"""Writers that are killed, and writers that the kernel stops: the name holds the old file or the new one."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openinfer import Code

MODEL = """
import json, os, random, resource, signal, sys, time
from pathlib import Path
import numpy as np
from openinfer import OinfError
from openinfer.oinf import Writer, save_file
from openinfer.oinf import atomic

path = Path(sys.argv[1])
old = b"old" * 100_000
tensors = {f"w{at}": np.full(16_000, at, np.float32) for at in range(16)}
expected = path.with_suffix(".expected")
save_file(expected, tensors)
new = expected.read_bytes()

def write(kind):
    if kind == "save_file":
        return save_file(path, tensors)
    with Writer(path) as writer:
        for name, values in tensors.items():
            writer.add_tensor(name, values)

def start(kind, prepare=lambda: None):
    path.write_bytes(old)
    child = os.fork()
    if child == 0:
        prepare()
        write(kind)
        os._exit(0)
    return child

def died(child):
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

def content():
    for left in path.parent.glob(".*.tmp"):
        left.unlink()
    found = path.read_bytes()
    return "old" if found == old else "new" if found == new else "neither"
"""

AT_RANDOM = (
    MODEL
    + """
begin = time.perf_counter()
died(start("Writer"))
whole = time.perf_counter() - begin
rng = random.Random(5)
outcomes = []
while len(outcomes) < 48:
    child = start(("save_file", "Writer")[len(outcomes) % 2])
    time.sleep(rng.uniform(0, whole))
    os.kill(child, signal.SIGKILL)
    if died(child):
        outcomes.append(content())
    else:
        assert content() == "new"
        whole *= 0.95
print(json.dumps(outcomes))
"""
)

AT_EVERY_CALL = (
    MODEL
    + """
class KillingOs:
    def __init__(self, at, after):
        self.at, self.after, self.count = at, after, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("open", "write", "fsync", "close", "rename"):
            return real
        def call(*arguments):
            self.count += 1
            if self.count == self.at and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments)
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call

outcomes = []
for after in (False, True):
    at = 0
    while True:
        at += 1
        def prepare():
            atomic.os = KillingOs(at, after)
        if not died(start("save_file", prepare)):
            break
        outcomes.append(content())
print(json.dumps(outcomes))
"""
)

WITH_A_SIZE_LIMIT = (
    MODEL
    + """
path.write_bytes(old)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(new) - 1, resource.RLIM_INFINITY))
outcomes = []
for kind in ("save_file", "Writer"):
    try:
        write(kind)
        outcomes.append("written")
    except OinfError as error:
        outcomes.append(str(error.code))
    outcomes.append(sorted(entry.name for entry in path.parent.iterdir()))
    outcomes.append(content())
print(json.dumps(outcomes))
"""
)


def _run(script: str, path: Path) -> list[Any]:
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert isinstance(outcomes, list)
    return outcomes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.oinf"


def test_a_writer_killed_at_random_points_leaves_the_old_file_or_the_new(path: Path) -> None:
    outcomes = _run(AT_RANDOM, path)
    assert len(outcomes) >= 40
    assert set(outcomes) <= {"old", "new"}
    assert "old" in outcomes, "no kill came in time to interrupt a write"


def test_a_writer_killed_before_or_after_any_system_call_leaves_the_old_file_or_the_new(path: Path) -> None:
    outcomes = _run(AT_EVERY_CALL, path)
    assert len(outcomes) >= 40
    assert set(outcomes) == {"old", "new"}


def test_a_file_larger_than_the_kernel_allows_is_a_typed_error_and_leaves_the_old_one(path: Path) -> None:
    for code, names, content in zip(*[iter(_run(WITH_A_SIZE_LIMIT, path))] * 3, strict=True):
        assert code == Code.WRITE_FAILED
        assert names == ["model.expected", "model.oinf"]
        assert content == "old"


def test_a_process_of_ours_can_be_killed_at_all(path: Path) -> None:
    """Guards the two tests above: a script that cannot be killed would prove nothing."""
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
