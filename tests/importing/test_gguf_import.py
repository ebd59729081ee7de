"""GGUF files become graphs that compute what their decoder does; what cannot be imported leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.importing.gguf_files import BLOCKS, Reference, Tiny, gguf_bytes, random_blocks
from tests.synth.flags import USUAL
from typer.testing import CliRunner

from openinfer import ModelLoader, Simulator, Synthesizer, load_graph
from openinfer.cli.app import app
from openinfer.errors import Code, ImportingError
from openinfer.importing import Imported, import_gguf
from openinfer.lang.format import format_source
from openinfer.synth.passes.fuse.relayout import widens_weight
from openinfer.synth.program.ir import KernelStep

TOKENS = [3, 17, 0, 39, 8, 25]
DECODERS = {
    "llama": Tiny(formats={"": "Q4_0", "token_embd.": "Q8_0"}),
    "llama f16": Tiny(formats={"": "F16", "ffn_down.": "BF16"}, tied=False),
    "llama mixed": Tiny(formats={"": "Q4_1 Q8_0", "attn_q.": "F32 Q5_0", "ffn_up.": "Q5_1 Q4_1"}),
    "llama linear": Tiny(extra={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}),
    "k-quants": Tiny(
        width=256,
        heads=8,
        groups=1,
        hidden=256,
        formats={"attn_k.": "Q4_K", "ffn_down.": "Q6_K Q4_K", "attn_v.": "Q5_K"},
    ),
    "qwen2": Tiny("qwen2", biases=True),
    "qwen3": Tiny(
        "qwen3", head_norms=True, extra={"qwen3.attention.key_length": 32, "qwen3.attention.value_length": 32}
    ),
    "smollm3": Tiny("smollm3", layers=5, biases=True),
    "gemma": Tiny("gemma"),
    "gemma2": Tiny(
        "gemma2",
        post_norms=True,
        extra={"gemma2.attn_logit_softcapping": 0.5, "gemma2.final_logit_softcapping": 0.7},
    ),
    "phi3": Tiny("phi3", fused=True, extra={"phi3.rope.dimension_count": 8}),
}


def run(imported: Imported, first: int) -> Any:
    """The logits behind ``TOKENS``, some of them at once and then one by one."""
    assert imported.prefill is not None
    with ModelLoader.open(imported.model) as model:
        simulator = Simulator(model).with_trace("off")
        prefill, decode = (simulator.make_executor(load_graph(one)) for one in (imported.prefill, imported.graph))
        logits = prefill(tokens=np.array(TOKENS[:first]))
        decode.load_state(prefill.save_state() or b"")
        for token in TOKENS[first:]:
            logits = decode(token=token)
    return logits


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_computes_what_it_should(tmp_path: Path, name: str) -> None:
    tiny = DECODERS[name]
    real = tiny.write(tmp_path / "tiny.gguf")
    imported = import_gguf(tmp_path / "tiny.gguf", tmp_path / "out", sizes={"context": 8, "prompt": 6})
    wanted = Reference(tiny, real).logits(TOKENS)
    for first in (4, 6):
        assert np.abs(run(imported, first) - wanted).max() <= 1e-4 * np.abs(wanted).max()
    for path in (imported.graph, imported.prefill):
        text = Path(str(path)).read_text()
        assert format_source(text) == text
        assert text.count("loop layers") == 1


def test_generated_c_gives_the_same_tokens(tmp_path: Path) -> None:
    real = DECODERS["llama"].write(tmp_path / "tiny.gguf")
    imported = import_gguf(tmp_path / "tiny.gguf", tmp_path / "out", sizes={"context": 16})
    found, text = [], list(TOKENS[:1])
    with ModelLoader.open(imported.model) as model:
        decode = Synthesizer().synthesize(model, load_graph(imported.graph)).build(flags=USUAL)
        for _ in range(10):
            text.append(int(np.argmax(decode(token=text[-1]))))
            found.append(text[-1])
    reference, own = Reference(DECODERS["llama"], real), list(TOKENS[:1])
    for _ in range(10):
        own.append(int(np.argmax(reference.logits(own))))
    assert text == own


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_kept_in_their_bits(tmp_path: Path, name: str) -> None:
    tiny = Tiny(width=256, hidden=32, layers=1, formats={"ffn_up.": name})
    real = tiny.write(tmp_path / "tiny.gguf")
    imported = import_gguf(tmp_path / "tiny.gguf", tmp_path)
    with ModelLoader.open(imported.model) as model:
        info = model.tensors["blk.0.ffn_up.weight"]
        assert info.quant is not None
        values = info.quant.dequantize(model.load(info.name).to_numpy())
        assert np.array_equal(values, real[info.name])
        assert info.dtype.bits == (4 if name.startswith("Q4") else 8)
        assert info.quant.scale.group == (16 if name == "Q6_K" else 32)


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_halves_are_kept_in_their_bits_and_made_wider_where_they_are_read(tmp_path: Path, name: str) -> None:
    tiny = Tiny(formats={"": name})
    real = tiny.write(tmp_path / "tiny.gguf")
    imported = import_gguf(tmp_path / "tiny.gguf", tmp_path / "out", sizes={"context": 8, "prompt": 6})
    wanted = Reference(tiny, real).logits(TOKENS)
    data = (tmp_path / "tiny.gguf").read_bytes()
    with ModelLoader.open(imported.model) as model:
        for tensor in (one for one in model.tensors.values() if len(one.shape) == 2):
            assert tensor.dtype.name == name.lower()
            assert model.load(tensor.name).to_numpy().tobytes() in data
        assert imported.prefill is not None
        plan = Synthesizer().synthesize(model, load_graph(imported.prefill))
        calls = [step for step in plan.placed.program.steps() if isinstance(step, KernelStep)]
        assert not any(map(widens_weight, calls))
        logits = plan.build(flags=USUAL)(tokens=np.array(TOKENS))
    assert np.abs(logits - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_the_command_writes_three_files_and_says_what_they_are(tmp_path: Path) -> None:
    Tiny().write(tmp_path / "tiny.gguf")
    arguments = ["import", str(tmp_path / "tiny.gguf"), "-o", str(tmp_path / "out"), "--name", "m", "--json"]
    found = CliRunner().invoke(app, [*arguments, "--size", "context=32"])
    facts = json.loads(found.output)
    assert facts["inputs"] == {"token": "token"}
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["m.oig", "m.oinf", "m_prefill.oig"]
    assert facts["prefill"] == str(tmp_path / "out" / "m_prefill.oig")
    assert "C := 32;" in Path(facts["graph"]).read_text()


# --- what is refused --------------------------------------------------------------------------------------------------

ROPE = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
REFUSED = {
    "the architecture 'mamba' is not supported": Tiny("mamba"),
    "positions are scaled by 'yarn'": Tiny(extra=ROPE),
    "llama.attention.head_count is a size, not 0": Tiny(extra={"llama.attention.head_count": 0}),
    "has the shape \\[40, 64\\], not \\[40, 65\\]": Tiny(extra={"llama.embedding_length": 65}),
    "it has no tensor 'blk.2.attn_norm.weight'": Tiny(extra={"llama.block_count": 3}),
    "'blk.0.attn_q.bias' is not used by": Tiny("phi3", fused=True, biases=True),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_known_is_refused_and_nothing_written(tmp_path: Path, words: str) -> None:
    REFUSED[words].write(tmp_path / "tiny.gguf")
    with pytest.raises(ImportingError, match=words) as caught:
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    assert {one.code for one in caught.value.diagnostics} == {Code.UNSUPPORTED_NODE}
    assert not (tmp_path / "out").exists()


def test_every_tensor_of_an_unknown_format_is_reported(tmp_path: Path) -> None:
    tiny = Tiny()
    tiny.write(tmp_path / "tiny.gguf")
    data = bytearray((tmp_path / "tiny.gguf").read_bytes())
    for layer in range(2):  # IQ4_NL in place of F32
        name = f"blk.{layer}.ffn_up.weight".encode()
        at = data.index(name) + len(name) + 4 + 16
        data[at : at + 4] = (20).to_bytes(4, "little")
    (tmp_path / "tiny.gguf").write_bytes(data)
    with pytest.raises(ImportingError) as caught:
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    messages = [one.message for one in caught.value.diagnostics]
    assert len(messages) == 2
    assert all("ffn_up.weight' is IQ4_NL" in one for one in messages)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"context": 65}, "from 1 to 64"),
        ({"context": 8, "prompt": 9}, "from 1 to 8"),
        ({"batch": 1}, "no size 'batch'"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path: Path, sizes: dict[str, int], words: str) -> None:
    Tiny().write(tmp_path / "tiny.gguf")
    with pytest.raises(ImportingError, match=words):
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "out", sizes=sizes)


def test_scales_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tiny = Tiny(formats={"": "Q8_0"})
    tiny.write(tmp_path / "tiny.gguf")
    data = bytearray((tmp_path / "tiny.gguf").read_bytes())
    first = random_blocks("Q8_0", (40, 64), np.random.default_rng(7))[0]
    at = data.index(first)
    data[at : at + 2] = b"\x00\x7c"
    (tmp_path / "tiny.gguf").write_bytes(data)
    with pytest.raises(ImportingError, match="scales that are not finite") as caught:
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    assert caught.value.diagnostics[0].code is Code.BAD_IMPORT_FILE
    assert not (tmp_path / "out").exists()


def test_tensors_in_the_same_bytes_are_refused(tmp_path: Path) -> None:
    data = gguf_bytes({}, {"a": ("F32", (8,), b"\0" * 32), "b": ("F32", (8,), b"\0" * 32)})
    (tmp_path / "t.gguf").write_bytes(data.replace((32).to_bytes(8, "little"), bytes(8)))
    with pytest.raises(ImportingError, match="overlap"):
        import_gguf(tmp_path / "t.gguf", tmp_path / "out")
