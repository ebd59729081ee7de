"""Make ``inference.desc`` from ``inference.proto``: ``python -m openinfer.serve.describe``, which needs grpcio-tools.

Unlike generated Python, a descriptor file is the same for every version of protobuf.
"""

from pathlib import Path

PROTO = Path(__file__).with_name("inference.proto")
DESCRIPTION = PROTO.with_suffix(".desc")


def describe(target: Path = DESCRIPTION) -> None:
    """Write the descriptors of the messages."""
    from grpc_tools import protoc

    status = protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={target}", PROTO.name])
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    describe()
