"""The figures of the mutant tests at the end of a pytest run, gathered from all xdist workers."""

import pytest
from tests.oinf.oracle import Figures

FIGURES = "oinf_figures"
_SHOWN = pytest.StashKey[bool]()


def show_figures(terminal: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the summed figures once, if any mutant test ran."""
    if config.stash.get(_SHOWN, False):
        return
    config.stash[_SHOWN] = True
    total = Figures()
    for reports in terminal.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == FIGURES and report.when == "call":
                    total.add(Figures.from_json(value))
    if total.mutants or total.truncations:
        terminal.section("mutants of model files")
        for line in total.table():
            terminal.write_line(line)
