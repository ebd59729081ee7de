"""Registers the module that provides simulator backends, so that the simulator need not know it."""

from importlib import import_module
from typing import Any

_HOME: list[str] = []


def register(module: str) -> None:
    """Register the module whose ``backend_for(device)`` creates backends; it is imported on first use."""
    _HOME[:] = [module]


def registered(device: object) -> Any:
    """The backend of a device; None if nothing can compute on it."""
    return import_module(_HOME[0]).backend_for(device) if _HOME else None
