"""The command line. Everything it does goes through public names of the other packages."""

from openinfer.cli.app import main

__all__ = ["main"]
