"""Emitting twice changes nothing."""

import hashlib
from pathlib import Path


def test_emitting_twice_changes_nothing(tmp_path: Path) -> None:
    from tests.synth.both_ways import planned

    plan = planned("dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op exp(x) >> y; return y; }")
    digests = []
    for _ in range(2):
        written = plan.emit(tmp_path)
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        assert sorted(written) == files
        digests.append([(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files])
    assert digests[0] == digests[1]
