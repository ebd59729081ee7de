"""Certificates on both sides, over HTTP and gRPC: who has one of the right authority is let in, and nobody else."""

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from tests.serve.running import LISTENING, Running, running, written
from tests.serve.test_limits import ROWS, rows

from openinfer.serve import ModelFiles
from openinfer.serve.grpc_codec import message
from openinfer.serve.options import TlsFiles


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def made(folder: Path, name: str, authority: Certificate | None = None) -> Certificate:
    """A certificate of an authority, or an authority."""
    found = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    new = ("req", "-x509" if authority is None else "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}")
    if authority is None:
        openssl(*new, "-days", "2", "-keyout", str(found.key), "-out", str(found.certificate))
        return found
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl(*new, "-keyout", str(found.key), "-out", str(request))
    signing = ("-CA", str(authority.certificate), "-CAkey", str(authority.key), "-CAcreateserial", "-days", "2")
    openssl("x509", "-req", "-in", str(request), *signing, "-extfile", str(extensions), "-out", str(found.certificate))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "others"):
        authority = made(found, f"{name}-authority")
        for who in ("server", "client"):
            made(found, f"{name}-{who}", authority)
    return found


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    tls = TlsFiles(*(str(folder / one) for one in ("ours-server.pem", "ours-server.key", "ours-authority.pem")))
    graph = ModelFiles(written(folder, ROWS))
    with running(graph, options=replace(LISTENING, tls=tls)) as found:
        yield found


def over_http(server: Running, folder: Path, who: str | None, authority: str = "ours") -> int:
    context = ssl.create_default_context(cafile=str(folder / f"{authority}-authority.pem"))
    if who is not None:
        context.load_cert_chain(folder / f"{who}.pem", folder / f"{who}.key")
    connection = http.client.HTTPSConnection("127.0.0.1", server.server.port, timeout=30, context=context)
    try:
        connection.request("POST", "/v2/models/m/infer", json.dumps(rows([1.0])))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_http_takes_certificates_of_the_authority_only(server: Running, folder: Path) -> None:
    assert over_http(server, folder, "ours-client") == 200
    for who in (None, "others-client"):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            over_http(server, folder, who)
    with pytest.raises(ssl.SSLCertVerificationError):
        over_http(server, folder, "ours-client", authority="others")
    plain = http.client.HTTPConnection("127.0.0.1", server.server.port, timeout=30)
    plain.request("GET", "/v2/health/live")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        plain.getresponse()
    assert over_http(server, folder, "ours-client") == 200


def over_grpc(server: Running, folder: Path, who: str | None) -> bool:
    pair = (None, None) if who is None else tuple((folder / f"{who}.{end}").read_bytes() for end in ("key", "pem"))
    credentials = grpc.ssl_channel_credentials((folder / "ours-authority.pem").read_bytes(), *pair)
    with grpc.secure_channel(server.grpc_address, credentials) as channel:
        live = channel.unary_unary(
            "/inference.GRPCInferenceService/ServerLive",
            request_serializer=message("ServerLiveRequest").SerializeToString,
            response_deserializer=message("ServerLiveResponse").FromString,
        )
        return bool(live(message("ServerLiveRequest")(), timeout=30).live)


def test_grpc_takes_certificates_of_the_authority_only(server: Running, folder: Path) -> None:
    assert over_grpc(server, folder, "ours-client")
    for who in (None, "others-client"):
        with pytest.raises(grpc.RpcError) as caught:
            over_grpc(server, folder, who)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
