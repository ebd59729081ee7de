"""A graph as JSON, the same bytes each time. ``python -m examples.seeds.serialize``."""

import json

from examples.seeds.minimal import MINIMAL
from examples.seeds.model import BUILD


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "minimal-graph.json").write_text(json.dumps(MINIMAL.to_json(), indent=2, sort_keys=True))
    print(f"the graph is in {BUILD / 'minimal-graph.json'}")


if __name__ == "__main__":
    main()
