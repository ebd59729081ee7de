"""The texts that an editor has open, each with the analysis of its last version."""

import os
from dataclasses import dataclass, replace

from openinfer.errors import Diagnostic, OpenInferError
from openinfer.language_service.analysis import TextAnalysis, analyse
from openinfer.language_service.project import surroundings_of
from openinfer.oinf.model import ModelLoader


@dataclass(frozen=True)
class _OpenModel:
    stamp: tuple[int, int]
    model: ModelLoader


class LanguageService:
    """Keeps the analyses of open texts and the models that they are checked with.

    >>> service = LanguageService()
    >>> service.update("g.oig", "block entry { return; }").problems
    ()
    """

    def __init__(self) -> None:
        self._analyses: dict[str, TextAnalysis] = {}
        self._models: dict[str, _OpenModel] = {}

    @property
    def open_paths(self) -> list[str]:
        """The paths of the open texts."""
        return list(self._analyses)

    def update(self, path: str, text: str) -> TextAnalysis:
        """Analyse a new version of a text."""
        given = surroundings_of(path, text)
        model, problem = self._model(given.model)
        if problem:
            given = replace(given, problems=(*given.problems, *problem))
        found = analyse(text, path, given, model, self._analyses.get(path))
        self._analyses[path] = found
        return found

    def analysis(self, path: str) -> TextAnalysis | None:
        """The analysis of an open text, or None."""
        return self._analyses.get(path)

    def close(self, path: str) -> None:
        """Forget a text."""
        self._analyses.pop(path, None)

    def refresh(self) -> list[TextAnalysis]:
        """Check all open texts again, after a model or a project file has changed."""
        return [self.update(path, found.text) for path, found in list(self._analyses.items())]

    def _model(self, path: str | None) -> tuple[ModelLoader | None, tuple[Diagnostic, ...]]:
        """The model at a path, opened again if the file has changed."""
        if path is None:
            return None, ()
        try:
            state = os.stat(path)
            stamp = (state.st_mtime_ns, state.st_size)
        except OSError:
            stamp = (0, 0)  # opening it reports what is wrong
        known = self._models.get(path)
        if known is None or known.stamp != stamp:
            try:
                known = self._models[path] = _OpenModel(stamp, ModelLoader.open(path))
            except OpenInferError as error:
                return None, error.diagnostics
        return known.model, ()
