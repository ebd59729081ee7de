"""The graphs of a decoder as text: one for a prompt of many tokens, one for a single token.

Both declare the same persistent variables, so each reads what the other put into the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from openinfer.importing.gguf_model import Decoder, WeightTable
from openinfer.lang.format import format_source


@dataclass(frozen=True)
class DecoderGraph:
    """One of the two graphs: ``prompt`` is the most tokens per step, or 0 for one token without a token axis."""

    decoder: Decoder
    context: int
    source: str
    """Where the model came from, for the first comment."""
    prompt: int = 0

    def text(self) -> str:
        """The graph, formatted."""
        lines = [f"// {self.source}", *self._sections(), "block entry {", *self._entry(), "}"]
        text = "\n".join(lines) + "\n"
        return format_source(text.replace("Dv", "Dh") if self._is_even else text)

    @property
    def _is_even(self) -> bool:
        """Whether value heads are as wide as key heads, and so need no size of their own."""
        return self.decoder.value_head == self.decoder.head

    # --- declarations -----------------------------------------------------------------------------------------------

    @property
    def _is_prompt(self) -> bool:
        return self.prompt > 0

    def _sections(self) -> Iterator[str]:
        one = self.decoder
        yield "sizes {"
        yield f"L := {one.layers};  // layers"
        yield f"D := {one.width};  // their width"
        yield f"N := {one.heads};  // heads"
        yield f"G := {one.groups};  // heads of keys and values, shared by the query heads"
        yield f"Dh := {one.head};  // the width of a head"
        if not self._is_even:
            yield f"Dv := {one.value_head};  // the width of its values"
        yield f"F := {one.hidden};  // the width inside a gated layer"
        yield f"V := {one.vocabulary};  // tokens in the vocabulary"
        yield f"C := {self.context};  // capacity of the cache in tokens"
        if self._is_prompt:
            yield f"T <= {self.prompt};  // tokens of this step"
        yield f"P <= {self.context};  // tokens so far, including those of this step"
        yield "}"
        yield f"dynamic {{ {'tokens: i64[T]' if self._is_prompt else 'token: i64'}; }}"
        yield "volatile { logits: f32[V]; }"
        yield "constant {"
        yield from (_declared(table) for table in one.tables)
        yield "}"
        yield "persistent {"
        yield "step: i64 @init(0);  // tokens in the cache"
        yield "keys(l, t): f32[G, Dh] @table @fixed(l=L, t=C);"
        yield "values(l, t): f32[G, Dv] @table @fixed(l=L, t=C);"
        yield "}"

    def _shape(self, dims: str) -> str:
        return f"f32[T, {dims}]" if self._is_prompt else f"f32[{dims}]"

    def _assigned(self) -> Iterator[str]:
        rows = "T" if self._is_prompt else "1"
        if self._is_prompt:
            yield "assign places: i64[T];"
            yield "assign column: i64[T, 1];"
            yield "assign back: i64;"
        if self.decoder.style.unrotated:
            yield "assign rotated: i64;"
            yield "assign is_rotated: bool;"
            yield f"assign positions: i64{'[T, 1]' * self._is_prompt};"
        names = {"h": "D", "x": "D", "q": "N*Dh", "k": "G*Dh", "v": "G*Dv", "joined": "N*Dv"}
        names |= {"projected": "N*Dh+G*(Dh+Dv)", "wide": "2*F"} if self.decoder.style.fused else {}
        names |= {"query": "N, Dh", "key": "G, Dh", "value": "G, Dv"} | {"gated": "F", "hidden": "F"}
        yield from (f"assign {name}: {self._shape(dims)};" for name, dims in names.items())
        yield f"assign queries: f32[N, {rows}, Dh];"
        yield "assign past: f32[P, G, Dh];"
        if not self._is_even:
            yield "assign past_values: f32[P, G, Dv];"
        yield "assign all_keys: f32[G, P, Dh];"
        yield "assign all_values: f32[G, P, Dv];"
        yield f"assign mixed: f32[N, {rows}, Dv];"
        if self._is_prompt:
            yield "assign by_token: f32[T, N, Dv];"
            yield "assign last: f32[D];"
        if self._is_narrow("embedding"):
            yield f"assign picked: {self._shape('D').replace('f32', self._dtype('embedding'))};"
        for name in ("wq", "wk", "wv", "qkv", "wo", "gate", "up", "down", "head", "embedding"):
            if self._is_narrow(name) and not (name == "embedding" and self.decoder.table("head")):
                yield f"assign {name}_f32: f32[{self._table(name).dims}];"

    def _table(self, name: str) -> WeightTable:
        found = self.decoder.table(name)
        assert found is not None
        return found

    def _dtype(self, name: str) -> str:
        return self._table(name).kept.dtype.name

    def _is_narrow(self, name: str) -> bool:
        """Whether a table holds 16-bit floats, which are converted to f32 where they are read."""
        found = self.decoder.table(name)
        return found is not None and found.kept.dtype.kind == "float" and found.kept.dtype.bits < 32

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _linear(self, x: str, name: str, y: str) -> Iterator[str]:
        place = f"{name}[l]" if self._table(name).pattern else name
        if self._is_narrow(name):
            yield f"op cast({place}, to=f32) >> {name}_f32;"
            place = f"{name}_f32"
        bias = f", {name}_bias[l]" if self.decoder.table(f"{name}_bias") else ""
        yield f"op linear({x}, {place}{bias}) >> {y};"

    def _norm(self, x: str, gamma: str, y: str) -> str:
        eps = "" if _shown(self.decoder.eps) == _shown(1e-5) else f", eps={_shown(self.decoder.eps)}"
        return f"op rms_norm({x}, {gamma}{eps}) >> {y};"

    def _rope(self, x: str) -> str:
        one = self.decoder
        words = [x, "positions" if one.style.unrotated else "column" if self._is_prompt else "step"]
        words += [f"base={_shown(one.rope_base)}"] if one.rope_base != 10000 else []
        words += ["interleaved=true"] if one.style.interleaved else []
        words += [f"rotary_dim={one.rotary}"] if one.rotary != one.head else []
        words += [f"scale={_shown(one.rope_scale)}"] if one.rope_scale != 1 else []
        return f"op rope({', '.join(words)}) >> {x};"

    def _entry(self) -> Iterator[str]:
        one = self.decoder
        yield from self._assigned()
        yield ""
        given = "tokens" if self._is_prompt else "token"
        if self._is_prompt:
            yield "op iota(places, axis=0) >> places;"
            yield "op add(places, step) >> places;"
            yield "op reshape(places, shape=[T, 1]) >> column;"
        if self._is_narrow("embedding"):
            yield f"op embedding(embedding, {given}) >> picked;"
            yield "op cast(picked, to=f32) >> h;"
        else:
            yield f"op embedding(embedding, {given}) >> h;"
        if one.style.scales_embedding:
            yield f"op mul(h, {_shown(sqrt(one.width))}) >> h;"
        yield ""
        yield "loop layers (l in 0..L) {"
        yield 'scope "attention" {'
        yield from self._attention()
        yield "}"
        yield 'scope "gated layer" {'
        yield from self._gated()
        yield "}"
        yield "}"
        yield from self._end()

    def _attention(self) -> Iterator[str]:
        one, first = self.decoder, "T, " if self._is_prompt else ""
        if one.style.unrotated:
            yield f"op mod(l, {one.style.unrotated}) >> rotated;"
            yield f"op ne(rotated, {one.style.unrotated - 1}) >> is_rotated;"
            yield "op cast(is_rotated, to=i64) >> rotated;"
            yield f"op mul({'column' if self._is_prompt else 'step'}, rotated) >> positions;  // 0: no rotation"
        yield self._norm("h", "norm1[l]", "x")
        if one.style.fused:
            yield from self._linear("x", "qkv", "projected")
            yield f"op split(projected, axis={int(self._is_prompt)}, sizes=[N*Dh, G*Dh, G*Dv]) >> q, k, v;"
        else:
            for name, y in (("wq", "q"), ("wk", "k"), ("wv", "v")):
                yield from self._linear("x", name, y)
        yield f"op reshape(k, shape=[{first}G, Dh]) >> key;"
        if one.table("norm_k"):
            yield self._norm("key", "norm_k[l]", "key")
        yield self._rope("key")
        here = "step..step+T" if self._is_prompt else "step"
        yield f"cache.write key >> keys[l, {here}];"
        yield f"op reshape(v, shape=[{first}G, Dv]) >> value;"
        yield f"cache.write value >> values[l, {here}];"
        yield f"op reshape(q, shape=[{first}N, Dh]) >> query;"
        if one.table("norm_q"):
            yield self._norm("query", "norm_q[l]", "query")
        yield self._rope("query")
        if self._is_prompt:
            yield "op transpose(query, perm=[1, 0, 2]) >> queries;"
        else:
            yield "op reshape(query, shape=[N, 1, Dh]) >> queries;"
        yield from self._mixed(first)

    def _mixed(self, first: str) -> Iterator[str]:
        one, now = self.decoder, "step+T" if self._is_prompt else "step+1"
        past = "past" if self._is_even else "past_values"
        yield f"cache.read keys[l, 0..{now}] >> past;"
        yield "op transpose(past, perm=[1, 0, 2]) >> all_keys;"
        yield f"cache.read values[l, 0..{now}] >> {past};"
        yield f"op transpose({past}, perm=[1, 0, 2]) >> all_values;"
        words = ["queries", "all_keys", "all_values", *(["causal=true"] if self._is_prompt else [])]
        words += [f"scale={_shown(one.attention_scale)}"] if one.attention_scale else []
        words += [f"softcap={_shown(one.attention_softcap)}"] if one.attention_softcap else []
        yield f"op sdpa({', '.join(words)}) >> mixed;"
        if self._is_prompt:
            yield "op transpose(mixed, perm=[1, 0, 2]) >> by_token;"
        yield f"op reshape({'by_token' if self._is_prompt else 'mixed'}, shape=[{first}N*Dv]) >> joined;"
        yield from self._linear("joined", "wo", "x")
        if one.style.post_norms:
            yield self._norm("x", "norm1_post[l]", "x")
        yield "op add(h, x) >> h;"

    def _gated(self) -> Iterator[str]:
        one = self.decoder
        yield self._norm("h", "norm2[l]", "x")
        if one.style.fused:
            yield from self._linear("x", "up", "wide")
            yield f"op split(wide, axis={int(self._is_prompt)}, sizes=[F, F]) >> gated, hidden;"
        else:
            yield from self._linear("x", "gate", "gated")
            yield from self._linear("x", "up", "hidden")
        yield f"op {one.style.activation} >> gated;"
        yield "op mul(gated, hidden) >> hidden;"
        yield from self._linear("hidden", "down", "x")
        if one.style.post_norms:
            yield self._norm("x", "norm2_post[l]", "x")
        yield "op add(h, x) >> h;"

    def _end(self) -> Iterator[str]:
        cap = self.decoder.final_softcap
        last = "last" if self._is_prompt else "x"
        if self._is_prompt:
            yield "op max_axis(places) >> step;  // the position of the last token"
            yield "cache.increment step;"
            yield "transfer -1 >> back;"
            yield "op gather(h, back) >> last;  // only the logits of the last token are needed"
        else:
            yield "cache.increment step;"
        yield self._norm("last" if self._is_prompt else "h", "norm", last)
        yield from self._linear(last, "head" if self.decoder.table("head") else "embedding", "logits")
        if cap:
            yield f"op div(logits, {_shown(cap)}) >> logits;"
            yield "op tanh(logits) >> logits;"
            yield f"op mul(logits, {_shown(cap)}) >> logits;"
        yield "return logits;"


def _shown(value: float) -> str:
    """A number as f32, in the fewest digits that identify it."""
    return str(np.float32(value)).removesuffix(".0")


def _declared(table: WeightTable) -> str:
    dtype = table.kept.dtype.name
    if table.pattern is None:
        return f'{table.name}: {dtype}[{table.dims}] @ref("{table.tensors[0].name}");'
    return f'{table.name}(l): {dtype}[{table.dims}] @pattern("{table.pattern}");'
