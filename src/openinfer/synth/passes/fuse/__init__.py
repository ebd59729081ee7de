"""Fusion: kernels joined into one, the rules for it, and the ledger of what was fused and what was not."""
