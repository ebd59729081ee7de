"""Who may talk to a server: anyone on this machine, elsewhere those with a token or a certificate."""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

from openinfer.errors import Code, Diagnostic, ServingError
from openinfer.serve.json_codec import encoded_error
from openinfer.serve.options import ServeOptions
from openinfer.serve.problems import told

_OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
_SHORTEST_TOKEN = 16
AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether a server that listens there is reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_safe(options: ServeOptions) -> None:
    """Refuse to listen to the network without knowing who talks."""
    if options.token is not None and len(options.token) < _SHORTEST_TOKEN:
        message = f"the token is shorter than {_SHORTEST_TOKEN} characters"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "openssl rand -hex 32 makes one"))
    has_certificates = options.tls is not None and options.tls.client_authority is not None
    if not is_loopback(options.host) and options.token is None and not has_certificates:
        message = f"{options.host} is reached from other machines, and anyone could send requests"
        advice = "give --token-file FILE, or --tls-cert, --tls-key and --tls-client-ca; or listen at 127.0.0.1"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, advice))


def require_token(token: str | None, header: str) -> None:
    """Refuse a request whose header does not name the token; how long that takes says nothing about it."""
    if token is None or hmac.compare_digest(header.encode("utf-8", "replace"), f"Bearer {token}".encode()):
        return
    advice = "send the header Authorization: Bearer TOKEN"
    raise ServingError(Diagnostic(Code.UNAUTHORIZED, "the request has no valid token", None, advice))


class TokenGuard:
    """An ASGI application that answers only requests with the token."""

    def __init__(self, application: AsgiApplication, token: str | None) -> None:
        self._application = application
        self._token = token

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Hand a request on, or answer it."""
        try:
            if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
                given = dict(scope["headers"]).get(b"authorization", b"")
                require_token(self._token, given.decode("latin-1"))
        except ServingError as error:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": encoded_error(error, told(error))})
            return
        await self._application(scope, receive, send)
