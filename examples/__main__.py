"""``python -m examples``: run every example in the simulator and as compiled C, and print one table of figures."""

import sys
from importlib import import_module
from pathlib import Path

from examples.figures import Figures
from rich.console import Console
from rich.table import Table

from openinfer.oinf.report import size_text

HERE = Path(__file__).parent
WIDTH = 120
"""How wide the table is where there is no terminal."""


def names() -> list[str]:
    """The examples: the folders that have an ``example.py``."""
    return sorted(path.parent.name for path in HERE.glob("*/example.py"))


def table(rows: dict[str, Figures]) -> Table:
    """The figures of some examples."""
    shown = Table(title="One step in the simulator and in generated C, on this machine")
    for column in ("example", "model"):
        shown.add_column(column)
    for column in ("weights", "arena", "simulator ms", "C ms"):
        shown.add_column(column, justify="right")
    shown.add_column("agreement")
    for name, row in rows.items():
        sizes = (size_text(row.weight_bytes), size_text(row.arena_bytes))
        times = (f"{row.simulator_ms:.3f}", f"{row.c_ms:.3f}")
        shown.add_row(name, row.model, *sizes, *times, row.agreement, style=None if row.agrees else "red")
    return shown


def main(wanted: list[str]) -> int:
    """Measure some examples, or all of them; 1 if one does not agree with itself."""
    unknown = set(wanted) - set(names())
    if unknown:
        print(f"there is no example {', '.join(sorted(unknown))}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    rows: dict[str, Figures] = {}
    for name in wanted or names():
        rows[name] = import_module(f"examples.{name}.example").figures()
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows))
    return 0 if all(row.agrees for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
