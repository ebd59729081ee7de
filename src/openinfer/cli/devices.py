"""``openinfer devices``: the descriptions shipped with OpenInfer, and that of this machine."""

import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openinfer.cli.options import AsJson
from openinfer.cli.stepping import errors_as_json

if TYPE_CHECKING:
    from openinfer.synth.devices.description import DeviceArch


def devices(
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE.json", help="A device; without one, all.")] = None,
    detect: Annotated[bool, typer.Option("--detect", help="Describe this machine, as the text of a file.")] = False,
    api: Annotated[
        str | None,
        typer.Option("--api", metavar="c|vulkan|cuda", help="With --detect: this machine's processor, or its GPU."),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of device files.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the devices that code can be written for, show one, or describe this machine.

    What --detect prints is a device file: 'openinfer devices --detect > host.json', and then 'openinfer synth ...
    --device host.json' writes the same code on every machine. With --api vulkan it is that of the Vulkan device, with
    --api cuda that of the GPU, whose arithmetic is tried out.
    """
    from openinfer.cli.app import print_diagnostics

    if sum((detect, schema, name is not None)) > 1:
        message = "choose one of NAME, --detect and --schema"
        raise typer.BadParameter(message)
    if api is not None and not detect:
        message = "--api needs --detect"
        raise typer.BadParameter(message)
    with errors_as_json() if as_json else nullcontext():
        # Imported here because the other commands need no device descriptions.
        from openinfer.synth.devices.description import DeviceArch, device_schema

        if detect:
            typer.echo(DeviceArch.detect(api or "c").to_text(), nl=False)
        elif schema:
            typer.echo(json.dumps(device_schema(), indent=2))
        elif name is None:
            _print_all(as_json=as_json)
        else:
            arch = device_called(name)
            if not as_json:
                print_diagnostics(arch.warnings)
            typer.echo(arch.to_text() if as_json else _details(arch), nl=not as_json)


def device_called(name: str) -> "DeviceArch":
    """A device by the name of a shipped description, ``host``, or the path of a ``.json`` file."""
    from openinfer.synth.devices.description import DeviceArch

    return DeviceArch.called(name)


def _print_all(*, as_json: bool) -> None:
    from openinfer.synth.devices.description import DeviceArch, device_names

    found = {name: DeviceArch.named(name) for name in device_names()}
    if as_json:
        typer.echo(json.dumps({name: arch.to_json() for name, arch in found.items()}, indent=2))
        return
    rows = [(name, arch.device.type, arch.api or "", _target(arch), arch.title) for name, arch in found.items()]
    heads = ("device", "type", "api", "target", "what it is")
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*heads, box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    typer.echo("\n".join(line.rstrip() for line in lines))


def _target(arch: "DeviceArch") -> str:
    """The languages generated for a device; some have none yet."""
    languages = {"cuda": "CUDA, C", "vulkan": "GLSL, C", "vhdl": "VHDL, C"}
    if arch.api in languages:
        return languages[arch.api]
    return f"C, {arch.cpu.isa}" if arch.device.type == "cpu" and arch.api == "c" else "none yet"


def _details(arch: "DeviceArch") -> str:
    lines = [arch.title]
    for key, value in arch.to_json().items():
        if key not in ("$schema", "comment"):
            lines += [key, *_rows(value)] if isinstance(value, dict) else [f"{key}  {_cell(key, value)}"]
    comment = arch.comment or ()
    return "\n".join([*lines, *((comment,) if isinstance(comment, str) else comment)])


def _rows(section: dict[str, Any]) -> list[str]:
    width = max(map(len, section), default=0)
    lines = []
    for key, value in section.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            parts = (", ".join(f"{name} {_cell(name, cell)}" for name, cell in one.items()) for one in value)
            lines += [f"  {key:<{width}}", *(f"    {part}" for part in parts)]
        else:
            lines.append(f"  {key:<{width}}  {_cell(key, value)}")
    return [line.rstrip() for line in lines]


def _cell(key: str, value: Any) -> str:
    from openinfer.errors import printable
    from openinfer.oinf.report import size_text

    if type(value) is int and key.endswith("bytes") and value >= 1 << 10:
        return f"{value} ({size_text(value)})"
    return printable(value if isinstance(value, str) else json.dumps(value))
