"""Answers requests, independently of their protocol."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from openinfer.errors import OpenInferError
from openinfer.serve.messages import InferAnswer, InferRequest
from openinfer.serve.models import Served
from openinfer.serve.problems import bad_request
from openinfer.serve.repository import Repository
from openinfer.serve.work import Job, StepOutputs, deadline_error

if TYPE_CHECKING:
    from openinfer.serve.telemetry import Telemetry


class Inference:
    """Answers requests with the models of a repository."""

    def __init__(self, repository: Repository, timeout: float, telemetry: "Telemetry | None" = None) -> None:
        self.repository = repository
        self.timeout = timeout
        self.telemetry = telemetry

    async def infer(self, name: str, version: str, request: InferRequest, protocol: str) -> InferAnswer:
        """Answer a request with the outputs of one step."""
        served = self.repository.found(name, version)
        if request.steps != 1:
            raise bad_request("several steps need a stream", "use infer_stream, or ModelStreamInfer")
        return await self._answer(served, request, protocol)

    async def stream(self, name: str, version: str, request: InferRequest, protocol: str) -> AsyncIterator[InferAnswer]:
        """Answer each step of a request; the first may begin a sequence, and the last may end it."""
        for number in range(request.steps):
            served = self.repository.found(name, version)  # look it up again: it may have been reloaded meanwhile
            part, is_last = request.sequence, number == request.steps - 1
            if part is not None:
                part = replace(part, starts=part.starts and number == 0, ends=part.ends and is_last)
            one = replace(request, steps=1, sequence=part)
            answer = await self._answer(served, one, protocol)
            yield replace(answer, parameters={"step": number, "triton_final_response": is_last})

    async def _answer(self, served: Served, request: InferRequest, protocol: str) -> InferAnswer:
        start, code, record = perf_counter(), "E000", None
        try:
            _require_tracer(served, request)
            inputs = served.interface.accepted(request)
            if self.telemetry is not None:
                record = self.telemetry.step_record(wants_nodes=request.traces_nodes)
            timeout = min(self.timeout, self.timeout if request.timeout is None else request.timeout)
            job = Job(inputs, timeout, request.sequence, record)
            served.pool.submit(job)
            found = await _waited(served, job)
            outputs = served.interface.answered(found, request.outputs)
            code = "ok"
            return InferAnswer(served.name, served.version, outputs, request.id)
        except OpenInferError as error:
            code = str(error.code)
            raise
        finally:
            trace_id = None
            if self.telemetry is not None and record is not None:
                trace_id = self.telemetry.step(record, served, code)
            served.watcher.answered(protocol, code, perf_counter() - start, request.id, trace_id)


def _require_tracer(served: Served, request: InferRequest) -> None:
    if request.traces_nodes and served.pool.tracer is None:
        message = "the server does not record nodes, which takes a further instance of each model"
        raise bad_request(message, "openinfer serve --node-traces, or a request without trace_nodes")


async def _waited(served: Served, job: Job) -> StepOutputs:
    """Wait for the outputs of a job; drop it after its deadline or when the client is gone."""
    try:
        async with asyncio.timeout(max(job.deadline - monotonic(), 0)):
            return await asyncio.wrap_future(job.future)
    except TimeoutError:
        served.pool.drop(job)
        raise deadline_error() from None
    except asyncio.CancelledError:
        served.pool.drop(job)
        raise
