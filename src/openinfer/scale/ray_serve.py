"""A ``Predictor`` as a Ray Serve deployment: columns in, columns out, through a handle or as JSON over HTTP.

Each replica compiles for the processor of its own machine, once per machine; files must be on shared storage.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from openinfer.errors import BatchError, Code, Diagnostic, OpenInferError
from openinfer.scale.predictor import Predictor

MOST_BYTES = 64 << 20
"""The largest request over HTTP."""


class PredictorReplica:
    """A compiled graph in a process of Ray Serve; takes the same arguments as ``Predictor``.

    A handle is called with columns, as arrays or lists of rows, and returns columns. HTTP requests and answers are JSON
    objects of columns; an invalid request gets status 400, with a message and a code.
    """

    def __init__(
        self,
        graph: str | os.PathLike[str],
        model: str | os.PathLike[str] | None = None,
        *,
        device: str = "host",
        sizes: Mapping[str, int] | None = None,
        columns: Mapping[str, str] | None = None,
        threads: int = 1,
    ) -> None:
        self._predictor = Predictor(graph, model, device=device, sizes=sizes, columns=columns, threads=threads)
        self._turn = asyncio.Lock()

    async def __call__(self, given: Mapping[str, Any] | Request) -> dict[str, Any] | Response:
        """The output columns. Steps run one at a time, in a thread outside the replica's event loop."""
        if not isinstance(given, Request):
            return await self._predicted(given)
        try:
            return JSONResponse(_listed(await self._predicted(await _columns(given))))
        except OpenInferError as error:
            message = "; ".join(one.message for one in error.diagnostics)
            return JSONResponse({"error": message, "code": str(error.code)}, 400)

    async def _predicted(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(columns, Mapping):
            raise _bad(f"expected columns by name, got {type(columns).__name__}")
        async with self._turn:
            return await asyncio.to_thread(self._predictor, columns)


PredictorDeployment = serve.deployment(name="Predictor")(PredictorReplica)
"""``PredictorReplica`` as a deployment: ``serve.run(PredictorDeployment.bind("net.oig", "net.oinf"))``.

``options(...)`` sets everything that Ray Serve offers: replicas, autoscaling, cores and GPUs per replica.
"""


async def _columns(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BYTES:
            raise _bad(f"a request has at most {MOST_BYTES:,} bytes")
    try:
        found = json.loads(data, parse_constant=_refused)
    except RecursionError:
        raise _bad("the JSON of the request is nested too deeply") from None
    except ValueError as error:
        raise _bad(f"the request is not JSON: {str(error)[:100]}") from error
    if not isinstance(found, dict):
        raise _bad("the request is not a JSON object of columns")
    return found


def _refused(constant: str) -> float:
    message = f"{constant} is not a JSON number"
    raise ValueError(message)


def _listed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as JSON values; an error for infinities, which JSON cannot express."""
    return {name: _plain(name, rows) for name, rows in columns.items()}


def _plain(name: str, rows: Any) -> Any:
    if isinstance(rows, list):
        return [_plain(name, row) for row in rows]
    if not isinstance(rows, np.ndarray | np.generic):
        return rows
    array = rows if rows.dtype.kind in "biuf" else rows.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        message = f"the column {name!r} has elements that JSON cannot represent: infinities or NaN"
        raise BatchError(Diagnostic(Code.BAD_VALUE, message, None, "call the deployment by a handle"))
    return array.tolist()


def _bad(message: str) -> BatchError:
    return BatchError(Diagnostic(Code.BAD_BATCH, message))
