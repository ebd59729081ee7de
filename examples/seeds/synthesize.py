"""Source code from a graph. ``python -m examples.seeds.synthesize``."""

from examples.seeds.classic import CLASSIC
from examples.seeds.model import BUILD, opened

from openinfer import Device, Synthesizer


def main() -> None:
    # Device.CPU is this machine; DeviceSpec.CPU().isa("avx2") or a device file names another.
    plan = Synthesizer(Device.CPU).synthesize(opened(), CLASSIC)
    plan.emit(BUILD / "out")
    print(f"the project is in {BUILD / 'out'}; a step works in {plan.memory.peak} bytes")


if __name__ == "__main__":
    main()
