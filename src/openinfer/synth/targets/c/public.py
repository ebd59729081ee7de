"""Functions of the header that return a status. Where calls can be concurrent, each admits only one at a time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """A parameter: its type as written before the name, and the name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}{'' if self.kind.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class PublicFunction:
    """A function on a context; the project's name is the prefix of its name."""

    project: str
    name: str
    body: str
    """Its lines, which return the status."""
    parameters: tuple[Parameter, ...] = ()
    """The parameters after the context."""

    def text(self, *, is_alone: bool) -> str:
        """The function; unless ``is_alone``, wrapped in one that refuses a concurrent second call."""
        parameters = (Parameter(f"{self.project}_context *", "c"), *self.parameters)
        declared = ", ".join(map(str, parameters))
        head = f"int {self.project}_{self.name}({declared})"
        if is_alone:
            return f"{head}\n{{\n{self.body}}}\n"
        given = ", ".join(one.name for one in parameters)
        return f"""static int only_{self.name}({declared})
{{
{self.body}}}

{head}
{{
    if (!enter(c)) return {self.project.upper()}_ERROR_BUSY;
    const int status = only_{self.name}({given});
    leave(c);
    return status;
}}
"""
