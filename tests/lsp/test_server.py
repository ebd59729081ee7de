"""Every request of the language server, asked by a client of its own over standard input and output."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp import client as protocol
from tests.language_service.conftest import GRAPH, write_model

SECONDS = 60
CAPABILITIES = types.ClientCapabilities(
    text_document=types.TextDocumentClientCapabilities(
        completion=types.CompletionClientCapabilities(
            completion_item=types.ClientCompletionItemOptions(snippet_support=True)
        )
    )
)


class Session:
    """An editor with one server, whose calls wait for their answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.client: Any = protocol.LanguageClient("tests", "1")
        self.published: dict[str, Any] = {}
        self.arrived = asyncio.Event()
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(
            lambda params: self._publish(params.uri, params.diagnostics)
        )
        self._opened = 0

    def _publish(self, uri: str, problems: Any) -> None:
        self.published[uri] = list(problems)
        self.arrived.set()

    def call(self, awaited: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(awaited, SECONDS))

    def start(self) -> Any:
        self.call(self.client.start_io(sys.executable, "-m", "openinfer", "lsp"))
        params = types.InitializeParams(capabilities=CAPABILITIES, root_uri=self.folder.as_uri())
        result = self.call(self.client.initialize_async(params))
        self.client.initialized(types.InitializedParams())
        return result

    def stop(self) -> None:
        self.call(self.client.shutdown_async(None))
        self.client.exit(None)
        self.call(self.client.stop())
        self.loop.close()

    def open(self, text: str) -> str:
        self._opened += 1
        uri = (self.folder / f"g{self._opened}.oig").as_uri()
        item = types.TextDocumentItem(uri=uri, language_id="oig", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, text: str) -> None:
        params = types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(2, uri), [types.TextDocumentContentChangeWholeDocument(text)]
        )
        self.client.text_document_did_change(params)

    def diagnostics(self, uri: str) -> Any:
        while uri not in self.published:
            self.arrived.clear()
            self.call(self.arrived.wait())
        return self.published.pop(uri)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("lsp")
    write_model(folder)
    found = Session(folder)
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def mlp(session: Session) -> str:
    uri = session.open(GRAPH)
    assert session.diagnostics(uri) == []
    return uri


def document(uri: str) -> Any:
    return types.TextDocumentIdentifier(uri)


def at(text: str, mark: str, shift: int = 0) -> Any:
    before = text[: text.index(mark) + shift]
    return types.Position(before.count("\n"), len(before.rpartition("\n")[2]))


