"""Models and their versions: a single graph, or a folder with a subfolder per model and, within it, one per version.

    models/NAME/1/graph.oig
    models/NAME/1/model.oinf

Names in requests are looked up in the folder's own listing; no path is ever built from them.
"""

import threading
from dataclasses import dataclass
from pathlib import Path

from openinfer.errors import Code, Diagnostic, FileSpan, OpenInferError, ServingError, nearest
from openinfer.serve.models import ModelFiles, Served, Serving, named_files
from openinfer.serve.problems import told


@dataclass(frozen=True)
class IndexEntry:
    """A version of a model, whether it is loaded, and why not."""

    name: str
    version: str
    state: str
    reason: str = ""


class Repository:
    """The models of a server. Loading and unloading are mutually exclusive; requests continue meanwhile."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._folder: Path | None = None
        self._single: dict[str, ModelFiles] = {}
        self._loaded: dict[str, dict[str, Served]] = {}
        self._failures: dict[tuple[str, str], str] = {}
        self._changing = threading.Lock()

    @classmethod
    def of_graph(cls, name: str, files: ModelFiles, serving: Serving) -> "Repository":
        """Serve one model in one version; an error if it cannot be loaded."""
        repository = cls(serving)
        repository._single = {name: files}
        repository.load(name)
        return repository

    @classmethod
    def of_folder(cls, folder: str, serving: Serving) -> "Repository":
        """Serve all versions of all models in a folder. The index has those that fail to load, with the reason."""
        repository = cls(serving)
        repository._folder = Path(folder)
        if not repository._folder.is_dir():
            message = f"there is no folder {folder!r}"
            raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, FileSpan(folder)))
        for name in repository._stored():
            try:
                repository.load(name)
            except OpenInferError as error:
                serving.log.write("model not loaded", facts={"model": name, "reason": told(error)})
        return repository

    def _stored(self) -> dict[str, dict[str, Path]]:
        """The stored models, and the folders of their versions."""
        if self._folder is None:
            return {name: {"1": Path(files.graph)} for name, files in self._single.items()}
        try:
            models = [one for one in sorted(self._folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
            return {model.name: _versions(model) for model in models}
        except OSError as error:
            message = f"the folder of models cannot be read: {error.strerror or error}"
            raise ServingError(Diagnostic(Code.UNKNOWN_MODEL, message)) from error

    # --- requests -------------------------------------------------------------------------------------------------

    def found(self, name: str, version: str = "") -> Served:
        """A version of a model; the newest if none is named."""
        versions = self._loaded.get(name)
        if not versions:
            advice = nearest(name, self._loaded) or "openinfer serve says which models it has loaded; so does the index"
            raise ServingError(Diagnostic(Code.UNKNOWN_MODEL, f"there is no model {name[:80]!r}", None, advice))
        if not version:
            return versions[max(versions, key=int)]
        if version not in versions:
            message = f"the model {name!r} has no version {version[:40]!r}"
            raise ServingError(Diagnostic(Code.UNKNOWN_MODEL, message, None, f"it has {', '.join(versions)}"))
        return versions[version]

    def versions(self, name: str) -> list[str]:
        """The loaded versions of a model."""
        return sorted(self._loaded.get(name, ()), key=int)

    def models(self) -> list[Served]:
        """All loaded versions of all models."""
        return [one for versions in list(self._loaded.values()) for one in versions.values()]

    @property
    def is_ready(self) -> bool:
        """Whether no stored version has failed to load."""
        return not self._failures

    def index(self) -> list[IndexEntry]:
        """All versions of all models, loaded or not."""
        entries = []
        for name, versions in self._stored().items():
            for version in versions or [""]:
                is_loaded = version in self._loaded.get(name, {})
                reason = self._failures.get((name, version), "" if is_loaded else "unloaded")
                entries.append(IndexEntry(name, version, "READY" if is_loaded else "UNAVAILABLE", reason))
        return entries

    # --- changes --------------------------------------------------------------------------------------------------

    def load(self, name: str) -> None:
        """Reload all versions of a model; those already loaded answer until the new ones are ready."""
        with self._changing:
            stored = self._stored().get(name)
            if stored is None:
                message = f"no model {name[:80]!r} is stored here"
                raise ServingError(Diagnostic(Code.UNKNOWN_MODEL, message, None, nearest(name, self._stored())))
            self._failures.pop((name, ""), None)
            if not stored:
                message = f"the folder of the model {name[:80]!r} has no folder with a number, as versions have"
                error = ServingError(Diagnostic(Code.UNKNOWN_MODEL, message, None, f"{name[:80]}/1/graph.oig"))
                self._failures[name, ""] = told(error)
                raise error
            failed: list[OpenInferError] = []
            found: dict[str, Served] = {}
            for version, folder in stored.items():
                self._failures.pop((name, version), None)
                try:
                    files = self._single.get(name) or named_files(folder)
                    found[version] = Served(name, version, files, self._serving)
                except OpenInferError as error:
                    self._failures[name, version] = told(error)
                    failed.append(error)
            self._replace(name, found, {version for version in stored if version not in found})
        if failed:
            raise failed[0]

    def _replace(self, name: str, found: dict[str, Served], kept: set[str]) -> None:
        """Replace the versions of a model, except those in ``kept``."""
        before = self._loaded.get(name, {})
        old = {version: one for version, one in before.items() if version not in kept}
        for one in old.values():
            if one.interface.is_stateful:  # it must save its sessions before the new one looks for them
                one.close()
        now = {version: one for version, one in before.items() if version in kept} | found
        self._loaded = {other: one for other, one in self._loaded.items() if other != name} | (
            {name: now} if now else {}
        )
        for version, one in old.items():
            if not one.interface.is_stateful:
                one.close()
            if version not in found:
                one.watcher.forget()

    def unload(self, name: str) -> None:
        """Take a model out of service, after answering its waiting requests."""
        with self._changing:
            if name not in self._loaded:
                raise ServingError(Diagnostic(Code.UNKNOWN_MODEL, f"no model {name[:80]!r} is loaded"))
            self._replace(name, {}, set())

    def close(self) -> None:
        """Take all models out of service."""
        for name in list(self._loaded):
            self.unload(name)


def _versions(model: Path) -> dict[str, Path]:
    """The numbered folders of a model, in numerical order."""
    found = [one for one in model.iterdir() if one.is_dir() and one.name.isascii() and one.name.isdigit()]
    return {one.name: one for one in sorted(found, key=lambda one: int(one.name))}
