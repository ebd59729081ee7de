"""Describes a circuit: the clocks of a step, where they go, lane utilization, and what to look at first."""

from typing import Any

from openinfer.errors import counted

_SHOWN = 6
"""The most nodes of a kernel to list."""


def circuit_text(facts: dict[str, Any]) -> str:
    """A line per kernel, then the kernel with the most clocks; ``facts`` is the circuit section of a plan.

    >>> kernel = {"name": "net_k0_add", "calls": 1, "clocks": 60, "nodes": ["line 3: op add(x, x) >> y"]}
    >>> print(circuit_text({"clocks": 80, "kernels": [kernel]}))
    circuit
      a step takes 80 clocks
      net_k0_add  60 clocks, 75%
      look first at net_k0_add: line 3: op add(x, x) >> y
    """
    lines = ["circuit", f"  a step takes {_clocks(facts['clocks'])}"]
    outside = facts.get("outside")
    if outside is not None:
        lines.append(f"  {outside['bytes']:,} bytes of weights are in external memory; waiting clocks are not counted")
    if "lanes" in facts:
        lanes = facts["lanes"]
        lines.append(f"  {lanes['count']} lanes add a term in {lanes['use']:.1%} of the clocks of their kernels")
    width = max((len(one["name"]) for one in facts["kernels"]), default=0)
    whole = _most(facts["clocks"])
    for one in facts["kernels"]:
        own = _most(one["clocks"])
        share = f", {own * one['calls'] / whole:.0%}" if own is not None and whole else ""
        calls = f" x {one['calls']}" if one["calls"] > 1 else ""
        lanes_text = f", {counted(one['lanes'], 'lane')} used {one['use']:.0%}" if "lanes" in one else ""
        lines.append(f"  {one['name']:<{width}}  {_clocks(one['clocks'])}{calls}{share}{lanes_text}")
    known = [one for one in facts["kernels"] if _most(one["clocks"]) is not None]
    if known:
        first = max(known, key=lambda one: (_most(one["clocks"]) or 0) * one["calls"])
        lines.append(f"  look first at {first['name']}: {_first(first['nodes'])}")
    return "\n".join(lines)


def _first(nodes: list[str]) -> str:
    """The first nodes of a kernel, and the number of further ones."""
    shown = "; ".join(nodes[:_SHOWN])
    return shown if len(nodes) <= _SHOWN else f"{shown}; and {counted(len(nodes) - _SHOWN, 'node')} more"


def _most(clocks: int | list[int | None]) -> int | None:
    return clocks if isinstance(clocks, int) else clocks[1]


def _clocks(clocks: int | list[int | None]) -> str:
    if isinstance(clocks, int):
        return f"{clocks:,} clocks"
    least, most = clocks
    return f"at least {least:,} clocks, depending on the data" if most is None else f"{least:,} to {most:,} clocks"
