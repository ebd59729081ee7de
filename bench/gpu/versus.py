"""Models on a GPU, beside PyTorch: ``python -m bench.gpu.versus FILE.json``, on a machine with a GPU and torch.

Each model runs as a generated program by CUDA and by Vulkan, and in PyTorch as it is, as a CUDA graph and compiled.
What they compute is compared first. A time is that of a whole step, from the call until the result is there. What is in
the file is there as soon as it is measured, and ``--cases`` adds to it; ``FILE.svg`` is a picture of it. With
``--together`` all are prepared at the same time, which takes much less of it, and then measured one by one: how long
programs take to build and to start is that of a busy machine then. ``--dry`` runs something small of each: with
``tests/synth/cuda/emulated`` on the PATH it needs no GPU.
"""

import argparse
import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from traceback import format_exc
from typing import Any

import numpy as np
from bench.gpu.cases import CASES, STEPS, Case
from bench.gpu.picture import picture
from bench.models import disagreement

from openinfer import CompiledModule, Simulator, Synthesizer, graph

WAYS = ("torch, eager", "torch, CUDA graph", "torch.compile, CUDA graph", "torch.compile, max-autotune")
DEVICES = ("h200", "h200-vulkan")
GO = "go"
"""The file that says that all cases are ready, and which the one that measures has locked."""
Facts = dict[str, Any]
Step = Callable[[], Any]


