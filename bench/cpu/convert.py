"""An engine's own file of a model: ``python -m bench.cpu.convert ENGINE FOLDER``, in the engine's environment.

The parent remembers what a file was made of, so that it is made once.
"""

import hashlib
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from bench.cpu.engines import PLACES
from bench.cpu.engines.base import CannotError
from bench.cpu.peers import PEERS, ROOT

LIMIT = 900
"""Seconds that a conversion may take."""
TRANSLATORS = {
    "litert": ("onnx_graph.py", "onnx_rewrite.py", "onnx_tflite.py", "tflite_rules.py", "tflite_file.py"),
    "executorch": ("onnx_graph.py", "onnx_rewrite.py", "onnx_torch.py"),
}
"""What else an engine's file depends on, beside its own module."""


def digest_of(engine: str, folder: Path) -> str:
    """What the file depends on: the model, the inputs' shapes, the packages and the code that translates."""
    here, peer = Path(__file__).parent, PEERS[engine]
    files = [here / "engines" / f"{PLACES[engine][0]}.py", *(here / one for one in TRANSLATORS.get(engine, ()))]
    found = hashlib.sha256("\n".join([*peer.first, *peer.alone]).encode())
    for path in (*files, folder / "model.onnx"):
        found.update(path.read_bytes() if path.exists() else b"")
    return found.hexdigest()


def converted(engine: str, folder: Path) -> str | None:
    """Make the file of an engine, unless it is there; the reason where that cannot be done."""
    peer, note, wanted = PEERS[engine], folder / engine / "made_of", digest_of(engine, folder)
    if not peer.is_converted or not peer.python.exists():
        return None
    if note.exists() and note.read_text(encoding="ascii") == wanted:
        return None
    (folder / engine).mkdir(exist_ok=True)
    log = folder / f"{engine}.convert.log"
    command = [str(peer.python), "-m", "bench.cpu.convert", engine, str(folder)]
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=file, stderr=file, env=peer.environment(), timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return f"its conversion took more than {LIMIT} s"
    if done.returncode:
        return reason_of(log.read_text(encoding="utf-8", errors="replace"))
    note.write_text(wanted, encoding="ascii")
    return None


def reason_of(log: str) -> str:
    """The most telling line of what a converter said: its last error, or its last words."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith('{"cannot"')]
    if told:
        return str(json.loads(told[-1])["cannot"])
    errors = [line for line in lines if "error:" in line.lower()]
    return (errors[0] if errors else lines[-1] if lines else "its converter said nothing")[:200]


def main() -> None:
    engine, folder = sys.argv[1], Path(sys.argv[2])
    try:
        import_module(f"bench.cpu.engines.{PLACES[engine][0]}").convert(folder)
    except CannotError as error:
        print(json.dumps({"cannot": str(error)}))
        sys.exit(1)


if __name__ == "__main__":
    main()
