"""Where the simulator finds devices that compute for it, without knowing who writes code for them."""

from importlib import import_module
from typing import Any

_HOME: list[str] = []


def register(module: str) -> None:
    """Name the module whose ``backend_for(device)`` makes backends; it is imported when one is first asked for."""
    _HOME[:] = [module]


def registered(device: object) -> Any:
    """The backend of a device; None where nothing computes on it."""
    return import_module(_HOME[0]).backend_for(device) if _HOME else None
