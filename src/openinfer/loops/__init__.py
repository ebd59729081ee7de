"""The loop IR that every target prints: expressions, statements, kernels, a builder. Knows no ops and no graphs."""