def applied(text: str, edits: Any) -> str:
    lines = text.split("\n")

    def offset(place: Any) -> int:
        return sum(len(line) + 1 for line in lines[: place.line]) + int(place.character)

    for edit in sorted(edits, key=lambda one: offset(one.range.start), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def test_the_server_says_what_it_can_do(tmp_path: Path) -> None:
    session = Session(tmp_path)
    found = session.start().capabilities
    session.stop()
    assert found.text_document_sync.change == types.TextDocumentSyncKind.Full
    offered = {name for name in dir(found) if name.endswith("_provider") and getattr(found, name)}
    assert offered - {"execute_command_provider"} == {
        *("code_action_provider", "completion_provider", "definition_provider", "document_formatting_provider"),
        *("document_highlight_provider", "document_symbol_provider", "folding_range_provider", "hover_provider"),
        *("references_provider", "rename_provider", "semantic_tokens_provider"),
    }


def test_a_change_is_checked_and_the_problem_is_where_it_is(session: Session) -> None:
    uri = session.open(GRAPH)
    assert session.diagnostics(uri) == []
    session.change(uri, GRAPH.replace("y: f32[B, D]", "y: f32[B, 3]"))
    (problem,) = session.diagnostics(uri)
    assert (problem.code, problem.severity) == ("E309", types.DiagnosticSeverity.Error)
    assert problem.range.start == at(GRAPH, ">> y", 3)
    session.client.text_document_did_close(types.DidCloseTextDocumentParams(document(uri)))
    assert session.diagnostics(uri) == []


def test_a_saved_file_checks_all_texts_again(session: Session, mlp: str) -> None:
    session.client.text_document_did_save(types.DidSaveTextDocumentParams(document(mlp)))
    assert session.diagnostics(mlp) == []
    session.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
    assert session.diagnostics(mlp) == []


def test_hover(session: Session, mlp: str) -> None:
    found = session.call(
        session.client.text_document_hover_async(types.HoverParams(document(mlp), at(GRAPH, "x >> h")))
    )
    assert "dynamic x: f32[B=4, D=8]" in found.contents.value
    nothing = session.call(session.client.text_document_hover_async(types.HoverParams(document(mlp), at(GRAPH, "{"))))
    assert nothing is None


def test_completion_is_a_snippet_that_replaces_the_word(session: Session, mlp: str) -> None:
    found = session.call(
        session.client.text_document_completion_async(types.CompletionParams(document(mlp), at(GRAPH, "matmul", 3)))
    )
    item = next(one for one in found.items if one.label == "matmul")
    assert (item.text_edit.new_text, item.insert_text_format) == ("matmul(${1:a, b})", types.InsertTextFormat.Snippet)
    assert item.text_edit.range == types.Range(at(GRAPH, "matmul"), at(GRAPH, "matmul", 3))


def test_definition_references_and_highlights(session: Session, mlp: str) -> None:
    place = at(GRAPH, "(h, b)", 1)
    defined = session.call(session.client.text_document_definition_async(types.DefinitionParams(document(mlp), place)))
    assert defined.range.start == at(GRAPH, "h: f32[B, D];\n")
    context = types.ReferenceContext(include_declaration=False)
    found = session.call(
        session.client.text_document_references_async(types.ReferenceParams(context, document(mlp), place))
    )
    assert len(found) == 6
    marks = session.call(
        session.client.text_document_document_highlight_async(types.DocumentHighlightParams(document(mlp), place))
    )
    assert sum(one.kind == types.DocumentHighlightKind.Write for one in marks) == 4


def test_rename_and_its_refusal(session: Session, mlp: str) -> None:
    place = at(GRAPH, "(h, b)", 1)
    offered = session.call(
        session.client.text_document_prepare_rename_async(types.PrepareRenameParams(document(mlp), place))
    )
    assert offered.placeholder == "h"
    found = session.call(session.client.text_document_rename_async(types.RenameParams(document(mlp), place, "hidden")))
    assert applied(GRAPH, found.changes[mlp]).count("hidden") == 7
    with pytest.raises(JsonRpcException, match="there is a variable 'x' already"):
        session.call(session.client.text_document_rename_async(types.RenameParams(document(mlp), place, "x")))
    with pytest.raises(JsonRpcException, match="name of an op"):
        session.call(
            session.client.text_document_prepare_rename_async(
                types.PrepareRenameParams(document(mlp), at(GRAPH, "matmul"))
            )
        )


def test_outline_and_folding(session: Session, mlp: str) -> None:
    found = session.call(session.client.text_document_document_symbol_async(types.DocumentSymbolParams(document(mlp))))
    assert [one.name for one in found][-2:] == ["entry", "nonlinear"]
    areas = session.call(session.client.text_document_folding_range_async(types.FoldingRangeParams(document(mlp))))
    entry = at(GRAPH, "block entry").line
    assert any(one.start_line == entry for one in areas)


def test_semantic_tokens_point_at_their_words(session: Session, mlp: str) -> None:
    found = session.call(
        session.client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document(mlp)))
    )
    lines, line, character, words = GRAPH.split("\n"), 0, 0, []
    for start in range(0, len(found.data), 5):
        down, right, length = found.data[start : start + 3]
        line, character = line + down, right + (character if down == 0 else 0)
        words.append(lines[line][character : character + length])
    assert words[:8] == [lines[0], "dynamic", "x", "f32", "B", "D", "constant", "W"]


def test_a_fix_and_formatting(session: Session) -> None:
    text = "dynamic { x: f32[4]; }\nvolatile { y: f32[4]; }\nblock entry { op rleu(x) >> y; return y; }\n"
    uri = session.open(text)
    (problem,) = session.diagnostics(uri)
    params = types.CodeActionParams(document(uri), problem.range, types.CodeActionContext([problem]))
    (action, *_) = session.call(session.client.text_document_code_action_async(params))
    fixed = applied(text, action.edit.changes[uri])
    assert fixed == text.replace("rleu", "relu")
    options = types.FormattingOptions(tab_size=4, insert_spaces=True)
    edits = session.call(
        session.client.text_document_formatting_async(types.DocumentFormattingParams(document(uri), options))
    )
    assert "block entry {\n    op rleu(x) >> y;" in applied(text, edits)


def test_positions_count_utf16_units(session: Session) -> None:
    text = "// \U0001f600 first\n/* \U0001f600 */ block entry { return x; }\n"
    uri = session.open(text)
    (problem,) = session.diagnostics(uri)
    line = text.split("\n")[1]
    assert problem.range.start == types.Position(1, line.index("return") + 1)


def test_lines_end_where_the_protocol_ends_them(session: Session) -> None:
    """At a carriage return by itself, too, and at nothing else: pygls would also cut at a form feed, say."""
    text = "/* a\u2028b\x0cc\x85d */\rdynamic { x: f32[4]; }\r\n/* \r */ block entry { return nothing; }\r\n"
    uri = session.open(text)
    (problem,) = session.diagnostics(uri)
    start = len(" */ block entry { ")
    assert problem.range == types.Range(types.Position(3, start), types.Position(3, start + len("return nothing")))
    found = session.call(
        session.client.text_document_hover_async(types.HoverParams(document(uri), types.Position(1, 10)))
    )
    assert "dynamic x: f32[4]" in found.contents.value


def test_without_pygls_the_command_names_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pygls'] = None\nsys.argv[1:] = ['lsp']; from openinfer.cli import main\nexit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error[E751]" in done.stderr
    assert "pip install" in done.stderr
