"""Hooks that must be loaded by the process that prints the summary, whichever folder is tested."""

from tests.oinf.conftest import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]
