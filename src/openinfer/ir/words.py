"""Reserved words, which cannot be names."""

from openinfer.dtypes import ALIASES, DTYPES

RESERVED = frozenset(
    {
        *DTYPES,
        *ALIASES,
        *("op", "assign", "loop", "in", "block", "branch", "return", "yield", "await", "barrier", "dep", "transfer"),
        *("scope", "with", "effect", "model", "fmt", "true", "false", "inf", "nan"),
    }
)
