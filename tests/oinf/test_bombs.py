"""A small file that claims to be enormous is refused at once, in the memory there is."""

import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from tests.oinf.bombs import bombs, write_sparse_bombs
from tests.oinf.layout_model import STRING, TAG, Document, MetadataRow, TensorRow, quant, string

from openinfer import Code, ModelLoader, OinfError

BOMBS = bombs()
MAX_MILLISECONDS = 50
MODES = ("mapped", "copied")
SPARSE = ("tables", "quantization", "string", "array")
EXPLODE = """
import resource, sys, time
from pathlib import Path
from openinfer import ModelLoader, OinfError

def attempt(path, copy):
    start = time.process_time()
    try:
        ModelLoader.open(path, copy=copy).close()
        outcome = "accepted"
    except OinfError as error:
        outcome = str(error.code)
    except BaseException as error:
        outcome = type(error).__name__
    return 1000 * (time.process_time() - start), outcome

in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = getattr(resource, sys.argv[1])
resource.setrlimit(limit, (in_use + (64 << 20), resource.RLIM_INFINITY))
for path in sys.argv[2:]:
    for mode in ("mapped", "copied"):
        milliseconds, outcome = min(attempt(path, mode == "copied") for _ in range(3))
        print(mode, outcome, milliseconds, Path(path).name, flush=True)
"""


@dataclass(frozen=True)
class Explosion:
    """What became of a bomb."""

    outcome: str
    milliseconds: float


Explosions = dict[tuple[str, str], Explosion]


def _explode(limit: str, paths: list[Path]) -> Explosions:
    """Every file opened in a process that may use 64 MiB more than it does after its imports."""
    command = [sys.executable, "-c", EXPLODE, limit, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        mode, outcome, milliseconds, name = line.split(" ", 3)
        found[mode, name] = Explosion(outcome, float(milliseconds))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bombs")


@pytest.fixture(scope="module")
def explosions(folder: Path) -> Explosions:
    """The small bombs under a limit on address space."""
    for name, (data, _) in BOMBS.items():
        (folder / name).write_bytes(data)
    return _explode("RLIMIT_AS", [folder / name for name in BOMBS])


@pytest.fixture(scope="module")
def unmappable(folder: Path) -> Explosions:
    """The sparse files where they cannot even be mapped."""
    return _explode("RLIMIT_AS", write_sparse_bombs(folder))


@pytest.fixture(scope="module")
def mappable(folder: Path) -> Explosions:
    """The sparse files where they can be mapped, but not copied: files do not count as data."""
    return _explode("RLIMIT_DATA", write_sparse_bombs(folder))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_milliseconds_without_memory(name: str, mode: str, explosions: Explosions) -> None:
    explosion = explosions[mode, name]
    assert explosion.outcome == BOMBS[name][1]
    assert explosion.milliseconds < MAX_MILLISECONDS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("claim", SPARSE)
def test_a_sparse_tebibyte_that_does_not_fit_the_address_space_is_a_typed_error(
    claim: str, mode: str, unmappable: Explosions
) -> None:
    explosion = unmappable[mode, f"sparse {claim}"]
    assert explosion.outcome in set(Code)
    assert explosion.milliseconds < MAX_MILLISECONDS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("claim", SPARSE)
def test_a_claim_of_a_sparse_tebibyte_is_checked_before_anything_is_copied(
    claim: str, mode: str, mappable: Explosions
) -> None:
    explosion = mappable[mode, f"sparse {claim}"]
    assert explosion.outcome in {"accepted", *Code}
    assert explosion.milliseconds < MAX_MILLISECONDS


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_small_file(name: str) -> None:
    assert len(BOMBS[name][0]) <= 320


def test_padding_is_not_a_place_to_hide_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "padded.oinf"
    size = 64 << 20
    path.write_bytes(Document().to_bytes()[:61] + size.to_bytes(8, "little") + bytes(3))
    with path.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(OinfError) as caught:
        ModelLoader.open(path)
    assert (caught.value.code, caught.value.field, caught.value.offset) == (Code.NON_ZERO_PADDING, "data.padding", 72)


def _growth(path: Path, *, copy: bool) -> int:
    tracemalloc.start()
    try:
        ModelLoader.open(path, copy=copy).close()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("copy", [False, True], ids=MODES)
def test_a_long_text_takes_no_more_memory_than_twice_the_file(tmp_path: Path, copy: bool) -> None:
    path = tmp_path / "text.oinf"
    path.write_bytes(Document(2, [], [MetadataRow(b"text", STRING, string(b"x" * (64 << 20)))]).to_bytes())
    assert _growth(path, copy=copy) <= 2 * path.stat().st_size + (32 << 20)


@pytest.mark.parametrize("copy", [False, True], ids=MODES)
def test_many_scales_take_no_more_memory_than_twice_the_file(tmp_path: Path, copy: bool) -> None:
    path = tmp_path / "scales.oinf"
    count = 24 << 20
    head = quant(1, [], axis=0)[:24] + count.to_bytes(8, "little") + bytes(16)
    payload = head + np.ones(count, np.float32).tobytes()
    path.write_bytes(Document(2, [], [], [TensorRow(b"w", TAG["u1"], [count], None, payload)]).to_bytes())
    assert _growth(path, copy=copy) <= 2 * path.stat().st_size + (32 << 20)


def test_a_bad_character_at_the_end_of_a_long_text_is_found_within_the_limit_of_a_mutant(tmp_path: Path) -> None:
    path = tmp_path / "text.oinf"
    text = b"x" * (4 << 20) + b"\n"
    path.write_bytes(Document(2, [], [MetadataRow(b"text", STRING, string(text))]).to_bytes())
    seconds = []
    for _ in range(3):
        start = process_time()
        with pytest.raises(OinfError) as caught:
            ModelLoader.open(path)
        seconds.append(process_time() - start)
        assert caught.value.code is Code.BAD_METADATA
    assert min(seconds) <= 0.1
