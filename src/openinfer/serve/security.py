"""Access to a server: anyone on this machine; from elsewhere, only with a token or a certificate."""

import hmac
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from openinfer.errors import Code, Diagnostic, FileSpan, ServingError
from openinfer.serve.json_codec import encoded_error
from openinfer.serve.options import ServeOptions, TlsFiles
from openinfer.serve.problems import told

_OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
_SHORTEST_TOKEN = 16
AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether a server that listens on ``host`` can only be reached from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_safe(options: ServeOptions) -> None:
    """Refuse to listen on the network without authentication."""
    if options.token is not None and len(options.token) < _SHORTEST_TOKEN:
        message = f"the token is shorter than {_SHORTEST_TOKEN} characters"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "openssl rand -hex 32 makes one"))
    if options.token is not None and not (options.token.isascii() and options.token.isprintable()):
        message = "the token has characters that a header cannot have"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "openssl rand -hex 32 makes one"))
    if options.tls is not None:
        _require_certificates(options.tls)
    has_certificates = options.tls is not None and options.tls.client_authority is not None
    if not is_loopback(options.host) and options.token is None and not has_certificates:
        message = f"{options.host} is reached from other machines, and anyone could send requests"
        advice = "give --token-file FILE, or --tls-cert, --tls-key and --tls-client-ca; or listen at 127.0.0.1"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, advice))


def _require_certificates(files: TlsFiles) -> None:
    """Refuse invalid or mismatched certificate files before the server listens."""
    place, context = files.certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_authority is not None:
            place = files.client_authority
            context.load_verify_locations(files.client_authority)
    except OSError as error:
        message = f"{place!r} cannot be used as a certificate: {error.strerror or error}"
        advice = (
            "--tls-cert and --tls-key are PEM files of the same certificate, --tls-client-ca is one of an authority"
        )
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, FileSpan(place), advice)) from error


def require_token(token: str | None, header: str) -> None:
    """Refuse a request whose header does not have the token; compares in constant time."""
    if token is None or hmac.compare_digest(header.encode("utf-8", "replace"), f"Bearer {token}".encode()):
        return
    advice = "send the header Authorization: Bearer TOKEN"
    raise ServingError(Diagnostic(Code.UNAUTHORIZED, "the request has no valid token", None, advice))


class TokenGuard:
    """ASGI middleware that only lets requests with the token through."""

    def __init__(self, application: AsgiApplication, token: str) -> None:
        self._application = application
        self._token = token

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Pass a request on, or refuse it."""
        try:
            if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
                given = dict(scope["headers"]).get(b"authorization", b"")
                require_token(self._token, given.decode("latin-1"))
        except ServingError as error:
            await _refuse(send, error, 401)
            return
        await self._application(scope, receive, send)


class PageGuard:
    """ASGI middleware that refuses requests of web pages from other machines, which a local browser would send."""

    def __init__(self, application: AsgiApplication) -> None:
        self._application = application

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Pass a request on, or refuse it."""
        origin = dict(scope["headers"]).get(b"origin") if scope["type"] == "http" else None
        if origin is None or _is_of_this_machine(origin.decode("latin-1")):
            await self._application(scope, receive, send)
            return
        message = f"a page of {origin.decode('latin-1')[:80]!r} may not send requests to a server without a token"
        advice = "start the server with --token-file FILE"
        await _refuse(send, ServingError(Diagnostic(Code.UNAUTHORIZED, message, None, advice)), 403)


def _is_of_this_machine(origin: str) -> bool:
    try:
        return is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False


async def _refuse(send: AsgiSend, error: ServingError, status: int) -> None:
    headers = [(b"content-type", b"application/json")]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": encoded_error(error, told(error))})
