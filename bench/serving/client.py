"""A bounded client: so many connections, each of which sends its next request when it has the answer to the last.

Every answer is checked: it belongs to the request that was sent, and its numbers are those that the request must give.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

TOLERANCE = 1e-4
"""Of elements of vectors of length 1: engines add in other orders."""


@dataclass(frozen=True)
class Question:
    """A request and the answer that it must get."""

    path: str
    facts: dict[str, Any]
    wanted: Any


@dataclass
class Load:
    """What came of a while of requests."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Processor time of the server."""
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    """Answers 429: the server says that it has enough to do."""
    wrong: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    def percentile(self, part: float) -> float:
        return float(np.percentile(self.latencies, part)) if self.latencies else float("nan")

    def add(self, other: "Load") -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.latencies += other.latencies
        self.refused += other.refused
        self.wrong += other.wrong


class Connection:
    """A connection of HTTP/1.1 that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        writer.write("\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        length, closes = 0, False
        while (line := (await reader.readline()).strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            closes |= line == b"connection: close"
        found = await reader.readexactly(length)
        if closes:
            self.close()
        return status, found

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _ask_until(port: int, questions: Sequence[Question], place: int, end: float, load: Load) -> None:
    connection, number = Connection(port), place * 1_000_003
    while perf_counter() < end:
        question, number = questions[number % len(questions)], number + 1
        body = json.dumps({**question.facts, "id": str(number)}).encode()
        start = perf_counter()
        status, found = await connection.ask(question.path, body)
        if status == 429:
            load.refused += 1
            await asyncio.sleep(0.005)
            continue
        load.latencies.append(perf_counter() - start)
        problem = _problem(status, found, str(number), question)
        if problem:
            load.wrong.append(problem)
    connection.close()


def _problem(status: int, body: bytes, request_id: str, question: Question) -> str | None:
    if status != 200:
        return f"{status}: {body[:200]!r}"
    facts = json.loads(body)
    if facts.get("id") != request_id:
        return f"the answer to {facts.get('id')!r} for the request {request_id!r}"
    values = np.array(facts["outputs"][0]["data"], np.float32).reshape(-1)
    difference = float(np.abs(values - question.wanted).max()) if values.shape == question.wanted.shape else np.inf
    return None if difference <= TOLERANCE else f"wrong by {difference}"


def loaded(port: int, questions: Sequence[Question], clients: int, seconds: float) -> Load:
    """Requests of a number of clients for a while."""

    async def run() -> Load:
        load, start = Load(), perf_counter()
        end = start + seconds
        await asyncio.gather(*(_ask_until(port, questions, place, end, load) for place in range(clients)))
        load.seconds = perf_counter() - start
        return load

    return asyncio.run(run())
