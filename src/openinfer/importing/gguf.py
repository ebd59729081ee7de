"""``import_gguf``: a language model in a GGUF file as a prompt graph, a token graph and a model file."""

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from openinfer.errors import OinfError, printable
from openinfer.importing.finish import Imported, require_sound
from openinfer.importing.gguf_blocks import STORED, groups_of, quantized
from openinfer.importing.gguf_file import GgufFile, GgufTensor
from openinfer.importing.gguf_graph import DecoderGraph
from openinfer.importing.gguf_model import Decoder, WeightTable, decoder_of
from openinfer.importing.identifiers import identifier
from openinfer.importing.options import ImportOptions, SizeChoice, sizes_given
from openinfer.importing.problems import bad_file, bad_option
from openinfer.lang import graph
from openinfer.oinf.authoring import TensorSpec
from openinfer.oinf.staging import staged_model
from openinfer.oinf.writer import Writer

_CONTEXT, _PROMPT = 2048, 128
"""The default capacity of the cache in tokens, and the default maximum of tokens per prompt step.

A longer prompt takes several steps. More tokens at once were not faster, and the part of the cache that a step saves
for rollback grows with them.
"""


def import_gguf(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    sizes: Mapping[str, int | str] | None = None,
) -> Imported:
    """Import a language model: write ``NAME.oig``, ``NAME_prefill.oig`` and ``NAME.oinf`` into a folder.

    ``NAME.oig`` takes one token per step, ``NAME_prefill.oig`` several; they share a cache. ``sizes`` may give
    ``context``, the capacity of the cache in tokens, and ``prompt``, the most tokens that a prefill step takes.
    """
    options = ImportOptions(name, sizes_given(sizes or {}))
    return run_gguf_import(os.fspath(path), os.fspath(folder), options)


def run_gguf_import(path: str, folder: str, options: ImportOptions) -> Imported:
    """Read, check and write; nothing is written unless every check passes."""
    if options.states or options.fixed or options.dropped or not options.loops or not options.idioms:
        raise bad_option("--state, --fix, --drop, --no-loops and --no-idioms are for ONNX models")
    stem = identifier(options.name or os.path.splitext(os.path.basename(path))[0], "model")
    with GgufFile(path) as file:
        decoder = decoder_of(file)
        decode, prefill = _graphs(file, decoder, options)
        return _Output(file, folder, stem).write(decoder, decode, prefill)


def _graphs(file: GgufFile, decoder: Decoder, options: ImportOptions) -> tuple[DecoderGraph, DecoderGraph]:
    strange = [name for name in options.sizes if name not in ("context", "prompt")]
    if strange:
        raise bad_option(f"there is no size {strange[0]!r:.60}", "a GGUF model has the sizes context and prompt")
    limit = decoder.window if decoder.window and decoder.architecture in ("gemma2", "phi3") else decoder.context
    computed = [name for name, choice in options.sizes.items() if not isinstance(choice, SizeChoice)]
    if computed:
        raise bad_option(f"the size {computed[0]!r} of a GGUF model is a number", f"--size {computed[0]}={_PROMPT}")
    given = {name: choice.value for name, choice in options.sizes.items() if isinstance(choice, SizeChoice)}
    context = given.get("context", min(limit, _CONTEXT))
    prompt = given.get("prompt", min(context, _PROMPT))
    if not 1 <= context <= limit:
        raise bad_option(f"the context is from 1 to {limit} tokens, not {context}", f"--size context={limit}")
    if not 1 <= prompt <= context:
        raise bad_option(f"a prompt has from 1 to {context} tokens, not {prompt}", f"--size prompt={context}")
    named = file.metadata.get("general.name")
    about = f", {printable(named)[:80]}" if isinstance(named, str) and named else ""
    origin = f"Imported from {printable(os.path.basename(file.path))}{about} ({decoder.architecture})."
    decode = DecoderGraph(decoder, context, f"{origin} One token per step; logits predict the next one.")
    return decode, replace(decode, prompt=prompt, source=f"{origin} Several tokens per step.")


class _Output:
    """The files of one import, written all or not at all."""

    def __init__(self, file: GgufFile, folder: str, stem: str) -> None:
        self._file = file
        self._folder = folder
        self._stem = stem

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def write(self, decoder: Decoder, decode: DecoderGraph, prefill: DecoderGraph) -> Imported:
        """Write the model, check the graphs against it, then write the graphs."""
        model = self._path(f"{self._stem}.oinf")
        graphs = {
            self._path(f"{self._stem}.oig"): decode.text(),
            self._path(f"{self._stem}_prefill.oig"): prefill.text(),
        }
        with staged_model(model) as staged:
            self._write_model(staged.temporary, decoder)
            for text in graphs.values():
                require_sound(graph(text), staged.temporary, self._file.path)
            staged.publish(graphs)
        one, several = graphs
        states = {name: name for name in ("step", "keys", "values")}
        return Imported(one, model, {"token": "token"}, {"logits": "logits"}, states, several)

    def _write_model(self, path: str, decoder: Decoder) -> None:
        with Writer(path) as writer:
            for table in decoder.tables:
                for tensor in table.tensors:
                    writer.add_tensor(tensor.name, self._stored(table, tensor))

    def _stored(self, table: WeightTable, tensor: GgufTensor) -> TensorSpec:
        """A tensor as the model file stores it."""
        assert tensor.format is not None
        data, own, kept = self._file.read(tensor), STORED[tensor.format.name], table.kept
        if not own.group:
            values = data.view(own.dtype.array).reshape(tensor.shape)
            return TensorSpec(values if own.dtype is kept.dtype else values.astype(np.float32), kept.dtype)
        try:
            with np.errstate(all="ignore"):
                groups = groups_of(tensor.format.name, data)
                values, quant = quantized(groups, own, kept if kept.group else own, tensor.shape)
        except OinfError as error:
            reason = f"the tensor {tensor.name!r} has scales that are not finite"
            raise bad_file(self._file.path, reason) from error
        if kept.group:
            return TensorSpec(values, kept.dtype, quant=quant)
        return TensorSpec(quant.dequantize(values), kept.dtype)
