"""Graph + model + sizes -> ``BoundGraph``, or every problem at once. Knows nothing of execution."""

from openinfer.check.bind import Binding, bind, check

__all__ = ["Binding", "bind", "check"]
