"""The image of deploy/Containerfile: built by buildah on a base that is made here, and its server asked.

``make test-container`` runs this, as root. It needs no registry of images: mmdebstrap makes the base, Debian with
Python, of packages.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from openinfer import ModelLoader, Simulator, load_graph
from openinfer.serve.datatypes import wire_name

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "container"
"""Everything that is made: the base, the images, a copy of the sources."""
BASE, IMAGE, TOKEN = "openinfer-base", "openinfer-digits", "a-token-of-some-length"
MODEL = {"GRAPH": "examples/digits/digits.oig", "MODEL": "examples/digits/digits.oinf"}
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
PATIENCE = 1800
"""Seconds for each command."""


BUILDAH = ("buildah", "--root", str(PLACE / "images"), "--runroot", str(PLACE / "run"), "--storage-driver", "vfs")
"""Images are stored beside the base: those of this machine are not touched."""


def buildah(*arguments: str, **more: Any) -> str:
    """What a command of buildah prints."""
    command = [*BUILDAH, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **more)
    assert done.returncode == 0, done.stderr[-4000:]
    said: str = done.stdout
    return said.strip()


def base() -> None:
    """An image with what the recipe takes from its base: Debian and Python. It trusts whom this machine trusts."""
    if BASE in buildah("images", "--format", "{{.Name}}"):
        return
    archive = PLACE / "base.tar"
    trusted = "copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs"
    command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", f"--customize-hook={trusted}"]
    subprocess.run([*command, "bookworm", str(archive)], check=True, timeout=PATIENCE)
    container = buildah("from", "scratch")
    buildah("add", container, str(archive), "/")
    buildah("commit", "--rm", container, BASE)
    archive.unlink()


def sources() -> Path:
    """The files under version control, and nothing that was built here."""
    place = PLACE / "sources"
    shutil.rmtree(place, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


@pytest.fixture(scope="module")
def image() -> str:
    PLACE.mkdir(parents=True, exist_ok=True)
    base()
    given = {"PYTHON": f"localhost/{BASE}", **MODEL}
    options = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    command = ("bud", "--isolation", "chroot", "--pull-never", "-f", "deploy/Containerfile", "-t", IMAGE)
    buildah(*command, *options, ".", cwd=sources())
    return IMAGE


@pytest.fixture
def container(image: str) -> Iterator[str]:
    found = buildah("from", "--pull-never", f"localhost/{image}")
    yield found
    buildah("rm", found)


def test_the_image_has_a_user_a_check_and_an_entry_of_its_own(image: str) -> None:
    facts = json.loads(buildah("inspect", "--type", "image", f"localhost/{image}"))["Docker"]["config"]
    assert facts["User"] == "10001"
    assert facts["Entrypoint"][:3] == ["openinfer", "serve", "/models"]
    assert sorted(facts["ExposedPorts"]) == ["8000/tcp", "8001/tcp"]
    assert facts["StopSignal"] == "SIGTERM"


def run(container: str, script: str) -> "subprocess.Popen[str]":
    """A process in the container, as its user; it has the network of this machine."""
    command = [*BUILDAH, "run", "--isolation", "chroot", container, "--", "sh", "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)


def test_a_server_that_others_reach_needs_a_token(container: str) -> None:
    process = run(container, "id -u; exec openinfer serve /models --host 0.0.0.0 --port 0 --grpc-port -1")
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode != 0
    assert said.splitlines()[0] == "10001"
    assert "E908" in said


def test_the_server_answers_with_its_model(container: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--host 127.0.0.1 --port {port} --grpc-port -1"
    process = run(container, f"OPENINFER_TOKEN={TOKEN} exec openinfer serve /models {options}")
    try:
        for _ in range(1200):
            if answers(port, process):
                break
            sleep(0.5)
        else:
            pytest.fail("the server did not answer")
        status, facts = ask(port, "GET", "/v2/models/model")
        assert (status, facts["name"]) == (200, "model")
        given, wanted = question()
        status, facts = ask(port, "POST", "/v2/models/model/infer", given)
        assert status == 200, facts
        for tensor in facts["outputs"]:
            assert np.allclose(tensor["data"], wanted[tensor["name"]].reshape(-1), rtol=1e-4, atol=1e-5)
        assert ask(port, "POST", "/v2/models/model/infer", given, token="none")[0] == 401
        os.kill(server_of(port), signal.SIGTERM)
        said = process.communicate(timeout=120)[0]
        assert process.returncode == 0, said
        assert json.loads(said.splitlines()[-1])["event"] == "ended"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=120)


def server_of(port: int) -> int:
    """The process of the server itself: buildah would end it at once, and not in order."""
    given = ["--port", str(port)]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_text(errors="replace").split("\0")
        if "/models" in words and any(words[at : at + 2] == given for at in range(len(words))):
            return int(path.parent.name)
    raise AssertionError(port)


def question() -> tuple[dict[str, Any], dict[str, Any]]:
    """A request to the model, and the outputs that the simulator gives for it."""
    with ModelLoader.open(ROOT / MODEL["MODEL"]) as model:
        executor = Simulator(model).make_executor(load_graph(ROOT / MODEL["GRAPH"]))
        name = "image"
        variable = executor.bound.vars[name]
        values = np.random.default_rng(0).integers(0, 2, variable.shape).astype(variable.dtype.array)
        executor(**{name: values})
        wanted = {output: executor.fetch(output) for output in executor.bound.output_names}
    tensor = {"name": name, "shape": list(values.shape), "datatype": wire_name(variable.dtype)}
    return {"inputs": [tensor | {"data": values.reshape(-1).tolist()}]}, wanted


def answers(port: int, process: "subprocess.Popen[str]") -> bool:
    assert process.poll() is None, process.communicate()[0]
    try:
        return ask(port, "GET", "/v2/health/ready")[0] == 200
    except OSError:
        return False


def ask(port: int, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
