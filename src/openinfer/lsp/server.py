"""The language server: answers the requests of the protocol with the language service.

A text is checked when it has not changed for a moment, and before a question about it is answered.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from openinfer._version import VERSION
from openinfer.errors import Diagnostic
from openinfer.language_service import (
    PROJECT_FILE,
    LanguageService,
    RenameRefusedError,
    SymbolRole,
    TextAnalysis,
    code_fixes,
    completions,
    folding_areas,
    format_edits,
    hover,
    meaning_tokens,
    rename,
    renamed_at,
)
from openinfer.lsp import convert
from openinfer.lsp.convert import TextPositions

PAUSE_SECONDS = 0.15
"""How long a text must stay unchanged before it is checked on its own."""


class OpenTexts:
    """The texts that the client has open, and the analysis of each."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._service = LanguageService()
        self._changed: set[str] = set()
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def changed(self, uri: str) -> None:
        """Note that a text has changed; it is checked once it has stayed unchanged for a moment."""
        self._changed.add(uri)
        waiting = self._waiting.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        self._waiting[uri] = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self.publish, uri)

    def analysis(self, uri: str) -> TextAnalysis:
        """The analysis of the last version of a text."""
        path = _path(uri)
        known = self._service.analysis(path)
        if known is None or uri in self._changed:
            self._changed.discard(uri)
            known = self._service.update(path, self._server.workspace.get_text_document(uri).source)
        return known

    def at(self, params: Any) -> tuple[TextAnalysis, TextPositions]:
        """The text that a request is about, and its positions."""
        analysis = self.analysis(params.text_document.uri)
        return analysis, self.positions(analysis)

    def positions(self, analysis: TextAnalysis) -> TextPositions:
        """Converts offsets of a text to the units of the client."""
        return TextPositions(analysis.source, self._server.workspace.position_codec)

    def publish(self, uri: str) -> None:
        """Send the problems of a text to the client."""
        self._waiting.pop(uri, None)
        analysis = self.analysis(uri)
        positions = self.positions(analysis)
        found = [convert.diagnostic(analysis, positions, one) for one in analysis.problems]
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=found))

    def publish_all(self) -> None:
        """Check all texts again, after a model or a project file has changed."""
        for uri in list(self._server.workspace.text_documents):
            self._changed.add(uri)
            self.publish(uri)

    def close(self, uri: str) -> None:
        """Forget a text and clear its problems."""
        waiting = self._waiting.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        self._changed.discard(uri)
        self._service.close(_path(uri))
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


