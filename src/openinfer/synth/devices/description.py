"""Device descriptions: what a device is, has and allows, as documents that make synthesis reproducible.

``DeviceArch`` is such a document, ``DeviceSpec`` a short way to name a kind of device. Knows nothing of graphs.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr, ValidationError

from openinfer.device import Device
from openinfer.errors import Code, DeviceError, Diagnostic, DocumentSpan, counted, nearest
from openinfer.synth.devices.documents import document_bytes, parsed_document, validation_problems
from openinfer.synth.devices.sections import (
    Cpu,
    DeviceFacts,
    DeviceSection,
    Features,
    Fpga,
    Limits,
    MatrixShape,
    Memory,
    Preferences,
    Rounding,
    Toolchain,
)

FOLDER = Path(__file__).parent / "files"
"""The shipped descriptions; ``devices/`` in the repository links to them."""
MAX_DEVICE_BYTES = 1 << 20
HOST = "host"
"""The name of this machine."""


class DeviceArch(DeviceSection):
    """A device description, as read from a JSON document.

    >>> arch = DeviceArch.from_json('{"device": {"type": "cpu"}, "cpu": {"isa": "avx2", "coers": 4}}')
    >>> arch.cpu.isa, [warning.message for warning in arch.warnings]
    ('avx2', ["the key 'coers' is unknown"])
    """

    schema_url: str | None = Field(
        default=None, alias="$schema", description="For editors: where the schema of this file is."
    )
    device: DeviceFacts = Field(description="What kind of device it is, and what it is called.")
    limits: Limits = Field(default=Limits(), description="What its interface allows.")
    features: Features = Field(default=Features(), description="What it can do.")
    numerics: Rounding = Field(default=Rounding(), description="How it rounds.")
    matrix: Annotated[tuple[MatrixShape, ...], Field(strict=False, max_length=1000)] = Field(
        default=(), description="What its matrix units compute; nothing if there are none."
    )
    memory: Memory = Field(default=Memory(), description="Its memories: how much there is, and how fast.")
    preferences: Preferences = Field(
        default=Preferences(), description="Preferences where the synthesizer has a choice."
    )
    cpu: Cpu = Field(default=Cpu(), description="The processor, of devices of type `cpu`.")
    fpga: Fpga = Field(default=Fpga(), description="What circuits are made of, in devices of type `fpga`.")
    toolchain: Toolchain = Field(default=Toolchain(), description="How generated code is compiled.")
    _document: str = PrivateAttr("<device>")

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any], *, name: str = "<device>") -> Self:
        """The description in a JSON text or a parsed document; ``name`` identifies it in errors."""
        value = dict(document) if isinstance(document, Mapping) else parsed_document(document, name)
        _require_writable(value, name)
        try:
            found = cls.model_validate(value)
        except ValidationError as error:
            raise DeviceError(*validation_problems(error, value, name, Code.BAD_DEVICE)) from error
        found._document = name
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The description in a file."""
        data = document_bytes(path, "device description", Code.BAD_DEVICE, MAX_DEVICE_BYTES)
        return cls.from_json(data, name=os.fspath(path))

    @classmethod
    def named(cls, name: str) -> Self:
        """One of the shipped descriptions.

        >>> DeviceArch.named("cortex-m4").features.hosted
        False
        """
        if name not in device_names():
            advice = (
                nearest(name, device_names()) or f"there are {', '.join(device_names())}; a FILE.json describes another"
            )
            raise DeviceError(Diagnostic(Code.BAD_DEVICE, f"there is no device {name!r}", None, advice))
        return cls.load(FOLDER / f"{name}.json")

    @classmethod
    def called(cls, name: str) -> Self:
        """A device by the name of a shipped description, ``host`` for this machine, or the path of a ``.json`` file.

        >>> DeviceArch.called("host").device.type
        'cpu'
        """
        if name.lower().endswith(".json"):
            return cls.load(name)
        return cls.detect() if name == HOST else cls.named(name)

    @classmethod
    def detect(cls, api: str = "c") -> Self:
        """The description of this machine: instruction set, cores, caches, memory and compiler.

        With the api ``vulkan`` or ``cuda``, the description of its GPU, which is queried and tested; error E806 says
        what is missing for that.
        """
        from openinfer.synth.devices.cuda import cuda_document
        from openinfer.synth.devices.host import host_document
        from openinfer.synth.devices.vulkan import vulkan_document

        ways = {"c": host_document, "vulkan": vulkan_document, "cuda": cuda_document}
        if api not in ways:
            advice = nearest(api, ways) or f"devices are found by {', '.join(ways)}"
            message = f"nothing finds devices by {api[:80]!r} on this machine"
            raise DeviceError(Diagnostic(Code.BAD_DEVICE, message, None, advice))
        return cls.from_json(ways[api](), name="<this machine>")

    def to_json(self) -> dict[str, Any]:
        """The document as given, including unknown keys, and nothing else."""
        found: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return found

    def to_text(self) -> str:
        """The document as the text of a file."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    def __eq__(self, other: object) -> bool:
        """Whether two documents have the same content, wherever they were read from."""
        return self.to_json() == other.to_json() if isinstance(other, DeviceArch) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_text())

    def __repr__(self) -> str:
        what = f"{self.cpu.isa}, {counted(self.cpu.cores or 1, 'core')}" if self.device.type == "cpu" else self.api
        return f"<DeviceArch {self.title!r}: {what}>"

    @property
    def title(self) -> str:
        """The device's name in one line."""
        return self.device.name or " ".join(filter(None, (self.device.type, self.api)))

    @property
    def api(self) -> str | None:
        """The programming interface that code is generated for."""
        return self.device.api or ("c" if self.device.type == "cpu" else None)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """A warning for every unknown key; such keys are kept and have no effect."""
        return tuple(
            Diagnostic(
                Code.UNKNOWN_DEVICE_KEY, f"the key {key!r:.80} is unknown", DocumentSpan(path, self._document), advice
            )
            for path, key, advice in _unknown(self, "")
        )


