"""Lowerings: for every op, the loops that compute it. No target appears here."""

from openinfer.ops.lower import elementwise

__all__ = ["elementwise"]