def timed(step: Callable[[], Any], steps: int = STEPS) -> dict[str, float]:
    """Microseconds of a step: the median, and the least."""
    times = []
    for _ in range(steps):
        start = perf_counter()
        step()
        times.append(perf_counter() - start)
    own = sorted(times[min(4, steps // 2) :])
    return {"us": round(own[len(own) // 2] * 1e6, 1), "least_us": round(own[0] * 1e6, 1)}


def raw_step(module: CompiledModule) -> Callable[[], None]:
    """A step as a C program takes it, with the inputs that were inserted."""
    inputs, kept = module._arguments()
    results = module._output_type()
    given = tuple(map(ctypes.byref, (module._context, inputs, results)))

    def step(_kept: Any = kept) -> None:
        status = module._step(*given)
        assert status == 0, f"a step ends with status {status}"

    return step


def ours(case: Case, device: str, folder: Path, wanted: Any) -> tuple[Facts, Step]:
    """A generated program: whether it is right, and a step of it."""
    model = case.model
    with model.saved(folder) as loader:
        plan = Synthesizer(device, name="model").synthesize(loader, graph(model.text), sizes=model.settled or None)
        start = perf_counter()
        plan.build()
        built = perf_counter() - start
        start = perf_counter()
        module = plan.build()  # which is compiled by now
        model.begin(module)
        module.run_step()
        found: Facts = {"start_s": round(perf_counter() - start, 3), "build_s": round(built, 1)}
        gap = disagreement(np.asarray(module.fetch(model.output)).astype(np.float32), wanted)
        found |= {"disagreement": gap, "agrees": bool(gap <= case.tolerance)}
        found["launches"] = len(plan.project.kernels.calls)
        module.insert(model.inputs)
        return found, raw_step(module)


def simulated(case: Case, folder: Path) -> Any:
    """What the simulator says."""
    with case.model.saved(folder) as loader:
        executor = Simulator(loader).with_trace("off").make_executor(graph(case.model.text))
        case.model.begin(executor)
        executor.run_step()
        return executor.fetch(case.model.output).astype(np.float32)


def measured(
    name: str, devices: Sequence[str], ways: Sequence[str], *, is_dry: bool, place: Path | None = None
) -> Facts:
    """Everything about a case; with a place, times are taken when all others there are ready, too."""
    from bench.gpu import torch_side

    case, steps = CASES[name][is_dry](), 3 if is_dry else STEPS
    found: Facts = {"name": case.model.name, "runs": {}}
    runs, ready, start = found["runs"], dict[str, Step](), perf_counter()

    def say(what: str) -> None:
        print(f"{perf_counter() - start:.1f} s: {what}", file=sys.stderr, flush=True)

    with TemporaryDirectory() as folder:
        wanted = torch_side.result(case) if case.module else simulated(case, Path(folder))
        for device in devices:
            say(device)
            try:
                runs[device], ready[device] = ours(case, device, Path(folder), wanted)
            except Exception:  # noqa: BLE001  (the others are measured all the same)
                runs[device] = {"failed": format_exc(limit=-3)[-1500:]}
        for way, facts, step in torch_side.prepared(case, list(ways)) if case.module else ():
            say(f"{way} is prepared")
            runs[way] = facts
            if step is not None:
                ready[way] = step
        with nullcontext() if place is None else _turn(name, place):
            most = torch_side.ceilings()
            for way, step in ready.items():
                runs[way] |= timed(step, steps)
    floor = 1e6 * max(case.model.read_bytes / most["bytes"], case.flops / most[case.unit])
    found["floor_us"] = round(floor, 1)
    for one in runs.values():
        if one.get("us"):
            one["percent_of_ceiling"] = round(100 * floor / one["us"], 1)
    return found


@contextmanager
def _turn(name: str, place: Path) -> Iterator[None]:
    """Until all others are ready, and then until no other measures."""
    (place / f"{name}.ready").touch()
    while not (place / GO).exists():
        sleep(0.1)
    with (place / GO).open() as lock:
        flock(lock, LOCK_EX)
        yield


def in_process(name: str, options: argparse.Namespace, place: Path | None = None) -> Facts:
    """A case in a process of its own, which may be lost."""
    command = [sys.executable, "-m", __spec__.name, "-", "--one", name, "--devices", *options.devices]
    command += ["--ways", *options.ways, *["--dry"] * options.dry]
    command += [] if place is None else ["--place", str(place)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.seconds)
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace").splitlines()[-8:]
        return {"failed": "\n".join([f"it took more than {options.seconds:.0f} s", *said])}
    finally:
        if place is not None:
            (place / f"{name}.ready").touch()
    if ended.returncode:
        return {"failed": (ended.stdout + ended.stderr)[-1500:]}
    found: Facts = json.loads(ended.stdout.splitlines()[-1])
    return found


def together(options: argparse.Namespace) -> Iterator[tuple[str, Facts]]:
    """All cases, which prepare at the same time and are measured one after the other; as they end."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(len(options.cases)) as pool:
        place, start = Path(folder), perf_counter()
        running = {pool.submit(in_process, name, options, place): name for name in options.cases}
        while perf_counter() - start < options.together and len([*place.glob("*.ready")]) < len(running):
            sleep(0.1)
        (place / GO).touch()
        for one in as_completed(running):
            yield running[one], one.result()


def joined(known: Facts | None, found: Facts) -> Facts:
    """What is known of a case by now: ways that were not measured this time stay as they were."""
    if known is None or "failed" in known or "failed" in found:
        return known if known is not None and "failed" in found else found
    return {**found, "runs": {**known["runs"], **found["runs"]}}


def summary(name: str, found: Facts) -> str:
    """A line for people."""
    if "failed" in found:
        return f"{name}: {found['failed'][-300:]}"
    runs = [
        f"{way} {one['us']} us{'' if one.get('agrees', True) else ' WRONG'}" if "us" in one else f"{way} failed"
        for way, one in found["runs"].items()
    ]
    return f"{name} (floor {found['floor_us']} us): {', '.join(runs)}"


def main() -> int:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--cases", nargs="+", default=[*CASES], choices=[*CASES])
    parser.add_argument("--devices", nargs="+", default=[*DEVICES])
    parser.add_argument("--ways", nargs="+", default=[*WAYS], help="of PyTorch")
    parser.add_argument("--seconds", type=float, default=240, help="that a case may take")
    parser.add_argument("--dry", action="store_true", help="something small of each, without a GPU")
    parser.add_argument(
        "--together", type=float, metavar="SECONDS", help="prepare all cases at the same time, for so long at most"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        found = measured(options.one, options.devices, options.ways, is_dry=options.dry, place=options.place)
        print(json.dumps(found))
        return 0
    known: Facts = json.loads(options.file.read_text()) if options.file.exists() else {"cases": {}}
    every = together(options) if options.together else ((name, in_process(name, options)) for name in options.cases)
    for name, found in every:
        known["cases"][name] = joined(known["cases"].get(name), {**found, "prepared_together": bool(options.together)})
        options.file.write_text(json.dumps(known, indent=1) + "\n", encoding="ascii")
        print(summary(name, known["cases"][name]), flush=True)
    options.file.with_suffix(".svg").write_text(picture(known), encoding="utf-8")
    return int(any("failed" in one for one in known["cases"].values()))


if __name__ == "__main__":
    sys.exit(main())
