"""Shows what the mutant tests have seen."""

import pytest
from tests.oinf.report import show_figures


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures of the mutant tests."""
    show_figures(terminalreporter, config)
