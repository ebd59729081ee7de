"""The command line. It uses only public names of the other packages."""

from openinfer.cli.app import main

__all__ = ["main"]
