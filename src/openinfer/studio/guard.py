"""Who may talk to the studio: only this machine, with the token of this run, from the studio's own page."""

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest, token_urlsafe

LOOPBACK = "127.0.0.1"
_BYTES = 24


@dataclass(frozen=True)
class Guard:
    """The token of a run and the port it listens on; every path begins with the token.

    Host names that resolve to this machine are rejected too, except ``localhost``: a foreign page can point such a name
    here and would then have the same origin.

    >>> guard = Guard("secret", 8080)
    >>> guard.allows("/secret/", {"host": "127.0.0.1:8080"}), guard.allows("/", {"host": "127.0.0.1:8080"})
    (True, False)
    >>> guard.allows("/secret/", {"host": "evil.example:8080"})
    False
    >>> guard.allows("/secret/", {"host": "127.0.0.1:8080", "origin": "http://evil.example"})
    False
    """

    token: str
    port: int

    @classmethod
    def new(cls, port: int) -> "Guard":
        """A guard with a token that cannot be guessed."""
        return cls(token_urlsafe(_BYTES), port)

    @property
    def prefix(self) -> str:
        """The prefix of every path."""
        return f"/{self.token}"

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK}:{self.port}{self.prefix}/"

    def allows(self, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request may be answered; header names are lower-case."""
        hosts = {f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"}
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in hosts:
            return False
        if origin is not None and origin != f"http://{host}":
            return False
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return False
        given = path.split("/", 2)[1] if path.startswith("/") else ""
        return compare_digest(given.encode(), self.token.encode())
