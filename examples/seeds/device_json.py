"""A device from a JSON file, so that every machine makes the same code. ``python -m examples.seeds.device_json``."""

from pathlib import Path

from examples.seeds.classic import CLASSIC
from examples.seeds.model import BUILD, opened

from openinfer import DeviceArch, Synthesizer

DEVICES = Path(__file__).parents[2] / "devices"


def main() -> None:
    arch = DeviceArch.load(DEVICES / "generic.json")
    plan = Synthesizer.from_arch(arch).synthesize(opened(), CLASSIC)
    plan.emit(BUILD / "out_device")
    print(f"{arch.title}: the project is in {BUILD / 'out_device'}")

    mock = DeviceArch.load(DEVICES / "ada_mock.json")
    shared = mock.limits.max_shared_memory_bytes
    print(f"{mock.title}: {mock.device.type}, {mock.device.api}, {shared} bytes of shared memory")
    plan = Synthesizer.from_arch(mock).synthesize(opened(), CLASSIC)
    plan.emit(BUILD / "out_vulkan")
    print(f"its shaders are in {BUILD / 'out_vulkan' / 'shaders'}")


if __name__ == "__main__":
    main()
