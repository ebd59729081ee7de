"""Kernel fusion: the pass, its rules, and the ledger of what was fused and what was not."""
