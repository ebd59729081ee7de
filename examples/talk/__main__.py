"""``python -m examples.talk "The for statement"``: the model goes on with a text, in the simulator or as compiled C."""

import argparse

from examples.talk.example import MODEL, Talker

from openinfer import ModelLoader


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.talk", description="Let the model go on with a text.")
    parser.add_argument("prompt", nargs="?", default="The for statement", help="what to go on with")
    parser.add_argument("-e", "--engine", choices=["simulator", "c"], default="c")
    parser.add_argument(
        "-d", "--device", default="cpu", help="where it runs: cpu, vulkan, or a device such as lavapipe"
    )
    parser.add_argument("-n", "--tokens", type=int, default=200, help="how many tokens at most")
    parser.add_argument("-t", "--temperature", type=float, default=0.7, help="0 takes the likeliest token")
    parser.add_argument("-s", "--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    with ModelLoader.open(MODEL) as model:
        talker = Talker(model, given.engine, given.temperature, given.seed, given.device)
        print(given.prompt, end="", flush=True)
        for token in talker.tokens(given.prompt, given.tokens):
            print(talker.tokenizer.pieces[token], end="", flush=True)
    print()


if __name__ == "__main__":
    main()