def _path(uri: str) -> str:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def make_server() -> Any:
    """A language server with all its requests."""
    # Full text sync: where pygls applies edits, it splits lines at more characters than the protocol does.
    server = LanguageServer("openinfer", VERSION, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    texts = OpenTexts(server)
    answers: dict[str, tuple[Callable[[Any], Any], Any]] = {
        types.TEXT_DOCUMENT_DID_OPEN: (lambda params: texts.publish(params.text_document.uri), None),
        types.TEXT_DOCUMENT_DID_CHANGE: (lambda params: texts.changed(params.text_document.uri), None),
        types.TEXT_DOCUMENT_DID_SAVE: (lambda _params: texts.publish_all(), None),
        types.TEXT_DOCUMENT_DID_CLOSE: (lambda params: texts.close(params.text_document.uri), None),
        types.WORKSPACE_DID_CHANGE_WATCHED_FILES: (lambda _params: texts.publish_all(), None),
        types.TEXT_DOCUMENT_HOVER: (lambda params: _hover(texts, params), None),
        types.TEXT_DOCUMENT_COMPLETION: (
            lambda params: _completion(server, texts, params),
            types.CompletionOptions(trigger_characters=[".", "@", '"', "(", "[", ",", ">", " "]),
        ),
        types.TEXT_DOCUMENT_DEFINITION: (lambda params: _definition(texts, params), None),
        types.TEXT_DOCUMENT_REFERENCES: (lambda params: _references(texts, params), None),
        types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: (lambda params: _highlights(texts, params), None),
        types.TEXT_DOCUMENT_PREPARE_RENAME: (lambda params: _prepare_rename(texts, params), None),
        types.TEXT_DOCUMENT_RENAME: (
            lambda params: _rename(texts, params),
            types.RenameOptions(prepare_provider=True),
        ),
        types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (lambda params: _symbols(texts, params), None),
        types.TEXT_DOCUMENT_FOLDING_RANGE: (lambda params: _folding(texts, params), None),
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: (lambda params: _tokens(texts, params), convert.LEGEND),
        types.TEXT_DOCUMENT_CODE_ACTION: (
            lambda params: _actions(texts, params),
            types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
        ),
        types.TEXT_DOCUMENT_FORMATTING: (lambda params: _formatting(texts, params), None),
    }
    for name, (answer, options) in answers.items():
        server.feature(name, options)(answer)
    server.feature(types.INITIALIZED)(lambda _params: _watch_files(server))
    return server


def serve() -> None:
    """Serve a client on standard input and output until it disconnects."""
    make_server().start_io()


def _watch_files(server: Any) -> None:
    """Ask the client to report changes of models and project files, if it can."""
    workspace = server.client_capabilities.workspace
    watched = workspace.did_change_watched_files if workspace is not None else None
    if watched is None or not watched.dynamic_registration:
        return
    patterns = [types.FileSystemWatcher(glob_pattern=one) for one in ("**/*.oinf", f"**/{PROJECT_FILE}")]
    options = types.DidChangeWatchedFilesRegistrationOptions(watchers=patterns)
    wanted = types.Registration("openinfer-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    server.client_register_capability(types.RegistrationParams([wanted]))


# --- requests ---------------------------------------------------------------------------------------------------------


def _hover(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    found = hover(analysis, positions.offset(params.position))
    return None if found is None else convert.hover_answer(positions, found.markdown, found.range)


def _completion(server: Any, texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    document = server.client_capabilities.text_document
    item = document.completion.completion_item if document is not None and document.completion is not None else None
    snippets = bool(item is not None and item.snippet_support)
    found = completions(analysis, positions.offset(params.position))
    items = [convert.completion_item(positions, one, snippets=snippets) for one in found]
    return types.CompletionList(is_incomplete=False, items=items)


def _definition(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    found = analysis.index.at(positions.offset(params.position))
    if found is None or found.symbol.declared is None:
        return None
    return types.Location(params.text_document.uri, positions.range(found.symbol.declared))


def _references(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    found = analysis.index.at(positions.offset(params.position))
    if found is None:
        return None
    is_wanted = params.context.include_declaration
    places = [one for one in analysis.index.of(found.symbol) if is_wanted or one.role is not SymbolRole.DECLARE]
    return [types.Location(params.text_document.uri, positions.range(one.range)) for one in places]


def _highlights(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    found = analysis.index.at(positions.offset(params.position))
    if found is None:
        return None
    kinds = types.DocumentHighlightKind
    return [
        types.DocumentHighlight(positions.range(one.range), kinds.Read if one.role is SymbolRole.READ else kinds.Write)
        for one in analysis.index.of(found.symbol)
    ]


def _prepare_rename(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    try:
        found = renamed_at(analysis, positions.offset(params.position))
    except RenameRefusedError as error:
        raise JsonRpcInvalidParams(str(error)) from error
    return types.PrepareRenamePlaceholder(positions.range(found.range), found.symbol.name)


def _rename(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    try:
        edits = rename(analysis, positions.offset(params.position), params.new_name)
    except RenameRefusedError as error:
        raise JsonRpcInvalidParams(str(error)) from error
    return types.WorkspaceEdit(changes={params.text_document.uri: [positions.edit(one) for one in edits]})


def _symbols(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    return [convert.document_symbol(positions, one) for one in analysis.index.outline]


def _folding(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    areas = folding_areas(analysis.text, analysis.recovered.tokens)
    return [convert.folding_range(positions, one) for one in areas]


def _tokens(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    return types.SemanticTokens(data=convert.token_data(positions, meaning_tokens(analysis)))


def _actions(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    found = []
    for fix in code_fixes(analysis, positions.place(params.range)):
        edit = types.WorkspaceEdit(changes={params.text_document.uri: [positions.edit(one) for one in fix.edits]})
        shown: Diagnostic = fix.problem
        found.append(
            types.CodeAction(
                title=fix.title,
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[convert.diagnostic(analysis, positions, shown)],
                edit=edit,
            )
        )
    return found


def _formatting(texts: OpenTexts, params: Any) -> Any:
    analysis, positions = texts.at(params)
    return [positions.edit(one) for one in format_edits(analysis)]
