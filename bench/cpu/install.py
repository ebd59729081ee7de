"""Make the environments of the peers and build llama.cpp, unless they are there: ``python -m bench.cpu.install``."""

import json
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from bench.cpu.engines.base import CannotError
from bench.cpu.peers import HOME, PEERS, Peer

NOTE = "installed.json"


def is_installed(peer: Peer) -> bool:
    """Whether the environment is whole, and has the packages that are wanted now."""
    note = HOME / peer.name / NOTE
    return note.exists() and json.loads(note.read_text(encoding="utf-8")) == [*peer.first, *peer.alone]


def install(peer: Peer) -> None:
    home = HOME / peer.name
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(peer.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if peer.first:
        subprocess.run([*pip, *peer.first], check=True)
    if peer.alone:
        subprocess.run([*pip, "--no-deps", *peer.alone], check=True)
    (home / NOTE).write_text(json.dumps([*peer.first, *peer.alone]), encoding="utf-8")


def version_of(peer: Peer) -> str | None:
    """The version of an engine, in its environment."""
    found = _distribution(peer)
    return found.version if found else None


def installed_bytes(peer: Peer) -> int | None:
    """The size of the files that an engine's package installs."""
    found = _distribution(peer)
    if found is None:
        return None
    places = [found.locate_file(file) for file in found.files or []]
    return sum(place.stat().st_size for place in (Path(str(one)) for one in places) if place.is_file())


def _distribution(peer: Peer) -> Distribution | None:
    if not peer.package:
        return None
    try:
        if not peer.has_environment:
            return distribution(peer.package)
        places = [str(one) for one in peer.python.parent.parent.glob("lib/*/site-packages")]
        return next(iter(distributions(name=peer.package, path=places)), None)
    except PackageNotFoundError:
        return None


def build_llama() -> None:
    """llama.cpp is not installed but built; where that cannot be done, the benchmark says why."""
    from bench.cpu.llama_files import linked

    try:
        linked()
    except CannotError as error:
        print(error, file=sys.stderr)


def main() -> None:
    names = sys.argv[1:] or list(PEERS)
    for peer in (PEERS[name] for name in names):
        if peer.name == "llama.cpp":
            build_llama()
        if peer.has_environment and not is_installed(peer):
            print(f"installing {peer.title} in {HOME / peer.name}", file=sys.stderr, flush=True)
            install(peer)


if __name__ == "__main__":
    main()
