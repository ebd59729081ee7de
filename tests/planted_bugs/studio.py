"""Bugs in what keeps the studio to this machine and to its own page, and in what editors are told."""

from tests.planted_bugs.bug import Bug

GUARD = "tests/studio/test_guard.py"
EXPORT = "tests/studio/test_export.py"
WORKSPACE = "tests/studio/test_workspace.py"
SERVICE = "tests/language_service/test_language_service.py"
FIXES = "tests/language_service/test_fixes.py"

STUDIO_BUGS = (
    Bug(
        "any token opens the studio",
        "studio/guard.py",
        "return compare_digest(given.encode(), self.token.encode())",
        "return True",
        GUARD,
        "no_token",
    ),
    Bug(
        "a token that can be guessed",
        "studio/guard.py",
        "return cls(token_urlsafe(_BYTES), port)",
        'return cls(f"{port:032}", port)',
        GUARD,
        "token_of_its_own",
    ),
    Bug(
        "foreign origins are answered",
        "studio/guard.py",
        'if origin is not None and origin != f"http://{host}":',
        'if origin == "never":',
        GUARD,
        "foreign_pages",
    ),
    Bug(
        "foreign host names are answered",
        "studio/guard.py",
        "if host not in hosts:",
        "if not hosts:",
        GUARD,
        "foreign_pages",
    ),
    Bug(
        "requests from other sites are answered",
        "studio/guard.py",
        'if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):',
        'if headers.get("sec-fetch-site", "none") == "":',
        GUARD,
        "foreign_pages",
    ),
    Bug(
        "the studio listens on every address",
        "studio/server.py",
        "self._socket.bind((LOOPBACK, port))",
        'self._socket.bind(("", port))',
        GUARD,
        "other_addresses",
    ),
    Bug(
        "the page may run scripts inside it",
        "studio/page.py",
        "script-src 'self'; style-src",
        "script-src 'self' 'unsafe-inline'; style-src",
        GUARD,
        "own_files_only",
    ),
    Bug(
        "files beside the assets are served",
        "studio/server.py",
        "if name not in ASSET_TYPES:",
        "if name.startswith('.'):",
        GUARD,
        "no_other_file",
    ),
    Bug(
        "requests have no largest size",
        "studio/server.py",
        "if len(body) > _LARGEST:",
        "if len(body) < 0:",
        GUARD,
        "too_long",
    ),
    Bug(
        "names can end the data of an exported file",
        "studio/page.py",
        'text.replace("<", "\\\\u003c")',
        'text.replace("<", "<")',
        EXPORT,
        "exported_file",
    ),
    Bug(
        "the name of a file becomes part of an exported page",
        "studio/page.py",
        'content="{rules}">\\n<title>{escape(title)}</title>',
        'content="{rules}">\\n<title></title>{title}',
        EXPORT,
        "names_and_comments",
    ),
    Bug(
        "saving overwrites what another program wrote",
        "studio/workspace.py",
        "if _digest(read_source(str(self.path))) != self._saved:",
        "if not self._saved:",
        WORKSPACE,
        "saving",
    ),
    Bug(
        "the way back keeps what was executed",
        "studio/stepping.py",
        "self._stepper.go_back(self._been.pop())",
        "self._been.pop()",
        WORKSPACE,
        "back",
    ),
    Bug(
        "a rename may take a name that there is",
        "language_service/renaming.py",
        "if other.name != name or other == symbol or not _meet(symbol, other):",
        "if other.name != name or other == symbol or _meet(symbol, other):",
        SERVICE,
        "clashes",
    ),
    Bug(
        "a fix changes a part of a word",
        "language_service/fixes.py",
        'pattern = rf"(?<!\\w){pattern}"',
        'pattern = rf"{pattern}"',
        FIXES,
        "whole_words",
    ),
    Bug(
        "a fix ends in the statement that follows",
        "language_service/fixes.py",
        'return TextRange(start, after.end_pos if after.type == "_SEMICOLON" else after.start_pos)',
        "return TextRange(start, after.end_pos + 1)",
        FIXES,
        "these_lines",
    ),
)
