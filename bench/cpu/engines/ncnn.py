"""ncnn: models through ``pnnx``, the converter of the same project."""

import importlib.util
import subprocess
from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import ONNX, Array, CannotError, feeds

STORED_SMALL = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")
"""Options that would make a model in f32 another one."""
PNNX_TYPES = {"float32": "f32", "int64": "i64", "int32": "i32", "bool": "i64", "uint8": "u8"}


def convert(folder: Path) -> None:
    """``model.ncnn.param`` and ``model.ncnn.bin``. The program is called directly: its wrapper imports torch."""
    found = importlib.util.find_spec("pnnx")
    assert found is not None
    assert found.submodule_search_locations is not None
    program = Path(found.submodule_search_locations[0], "pnnx").resolve()
    given = feeds(folder)
    shapes = (f"[{','.join(map(str, one.shape))}]{PNNX_TYPES[one.dtype.name]}" for one in given.values())
    work = folder / "ncnn"
    work.mkdir(exist_ok=True)
    command = [str(program), str((folder / ONNX).resolve()), f"inputshape={','.join(shapes)}", "fp16=0"]
    files = [f"ncnn{kind}={(work / f'model.{kind}').resolve()}" for kind in ("param", "bin")]
    subprocess.run([*command, *files], check=True, cwd=work)
    for left in folder.glob("model*pnnx*"):  # the same model in other formats
        left.unlink()
    (folder / "model_ncnn.py").unlink(missing_ok=True)
    unknown = unknown_layers((work / "model.param").read_text(encoding="utf-8"))
    if unknown:
        raise CannotError(f"pnnx leaves {unknown[0]}, which ncnn has no layer for")


def unknown_layers(text: str) -> list[str]:
    """The layers that ncnn does not have: those that pnnx has left under their names of PyTorch or ONNX."""
    kinds = (line.split()[0] for line in text.splitlines()[2:] if line.strip())
    return [kind for kind in kinds if "." in kind or "::" in kind]


class Ncnn:
    """ncnn in f32, with all its ways to convolve, Winograd's among them."""

    name: ClassVar[str] = "ncnn"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import ncnn

        del model
        self.folder, self._threads, self._library = folder / self.name, threads, ncnn
        self._inputs = [one.astype(np.int32) if one.dtype.kind in "iub" else one for one in feeds(folder).values()]

    def load(self) -> None:
        ncnn = self._library
        net = ncnn.Net()
        net.opt.num_threads = self._threads
        for option in STORED_SMALL:
            setattr(net.opt, option, False)
        if net.load_param(str(self.folder / "model.param")) or net.load_model(str(self.folder / "model.bin")):
            raise CannotError("ncnn does not load what pnnx has written")
        given = [
            ncnn.Mat(np.ascontiguousarray(one.reshape(one.shape[1:] or one.shape))).clone() for one in self._inputs
        ]
        names, result = net.input_names(), net.output_names()[0]

        def step() -> None:
            with net.create_extractor() as extractor:
                for name, value in zip(names, given, strict=True):
                    extractor.input(name, value)
                failed, self._result = extractor.extract(result)
            if failed:
                raise CannotError(f"ncnn says {failed}")

        self.step = step

    def output(self) -> Array:
        return np.array(self._result)