# --- reading ----------------------------------------------------------------------------------------------------------


def _require_writable(value: Any, name: str) -> None:
    """Reject what could not be written to a file again: unknown keys are kept with any values."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DeviceError(_problem("half of a surrogate pair is not text", name)) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise DeviceError(_problem(f"this is not a JSON document: {error}", name)) from error


def _problem(message: str, name: str) -> Diagnostic:
    return Diagnostic(Code.BAD_DEVICE, message, DocumentSpan("", name))


def _unknown(section: DeviceSection, path: str) -> Iterator[tuple[str, str, str | None]]:
    known = [field.alias or key for key, field in type(section).model_fields.items()]
    for key in section.model_extra or {}:
        yield f"{path}/{key}", key, nearest(key, known)
    for name in type(section).model_fields:
        value = getattr(section, name)
        parts = value if isinstance(value, tuple) else (value,)
        for number, part in enumerate(parts):
            if isinstance(part, DeviceSection):
                yield from _unknown(part, f"{path}/{name}" + (f"/{number}" if part is not value else ""))


@cache
def device_names() -> tuple[str, ...]:
    """The names of the shipped descriptions.

    >>> device_names()[:3]
    ('aarch64-neon', 'ada_mock', 'cortex-m4')
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "schema"))


def device_schema() -> dict[str, Any]:
    """The JSON Schema of device descriptions, as published in ``devices/schema.json``."""
    schema = DeviceArch.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "OpenInfer device description",
        "description": "What a device is, has and allows. Unknown keys are kept and warned about.",
    }


# --- short device names -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceSpec:
    """A kind of device, named in one line.

    >>> DeviceSpec.GPU().api("vulkan").arch().device.api
    'vulkan'
    >>> DeviceSpec.CPU().isa("avx2").arch().cpu.vector_bits
    256
    """

    type: str
    _api: str | None = None
    _isa: str | None = None

    @classmethod
    def CPU(cls) -> Self:  # noqa: N802  (the documented name)
        """The processor of this machine, unless ``isa`` selects another."""
        return cls("cpu")

    @classmethod
    def GPU(cls) -> Self:  # noqa: N802  (the documented name)
        """A GPU; ``api`` selects how it is programmed."""
        return cls("gpu")

    def api(self, name: str) -> Self:
        """The same device, programmed through this interface."""
        return replace(self, _api=name)

    def isa(self, name: str) -> Self:
        """The same processor, with this instruction set."""
        return replace(self, _isa=name)

    def arch(self) -> DeviceArch:
        """The full description."""
        if self.type == "cpu" and self._isa is None and self._api in (None, "c"):
            return DeviceArch.detect()
        described: dict[str, Any] = {"device": {"type": self.type, "api": self._api}}
        if self._isa is not None:
            shipped = (DeviceArch.named(name) for name in device_names())
            same = next((one for one in shipped if one.device.type == "cpu" and one.cpu.isa == self._isa), None)
            if same is not None:
                return same
            described["cpu"] = {"isa": self._isa}
        elif self.type == "gpu" and self._api in device_names():
            return DeviceArch.named(self._api)
        return DeviceArch.from_json(described)


def arch_of(device: Device | DeviceSpec | DeviceArch | str) -> DeviceArch:
    """The description of anything that names a device; text is a kind of device, or a name for ``DeviceArch.called``.

    >>> arch_of("generic").cpu.isa, arch_of(Device.VULKAN).device.type, arch_of("host") == arch_of(Device.CPU)
    ('generic', 'gpu', True)
    """
    if isinstance(device, DeviceArch):
        return device
    if isinstance(device, DeviceSpec):
        return device.arch()
    if device == Device.CPU:
        return DeviceArch.detect()
    if device in tuple(Device):
        return DeviceSpec.GPU().api(str(device)).arch()
    return DeviceArch.called(device)
