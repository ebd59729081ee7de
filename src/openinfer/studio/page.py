"""The page and its assets; and the same as one file that needs no server."""

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

_ASSETS = files("openinfer.studio") / "assets"
_DATA_ID = "studio-export"
ASSET_TYPES = {
    "studio.js": "text/javascript; charset=utf-8",
    "studio.css": "text/css; charset=utf-8",
    "LICENSES.txt": "text/plain; charset=utf-8",
}
"""The assets that are served beside the page."""
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
"""


def asset(name: str) -> str:
    """The text of an asset.

    >>> "preact" in asset("LICENSES.txt")
    True
    """
    return (_ASSETS / name).read_text(encoding="utf-8")


def policy(nonce: str) -> str:
    """The content security policy: the page may load and run its own files and nothing else."""
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def live_page(title: str, nonce: str) -> str:
    """The page as the server sends it."""
    return (
        f"{_HEAD}<title>{escape(title)}</title>\n"
        f'<meta name="studio-nonce" content="{escape(nonce)}">\n'
        '<link rel="icon" href="data:,">\n<link rel="stylesheet" href="studio.css">\n</head>\n<body>\n'
        '<div id="studio"></div>\n<script src="studio.js" defer></script>\n</body>\n</html>\n'
    )


def exported_page(title: str, answers: Mapping[str, Any]) -> str:
    """One self-contained file with the answers that a server would give, by call and arguments."""
    script, style = asset("studio.js"), asset("studio.css")
    data = _embedded(json.dumps(answers, allow_nan=False, separators=(",", ":")))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rules = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{rules}">\n<title>{escape(title)}</title>\n'
        f"<!-- The libraries in this file and their licences:\n{_comment(asset('LICENSES.txt'))}\n-->\n"
        f'<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n<div id="studio"></div>\n'
        f'<script type="application/json" id="{_DATA_ID}">{data}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _embedded(text: str) -> str:
    """JSON that cannot end the element around it, whatever its strings contain."""
    return (
        text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def _comment(text: str) -> str:
    return text.replace("--", "- -")
