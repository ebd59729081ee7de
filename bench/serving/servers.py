"""The servers that are measured, as processes of their own: ours, and ONNX Runtime behind mlserver."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep

PEER = Path("build/peers/mlserver")
PACKAGES = ("mlserver>=1.6", "onnxruntime>=1.18", "uvloop<0.22")
"""mlserver 1.7 does not start its processes with the event loops of later versions."""
_PATIENCE = 300.0
"""Seconds for a server to begin."""


@dataclass(frozen=True)
class RunningServer:
    """A server that answers: its port, and the process that was started."""

    name: str
    port: int
    pid: int

    def resident_bytes(self) -> int:
        """The memory of its processes."""
        return sum(_resident(pid) for pid in (self.pid, *_descendants(self.pid)))

    def cpu_seconds(self) -> float:
        """Processor time of its processes so far, which others on the machine take less away from than time."""
        return sum(_cpu(pid) for pid in (self.pid, *_descendants(self.pid)))


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(one) for one in task.read_text(encoding="ascii").split()]
        except OSError:
            continue
        found += [one for child in children for one in (child, *_descendants(child))]
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def started(name: str, command: list[str], port: int, path: str, folder: Path, log: Path) -> Iterator[RunningServer]:
    """A server that is ready; it and all its processes are ended afterwards."""
    with log.open("wb") as sink:
        process = subprocess.Popen(command, cwd=folder, stdout=sink, stderr=sink, process_group=0, env=_environment())
    try:
        end = monotonic() + _PATIENCE
        while not _is_ready(port, path):
            if process.poll() is not None or monotonic() > end:
                sys.exit(f"{name} has not begun: {log.read_text(errors='replace')[-2000:]}")
            sleep(0.2)
        yield RunningServer(name, port, process.pid)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return own | {"OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}


def _is_ready(port: int, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def ours(graph: Path, model: Path, sizes: dict[str, int], instances: int, folder: Path) -> Iterator[RunningServer]:
    """``openinfer serve``."""
    port = free_port()
    command = [sys.executable, "-m", "openinfer", "serve", str(graph), "--model", str(model), "--name", "minilm"]
    command += [word for name, value in sizes.items() for word in ("--size", f"{name}={value}")]
    command += ["--port", str(port), "--grpc-port", "-1", "--instances", str(instances), "--log-level", "warning"]
    with started("OpenInfer", command, port, "/v2/models/minilm/ready", Path.cwd(), folder / "ours.log") as found:
        yield found


def install_peer() -> None:
    """An environment for mlserver, unless it is there."""
    note = PEER / "installed.json"
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) == list(PACKAGES):
        return
    subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
    pip = [str(PEER / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True)
    note.write_text(json.dumps(PACKAGES), encoding="utf-8")


@contextmanager
def peer(onnx: bytes, workers: int, folder: Path) -> Iterator[RunningServer]:
    """mlserver with ONNX Runtime; ``workers`` processes, or none but its own."""
    place = folder / f"mlserver-{workers}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "minilm.onnx").write_bytes(onnx)
    shutil.copy(Path(__file__).with_name("ort_runtime.py"), place / "ort_runtime.py")
    port, others = free_port(), (free_port(), free_port())
    settings = {
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": others[0],
        "metrics_port": others[1],
        "parallel_workers": workers,
        "debug": False,
        "logging_settings": None,
    }
    model = {
        "name": "minilm",
        "implementation": "ort_runtime.OnnxModel",
        "parameters": {"uri": str((place / "minilm.onnx").resolve())},
    }
    (place / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (place / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
    command = [str((PEER / "bin" / "mlserver").absolute()), "start", "."]
    name = f"mlserver, {workers or 'no'} workers"
    with started(name, command, port, "/v2/models/minilm/ready", place, folder / f"mlserver-{workers}.log") as found:
        yield found
