"""Answers an editor's questions about the text of a graph, in any protocol. Knows nothing of execution.

``LanguageService`` keeps the open texts; functions answer questions about a ``TextAnalysis`` and an offset in it,
counted in characters.
"""

from openinfer.language_service.analysis import TextAnalysis, analyse
from openinfer.language_service.completion import CompletionEntry, completions
from openinfer.language_service.fixes import CodeFix, code_fixes, format_edits
from openinfer.language_service.highlighting import TOKEN_MODIFIERS, TOKEN_TYPES, MeaningToken, meaning_tokens
from openinfer.language_service.hover import HoverText, hover
from openinfer.language_service.outline import FoldingArea, folding_areas
from openinfer.language_service.project import PROJECT_FILE, Surroundings, surroundings_of
from openinfer.language_service.renaming import RenameRefusedError, rename, renamed_at
from openinfer.language_service.service import LanguageService
from openinfer.language_service.symbols import Occurrence, OutlineEntry, SourceSymbol, SymbolKind, SymbolRole
from openinfer.language_service.text import TextEdit, TextRange, edited

__all__ = [
    "PROJECT_FILE",
    "TOKEN_MODIFIERS",
    "TOKEN_TYPES",
    "CodeFix",
    "CompletionEntry",
    "FoldingArea",
    "HoverText",
    "LanguageService",
    "MeaningToken",
    "Occurrence",
    "OutlineEntry",
    "RenameRefusedError",
    "SourceSymbol",
    "Surroundings",
    "SymbolKind",
    "SymbolRole",
    "TextAnalysis",
    "TextEdit",
    "TextRange",
    "analyse",
    "code_fixes",
    "completions",
    "edited",
    "folding_areas",
    "format_edits",
    "hover",
    "meaning_tokens",
    "rename",
    "renamed_at",
    "surroundings_of",
]
