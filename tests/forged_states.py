"""Saved states made by hand, with a right checksum: what somebody writes who knows the format."""

from hashlib import sha256
from pathlib import Path
from typing import Any

from openinfer import ModelLoader
from openinfer.oinf import save_file

CHECKSUM = "openinfer.state.sha256"


def forged_state(honest: bytes, tensors: dict[str, Any], folder: Path) -> bytes:
    """A state with the marks of an honest one and other tensors."""
    (folder / "honest.oinf").write_bytes(honest)
    with ModelLoader.open(folder / "honest.oinf") as model:
        metadata = dict(model.metadata)
    metadata[CHECKSUM] = "0" * 64
    save_file(folder / "forged.oinf", tensors, metadata=metadata)
    data = (folder / "forged.oinf").read_bytes()
    return data.replace(b"0" * 64, sha256(data).hexdigest().encode(), 1)
