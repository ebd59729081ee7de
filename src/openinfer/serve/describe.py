"""Make ``inference.desc`` of ``inference.proto``: ``python -m openinfer.serve.describe``, with grpcio-tools installed.

What it makes is the same for every version of protobuf, which generated Python is not.
"""

from pathlib import Path

PROTO = Path(__file__).with_name("inference.proto")
DESCRIPTION = PROTO.with_suffix(".desc")


def describe(target: Path = DESCRIPTION) -> None:
    """Write the description of the messages."""
    from grpc_tools import protoc

    status = protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={target}", PROTO.name])
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    describe()
