"""The protocol's own OpenAPI documents, as mlserver ships them, drive every endpoint: ``make test-serve`` has them."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.serve.running import Reply, Running, running, written
from tests.serve.test_limits import ROWS, rows

_OTHERS = ("generate", "generate_stream")
"""Texts, which have OpenAI's form here."""


def document(name: str) -> Any:
    found = importlib.util.find_spec("mlserver")
    assert found is not None
    assert found.submodule_search_locations is not None
    path = Path(found.submodule_search_locations[0]) / "rest" / "openapi" / f"{name}.json"
    facts = json.loads(path.read_text())
    tensor = facts["components"]["schemas"].get("TensorData")
    if tensor is not None:  # bytes, which JSON has no type for
        tensor["oneOf"] = [one for one in tensor["oneOf"] if one["type"] != "bytes"]
    return facts


DOCUMENTS = {name: document(name) for name in ("dataplane", "model_repository")}
OPERATIONS = [
    pytest.param(name, path, method, id=f"{method} {path}")
    for name, facts in DOCUMENTS.items()
    for path, methods in facts["paths"].items()
    for method in methods
    if method in ("get", "post")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    written(folder, ROWS, "net/1/graph.oig")
    with running(folder) as found:
        yield found


def require_schema(name: str, responses: Any, reply: Reply) -> None:
    """What was answered has the form that the document gives this status."""
    content = responses[str(reply.status)].get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is not None:
        jsonschema.Draft7Validator({**schema, "components": DOCUMENTS[name]["components"]}).validate(reply.facts)


def ask(server: Running, path: str, method: str, model: str, body: Any) -> Reply:
    url = path.replace("{model_name}", model).replace("{model_version}", "1")
    return server.ask(url, (body if body is not None else {}) if method == "post" else None)


@pytest.mark.parametrize(("name", "path", "method"), OPERATIONS)
def test_an_endpoint_answers_as_its_document_says(server: Running, name: str, path: str, method: str) -> None:
    responses = DOCUMENTS[name]["paths"][path][method]["responses"]
    is_infer = "/infer" in path
    if path.rpartition("/")[2] in _OTHERS:
        reply = ask(server, path, method, "net", {})
        assert (reply.status, reply.facts["code"]) == (404, "E902")
        return
    reply = ask(server, path, method, "net", rows([1.0, 2.0]) if is_infer else None)
    assert reply.status == 200, reply
    if path.endswith("infer_stream"):
        events = [one for one in reply.body.split(b"\n\n") if one]
        reply = Reply(200, events[0].removeprefix(b"data: "), reply.headers)
    require_schema(name, responses, reply)
    if "{model_name}" in path:
        missing = ask(server, path, method, "nothing", rows([1.0]) if is_infer else None)
        assert missing.status == 404
        assert missing.facts["code"] == "E902"
        if "404" in responses:
            require_schema(name, responses, missing)
    if is_infer:
        bad = ask(server, path, method, "net", {"inputs": [{"name": "x"}]})
        assert bad.status == 400
        require_schema(name, responses, bad)
    server.ask("/v2/repository/models/net/load", {})


@pytest.mark.parametrize(("name", "path", "method"), [one for one in OPERATIONS if "infer" in str(one.id)])
def test_requests_of_the_tests_are_those_of_the_document(name: str, path: str, method: str) -> None:
    schema = DOCUMENTS[name]["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.Draft7Validator({**schema, "components": DOCUMENTS[name]["components"]}).validate(rows([1.0]))
