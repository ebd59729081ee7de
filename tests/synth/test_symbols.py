"""What compiled code refers to and what it owns: four functions on memory, and constants."""

import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from tests.everything import HAS_EVERYTHING
from tests.synth.flags import COMPILERS
from tests.synth.in_c import HEAD, Prepared, cases_of, prepared
from tests.synth.small_models import SMALL_MODELS
from tests.synth.standalone import NUMERICS, WARNINGS

from openinfer import graph
from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.ops.lower.operand import LOWERINGS
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.c.support import support_code

ALLOWED = {"memcpy", "memset", "memmove", "memcmp"}
"""What a compiler may call in any program, even without a C library."""
GROUPS = 6
FLOATS = ("f16", "f32", "f64")
ASKED = {"gcc": DTYPES if HAS_EVERYTHING else (*FLOATS, "i4", "u8"), "clang": FLOATS}
"""The two compilers have the same idea of integers; one of them is asked about functions of floats only."""


def symbols(objects: Sequence[Path]) -> list[tuple[str, str]]:
    """The kinds and names of symbols."""
    found = subprocess.run(["nm", *map(str, objects)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^(?:[0-9a-f]+)? *([A-Za-z]) (\S+)$", found, re.MULTILINE)


def writable_bytes(objects: Sequence[Path]) -> int:
    """The sizes of all sections that a program could write, together."""
    found = subprocess.run(["size", *map(str, objects)], capture_output=True, text=True, check=True).stdout
    return sum(int(data) + int(bss) for data, bss in re.findall(r"^ *\d+\s+(\d+)\s+(\d+)", found, re.MULTILINE))


def require_pure(objects: Sequence[Path]) -> None:
    kinds = symbols(objects)
    assert [name for kind, name in kinds if kind in "dDbBcCgGsS"] == []
    defined = {name for kind, name in kinds if kind not in "Uvw"}
    assert {name for kind, name in kinds if kind in "Uvw"} - defined - ALLOWED == set()
    assert writable_bytes(objects) == 0


def kernels(names: Sequence[str], dtypes: Collection[str]) -> list[Prepared]:
    """A case of every op and dtype."""
    found: list[Prepared] = []
    for name in names:
        for dtype in OPS[name].dtypes:
            if dtype.name in dtypes:
                found += [prepared(OPS[name], case, len(found)) for case in cases_of(name, dtype, 1)]
    return found


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("cc", COMPILERS)
def test_kernels_call_no_library_and_own_nothing(cc: str, group: int, tmp_path: Path) -> None:
    found = kernels(sorted(LOWERINGS)[group::GROUPS], ASKED[cc])
    source, made = tmp_path / "kernels.c", tmp_path / "kernels.o"
    needs = {need for one in found for need in one.code.needs}
    source.write_text(HEAD + support_code(needs) + "\n".join(one.code.text for one in found), encoding="ascii")
    command = [cc, *WARNINGS, *NUMERICS, "-O1", "-fno-pie", "-c", "-o", str(made), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    require_pure([made])


@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_projects_call_no_library_and_own_nothing(name: str, cc: str, level: str, tmp_path: Path) -> None:
    small = SMALL_MODELS[name]
    plan = Synthesizer("generic", name=name, weights="array").synthesize(small.saved(tmp_path), graph(small.text))
    plan.emit(tmp_path)
    # Addresses in constants are relocated in programs that can lie anywhere, which nm calls data.
    command = ["make", "-s", "all", f"CC={cc}", f"CFLAGS={level} -fno-pie -Wall -Wextra -Werror"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    objects = sorted(tmp_path.glob("build/*.o"))
    require_pure(objects)
    assert all(symbol.startswith(f"{name}_") for kind, symbol in symbols(objects) if kind in "TR")
