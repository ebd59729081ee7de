"""The language service for the page, while a text is being edited."""

from typing import Any

from openinfer.errors import Code, Diagnostic, OpenInferError
from openinfer.lang.format import format_source
from openinfer.language_service.analysis import TextAnalysis, analyse
from openinfer.language_service.completion import completions
from openinfer.language_service.fixes import code_fixes
from openinfer.language_service.hover import hover
from openinfer.language_service.project import Surroundings
from openinfer.language_service.text import TextRange, edited
from openinfer.studio.document import CheckedWith, page_offset, text_offset


class EditingHelp:
    """Formatting, fixes, completion and hover information for a text; the last text is analysed once."""

    def __init__(self, given: CheckedWith) -> None:
        self._given = given
        self._analysis: TextAnalysis | None = None

    def format(self, text: str) -> dict[str, Any]:
        """The text in canonical form."""
        return {"text": format_source(text, self._given.name)}

    def _analysed(self, text: str) -> TextAnalysis:
        if self._analysis is None or self._analysis.text != text:
            given = self._given
            self._analysis = analyse(text, given.name, Surroundings(sizes=given.sizes), given.model, self._analysis)
        return self._analysis

    def fix(self, text: str, message: str, title: str) -> dict[str, Any]:
        """The text after a fix that the help of a problem names."""
        found = code_fixes(self._analysed(text), TextRange(0, len(text)))
        wanted = [one for one in found if (one.problem.message, one.title) == (message, title)]
        if not wanted:
            raise OpenInferError(Diagnostic(Code.WRONG_MOMENT, f"this text has no place for it: {title[:200]}"))
        return {"text": edited(text, wanted[0].edits)}

    def complete(self, text: str, offset: int) -> dict[str, Any]:
        """The completions at an offset."""
        found = completions(self._analysed(text), text_offset(text, offset))
        return {
            "entries": [
                {
                    "label": one.label,
                    "kind": one.kind,
                    "detail": one.detail,
                    "info": one.documentation,
                    "insert": one.insert or one.label,
                    "from": page_offset(text, one.range.start),
                }
                for one in found
            ]
        }

    def hover(self, text: str, offset: int) -> dict[str, Any]:
        """Information on the word at an offset."""
        found = hover(self._analysed(text), text_offset(text, offset))
        return {"text": None if found is None else found.markdown}
