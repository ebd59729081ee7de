"""The keywords of the language: what they mean, and the form of statements that begin with them."""

SECTIONS = {
    "sizes": "Sizes of the graph itself: `B := 4;` is fixed, `T <= 128;` can be less in each step.",
    "dynamic": "Inputs: the caller inserts them before each step.",
    "volatile": "Variables that start afresh in each step: from the model, `@init`, or zero.",
    "constant": "Values that nothing writes: from the model, its metadata, or `@init`.",
    "persistent": "Variables that keep their values from step to step; `reset` restores their initial values.",
    "block": "A sequence of nodes. Execution starts at `block entry`.",
}
"""Keywords outside of blocks."""

KEYWORDS = {
    "op": "A computation: `op add(x, y) >> z;`, or `z = op add(x, y);`, which declares `z`.",
    "assign": "Declares a temporary: `assign h: f32[B, D];`",
    "transfer": "Copies a value: `transfer x >> y;`",
    "loop": "Repeats a body: `loop layers (l in 0..n) { ... }`",
    "scope": 'Names a region: `scope "attention" { ... }`',
    "branch": "Runs a block: `branch name;`, or one of two: `branch condition then else;`",
    "call": "Runs a block with parameters: `call layer(x, l) >> y;`",
    "return": "Ends a block; in `entry` it names the outputs.",
    "barrier": "Nothing moves or fuses across it.",
    "dep": "Keeps two nodes in order: `dep after(matmul) before(cache.write);`",
    "yield": "Hands variables over to the blocks that await them.",
    "await": "Waits for variables that another block yields.",
    "cache.read": "Reads persistent memory: `cache.read K[l, t] >> k;`",
    "cache.write": "Writes persistent memory: `cache.write k >> K[l, t];`",
    "cache.increment": "Adds to a persistent integer: `cache.increment step;`",
    "cache.decrement": "Subtracts from a persistent integer.",
    "cache.reset": "Restores the initial value of persistent memory.",
    "effect": "The classic way to read and write state.",
    "model": 'A tensor of the model by its name: `model["scale"]`',
}
"""Keywords at the start of statements, and the word for tensors of the model."""

FORMS = {
    "sizes": "sizes {\n    ${1:B} := ${2:1};\n}",
    **{
        name: f"{name} {{\n    ${{1:name}}: ${{2:f32}}[${{3}}];\n}}"
        for name in SECTIONS
        if name not in ("sizes", "block")
    },
    "block": "block ${1:entry} {\n    $0\n    return;\n}",
    "op": "op ${1:name}($2) >> ${3:y};",
    "assign": "assign ${1:h}: ${2:f32}[$3];",
    "transfer": "transfer ${1:x} >> ${2:y};",
    "loop": "loop ${1:name} (${2:i} in 0..${3:n}) {\n    $0\n}",
    "scope": 'scope "${1:name}" {\n    $0\n}',
    "branch": "branch ${1:block};",
    "call": "call ${1:block}($2) >> ${3:y};",
    "return": "return $1;",
    "barrier": "barrier;",
    "dep": "dep after(${1:op}) before(${2:op});",
    "yield": "yield $1;",
    "await": "await $1;",
    "cache.read": "cache.read ${1:K} >> ${2:k};",
    "cache.write": "cache.write ${1:k} >> ${2:K};",
    "cache.increment": "cache.increment ${1:step};",
    "cache.decrement": "cache.decrement ${1:step};",
    "cache.reset": "cache.reset ${1:K};",
}
"""The forms of sections and statements, as snippets."""

ATTRIBUTES = {
    "init": "`@init(value)`: the initial value of every element.",
    "ref": '`@ref("name")`: the tensor of the model that fills the variable.',
    "pattern": '`@pattern("W.{l}")`: the tensors of the model that a prefix table names.',
    "table": "`@table`: a table with an entry for each index, which grows as it is written.",
    "fixed": "`@fixed(l=24)`: bounds the indices of a table.",
    "auto_dim": "`@auto_dim(r, c)`: a matrix whose dimensions grow with these indices.",
}
CONSTRAINTS = {
    "fuse": "`fuse = true` asks for fusion with neighbours, `fuse = false` forbids it.",
    "placement": '`placement = "gpu"`: where the op should run.',
    "group": '`group = "g"`: ops of one group are kept together.',
    "no_reorder": "`no_reorder = true`: the op keeps its place.",
}
