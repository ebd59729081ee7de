"""Kernels of every form under NVIDIA's sanitizers, on a GPU: ``python -m tests.synth.cuda.sanitize``.

Ops whose kernels have all forms that there are, with small cases scheduled as if they were large; and a small decoder,
whose products and attention are those of a large one. Memory next to what is allocated, memory that nobody has written,
memory of groups that threads race for, and barriers that not all come to.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.gpu.decode import NAME, TEXT, LlamaShape, build, saved, with_trials
from tests.synth.cuda.kernels import cases
from tests.synth.cuda.suite import library, verdict_of

from openinfer import Synthesizer, graph
from openinfer.ops import OPS as RECORDS

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
OPS = (
    *("add", "attn", "cast", "conv2d", "conv3d", "cumsum", "dequantize", "fft", "gather", "layer_norm", "linear"),
    *(
        "lstm_cell",
        "matmul",
        "max_pool",
        "quantize",
        "rope",
        "sample",
        "scatter",
        "sdpa",
        "softmax",
        "sort",
        "sum_axis",
    ),
    *("topk", "transpose"),
)
SMALL = LlamaShape(layers=2, width=512, heads=8, groups=2, hidden=1024, classes=2048, tokens=48)
TRIALS = ("early_launches", "restrict_weights")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: .*")


def kernels_of(folder: Path, name: str) -> Path:
    """The kernels of an op, compiled in a folder."""
    own = folder / name
    own.mkdir()
    return library(cases(RECORDS[name], 1), own)


def programs(folder: Path) -> Mapping[str, Sequence[str]]:
    """The commands that are watched, by name; what they run is built in a folder."""
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        libraries = [*pool.map(partial(kernels_of, folder), OPS)]
    pairs = [f"{name}={made}" for name, made in zip(OPS, libraries, strict=True)]
    found: dict[str, Sequence[str]] = {"ops": (sys.executable, "-m", __spec__.name, "--here", *pairs)}
    in_turn = "decoder, launched in turn", ("launches_in_turn",)
    for name, trials in (("decoder", ()), in_turn, ("decoder, launched early", TRIALS)):
        own = folder / name.replace(", ", "-").replace(" ", "-")
        own.mkdir()
        model = saved(SMALL, own / "model.oinf")
        plan = Synthesizer(with_trials("h200", trials), name=NAME).synthesize(model, graph(TEXT))
        build(plan, SMALL, own)
        found[name] = (str(own / NAME), "4270", str(SMALL.tokens))
    return found


def watched(command: Sequence[str], tool: str, seconds: float) -> dict[str, str | bool]:
    """What a sanitizer says about a program."""
    line = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *command)
    try:
        ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"silent": False, "said": f"it took more than {seconds:.0f} s"}
    said = _SUMMARY.findall(ended.stdout) or [(ended.stdout + ended.stderr)[-1500:]]
    more = "" if ended.returncode == 0 else "\n".join(ended.stdout.splitlines()[:40])[:3000]
    return {"silent": ended.returncode == 0, "said": " ".join(filter(None, (said[-1].strip(), more)))}


def sanitized(seconds: float = 300, tools: Sequence[str] = TOOLS) -> dict[str, dict[str, dict[str, str | bool]]]:
    """What the sanitizers say, by program and tool."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        given = programs(Path(folder))
        begun = {
            name: {tool: pool.submit(watched, command, tool, seconds) for tool in tools}
            for name, command in given.items()
        }
        return {name: {tool: one.result() for tool, one in found.items()} for name, found in begun.items()}


def main() -> int:
    """All of it, or some ops in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--here", nargs="+", metavar="OP=KERNELS", help="only run these ops, whose kernels are compiled"
    )
    parser.add_argument("--tools", nargs="+", default=TOOLS)
    options = parser.parse_args()
    if options.here:
        pairs = (one.split("=", 1) for one in options.here)
        wrong = [failure for name, made in pairs for failure in verdict_of(name, 1, Path(made)).failures]
        print("\n".join(wrong))
        return bool(wrong)
    found = sanitized(tools=options.tools)
    print(json.dumps(found, indent=1))
    return not all(one["silent"] for tools in found.values() for one in tools.values())


if __name__ == "__main__":
    sys.exit(main())
