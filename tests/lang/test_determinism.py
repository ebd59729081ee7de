"""The same text gives the same JSON bytes, canonical text and errors, whatever the process around it looks like."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lang.sources import sources

AT_ONCE = 2
SEEDS = range(20)
DIGEST = """
import hashlib, json, sys
from openinfer.ir import Graph
from openinfer.lang import parse

texts = json.load(sys.stdin)
digest = [hashlib.sha256() for _ in range(4)]
for text in texts:
    parsed = parse(text, "g.oig")
    digest[0].update(json.dumps(parsed.graph.to_json(), sort_keys=True).encode())
    digest[1].update(parsed.graph.to_text().encode())
    digest[2].update(json.dumps(parsed.graph.to_json(spans=True)).encode())
    for broken in (text, text[: len(text) // 2], text.replace(";", "", 1), text.replace("x", "q"), text + "}"):
        for problem in parse(broken, "g.oig").problems:
            digest[3].update(problem.render().encode())
print(*(one.hexdigest() for one in digest))
"""
PLACES = (
    {"LC_ALL": "C", "TZ": "UTC"},
    {"LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Kathmandu", "COLUMNS": "20"},
)


def _start(seed: int, folder: Path, texts: Path) -> "subprocess.Popen[str]":
    place = folder / ("deep/" * (seed % 2) + f"run{seed}")
    place.mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": str(seed), **PLACES[seed % len(PLACES)]}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    with texts.open(encoding="utf-8") as given:
        return subprocess.Popen(
            [sys.executable, "-c", DIGEST], cwd=place, env=environment, stdin=given, stdout=subprocess.PIPE, text=True
        )


@cache
def _digests() -> dict[int, list[str]]:
    found = {}
    with TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(sources()), encoding="utf-8")
        for first in range(0, len(SEEDS), AT_ONCE):
            running = {seed: _start(seed, Path(folder), texts) for seed in SEEDS[first : first + AT_ONCE]}
            for seed, process in running.items():
                output, _ = process.communicate(timeout=60)
                assert process.returncode == 0
                found[seed] = output.split()
    return found


def _distinct(position: int) -> set[str]:
    return {digests[position] for digests in _digests().values()}


def test_twenty_hash_seeds_folders_and_locales_give_one_json_document() -> None:
    assert len(_digests()) == len(SEEDS)
    assert len(_distinct(0)) == 1


def test_twenty_hash_seeds_folders_and_locales_give_one_canonical_text() -> None:
    assert len(_distinct(1)) == 1


def test_twenty_hash_seeds_folders_and_locales_give_the_same_spans() -> None:
    assert len(_distinct(2)) == 1


def test_twenty_hash_seeds_folders_and_locales_give_the_same_errors_in_the_same_words() -> None:
    assert len(_distinct(3)) == 1
