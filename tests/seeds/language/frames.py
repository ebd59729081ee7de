"""What stands around a documented fragment to make a complete graph of it, and why.

A frame adds what the documents leave out and changes nothing of the fragment. Names that the documents use but never
declare get the declaration that makes sense of the snippet.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """Text before and after a fragment, and the reason it is needed."""

    reason: str
    before: str = ""
    after: str = ""

    def around(self, fragment: str) -> str:
        return f"{self.before}\n{fragment}\n{self.after}\n"


COMPLETE = Frame("it is a complete graph")
DECLARATIONS = Frame("declarations alone are no graph: execution starts at entry", after="block entry { return; }")
WEIGHTS = 'dynamic { x: f32[B, D]; } volatile { W(l): f32[D, D] @pattern("W.{l}"); }'
ATTENTION = "inputs { q: f32[B, N, T, Dh]; k: f32[B, N, T, Dh]; v: f32[B, N, T, Dh]; } constant { wo: f32[Dh, Dh]; }"
CACHES = "persistent { step: i32 @init(0); K(l, t): f16[H, Dh] @table; V(l, t): f16[H, Dh] @table; }"
ACTIVATION = Frame(
    "a statement stands in a block, and h is never declared",
    "dynamic { h: f32[B, D]; } block entry {",
    "return h; }",
)
LAYER = Frame(
    "x, w and bias are never declared",
    "dynamic { x: f32[B, D]; } constant { w: f32[D, D]; bias: f32[D]; }",
)

FRAMES = {
    "001_01_minimal": COMPLETE,
    "001_02_inputs_outputs": DECLARATIONS,
    "001_03_block": LAYER,
    "001_04_loop": Frame(
        "a loop stands in a block, and h, which it carries, is never declared",
        "inputs { h: f32[B, D]; } block entry {",
        "return h; }",
    ),
    "001_05_state": Frame(
        "step and h are never declared; h2 is what the block returns, so it is an output, and its type tells the axis",
        "inputs { step: i32 []; h: f32 [B, D]; } outputs { h2: f32 [B, D]; }",
    ),
    "001_06_constraints": Frame(
        "a statement stands in a block, and x and w are never declared",
        "inputs { x: f32[B, D]; } constant { w: f32[D, H]; } block entry {",
        "return a; }",
    ),
    "001_07_barrier": LAYER,
    "001_08_scope": Frame(
        "a scope stands in a block, and q, k, v and wo are never declared", f"{ATTENTION} block entry {{", "return b; }"
    ),
    "001_09_serialize": COMPLETE,
    "002_01_minimal": COMPLETE,
    "002_02_sections": DECLARATIONS,
    "002_03_constants": DECLARATIONS,
    "002_04_relu": ACTIVATION,
    "002_05_relu_settings": ACTIVATION,
    "002_06_prefix_table": DECLARATIONS,
    "002_07_prefix_table_alias": DECLARATIONS,
    "002_08_block": LAYER,
    "002_09_assign": Frame(
        "statements stand in a block, and x and w are never declared",
        "dynamic { x: f32[B, D]; } constant { w: f32[D, D]; } block entry {",
        "return h; }",
    ),
    "002_10_loop": Frame(
        "a loop stands in a block, and h and W are never declared",
        'dynamic { h: f32[B, D]; } volatile { W(l): f32[D, D] @pattern("W.{l}"); } block entry {',
        "return h; }",
    ),
    "002_11_cache_declaration": DECLARATIONS,
    "002_12_cache_tables": DECLARATIONS,
    "002_13_auto_dim": DECLARATIONS,
    "002_14_cache_operations": Frame(
        "statements stand in a block; step, K and V are those of the complete example, and l is a loop's index",
        f"{CACHES} block entry {{ assign k: f16[H, Dh]; assign v: f16[H, Dh]; loop layers (l in 0..10) {{",
        "} return; }",
    ),
    "002_15_barrier": Frame("x and W are never declared", WEIGHTS),
    "002_16_dep": Frame(
        "x, W, K and step are never declared; K holds what is written to it",
        f"{WEIGHTS} persistent {{ step: i32 @init(0); K(l, t): f32[B, D] @table; }}",
    ),
    "002_17_single_step": COMPLETE,
    "002_18_branch": Frame("x and W are never declared", WEIGHTS),
    "002_19_yield": Frame(
        "W is never declared; the snippet is about the order of things, and its types do not agree with each other",
        'volatile { W(l): f32[D, D] @pattern("W.{l}"); }',
    ),
    "003_01_overview": COMPLETE,
}

TABLES = """
    A(i): f32[D] @table;
    B(i, j): f32[D] @table;
    C(i): f16[D, H] @table;
    D(i, j): f16[D, H] @table @fixed(i=1024, j=256);
"""
MATRICES = """
    A(i, j): f32[D, H] @auto_dim(i, j);
    B(i, j): f32[D, H] @auto_dim(i, j) @fixed(i=1024, j=256);
    C(l, i, j): f32[D, H] @table @auto_dim(i, j);
"""
ACCESSES = {
    ("tables", "A[10]"): "f32[D]",
    ("tables", "A[0..i]"): "f32[n, D]",
    ("tables", "B[0..i, 0..j]"): "f32[n, m, D]",
    ("tables", "C[0..i]"): "f16[n, D, H]",
    ("tables", "D[0..1024-1, 0..256-1]"): "f16[1023, 255, D, H]",
    ("tables", "A[]"): "f32[n, D]",
    ("tables", "A[0..9]"): "f32[9, D]",
    ("tables", "A[0..5]"): "f32[5, D]",
    ("tables", "A[2..5]"): "f32[3, D]",
    ("tables", "A[0..-3]"): "f32[n, D]",
    ("tables", "A[0..6]"): "f32[6, D]",
    ("matrices", "A[0..D+i, ]"): "f32[n, m]",
    ("matrices", "A[, 0..H+j]"): "f32[n, m]",
    ("matrices", "A[0..D+i, 0..H+j]"): "f32[n, m]",
    ("matrices", "A[i, ]"): "f32[m]",
    ("matrices", "A[, j]"): "f32[n]",
    ("matrices", "A[i, j]"): "f32[n, m]",
    ("matrices", "A[]"): "f32[n, m]",
    ("matrices", "B[i, j]"): "f32[n, m]",
    ("matrices", "C[l, i, j]"): "f32[n, m]",
    ("matrices", "C[0..4, i, j]"): "f32[4, n, m]",
}
"""The forms of access that the documents list, with the declarations they are about and what they give."""


def access_frame(declarations: str, result: str) -> Frame:
    """An access stands in a ``cache.read``; its indices are integers that the caller gives."""
    return Frame(
        "an access stands in a cache.read, and l, i and j are integers that change from step to step",
        "sizes { n <= 2048; m <= 2048; } dynamic { l: i32; i: i32; j: i32; }"
        f"persistent {{ {TABLES if declarations == 'tables' else MATRICES} }}"
        f"block entry {{ assign out: {result}; cache.read",
        ">> out; return out; }",
    )


HAND_OVERS = {
    "yield a, b, c;": "in entry, which hands the variables over",
    "await a, b, c;": "in entry, which waits for them",
}
"""The two statements that the text gives in passing; both stand in the same graph."""
