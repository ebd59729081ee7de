"""What ``record`` needs, for a machine that has Python, NumPy, a C compiler and a driver, and no network:
``python -m tests.synth.vulkan.bundle FOLDER --python 3.12``.

Takes compilers, headers and the loader of Vulkan from this machine (Debian or one of its kin) and packages from PyPI.
Copy the folder and the sources to the other machine, and run ``sh FOLDER/go.sh docs/h200.json`` in the sources there.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.synth.vulkan.compiler import made

PACKAGES = ("pydantic", "lark", "typer", "rich", "ml_dtypes")
NOT_TAKEN = ("numpy-", "numpy.libs", "rich/_unicode_data")
TOOLS = ("glslangValidator", "spirv-val", "spirv-dis")
LIBRARIES = (
    "libvulkan.so.1",
    "libX11.so.6",
    "libXext.so.6",
    "libxcb.so.1",
    "libXau.so.6",
    "libXdmcp.so.6",
    "libbsd.so.0",
    "libmd.so.0",
)
HEADERS = ("vulkan/vulkan.h", "vulkan/vulkan_core.h", "vulkan/vk_platform.h", "vk_video")
NVIDIA = '{"file_format_version":"1.0.1","ICD":{"library_path":"libEGL_nvidia.so.0","api_version":"1.2.0"}}\n'
"""The driver without a display: what its own file names needs one."""
GO = """#!/bin/sh
# In the root of the sources: sh FOLDER/go.sh RECORD [options of tests.synth.vulkan.record]. OPENINFER_TEST_DEVICE=h200
# is CUDA, which takes nvcc; MODULE=bench.gpu.versus is the comparison with PyTorch, which takes that.
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$here/bin:$PATH" PYTHONPATH="$PWD:$PWD/src:$here/packages"
export LD_LIBRARY_PATH="$here/lib:$LD_LIBRARY_PATH" LIBRARY_PATH="$here/lib" CPATH="$here/include"
export OPENINFER_TEST_DEVICE="${OPENINFER_TEST_DEVICE:-h200-vulkan}" OMP_NUM_THREADS=1
[ -x "$here/bin/many_shaders" ] && export OPENINFER_MANY_SHADERS="$here/bin/many_shaders"
[ -e /usr/share/vulkan/icd.d ] && [ -z "$HEADLESS" ] || export VK_ICD_FILENAMES="$here/nvidia.json"
exec python3 -m "${MODULE:-tests.synth.vulkan.record}" "$@"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="of the other machine")
    parser.add_argument("--glslang", type=Path, default=Path("/usr"), help="where glslang-dev is unpacked")
    options = parser.parse_args()
    folder = options.folder
    for name in ("bin", "lib", "include", "packages"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is None:
            sys.exit(f"this machine has no {tool}: apt-get install glslang-tools spirv-tools")
        shutil.copy(found, folder / "bin")
    _libraries(folder / "lib")
    for name in HEADERS:
        source, target = Path("/usr/include") / name, folder / "include" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, target)
    if not made(folder / "bin", options.glslang):
        print("without glslang-dev, shaders will be compiled one by one")
    _packages(folder / "packages", options.python)
    (folder / "nvidia.json").write_text(NVIDIA)
    (folder / "go.sh").write_text(GO)
    return 0


def _libraries(folder: Path) -> None:
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    places = {line.split()[0]: line.split()[-1] for line in known.splitlines() if "=>" in line and "x86-64" in line}
    for name in LIBRARIES:
        shutil.copy(places[name], folder / name)
    shutil.copy(places["libvulkan.so.1"], folder / "libvulkan.so")


def _packages(folder: Path, python: str) -> None:
    with TemporaryDirectory() as place:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--target",
            place,
            "--python-version",
            python,
        ]
        subprocess.run([*command, "--only-binary", ":all:", *PACKAGES], check=True)
        for one in Path(place).iterdir():
            if not one.name.startswith(NOT_TAKEN) and one.name not in {"numpy", "bin"}:
                target = folder / one.name
                shutil.copytree(one, target, dirs_exist_ok=True) if one.is_dir() else shutil.copy(one, target)


if __name__ == "__main__":
    sys.exit(main())
