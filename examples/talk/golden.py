"""What PyTorch makes of the packed model: ``python -m examples.talk.golden`` writes ``golden.json`` for the test."""

import json
from typing import Any

import numpy as np
import torch
from examples.talk.example import HERE, MODEL, tokenizer_of
from examples.talk.train import Decoder

from openinfer import ModelLoader

PROMPTS = ("The for statement", "Return a list of", "class", "")
COUNT = 24


def real(model: ModelLoader, name: str) -> torch.Tensor:
    """A tensor of the model as real numbers."""
    stored, quant = model.load(name).to_numpy(), model.tensors[name].quant
    return torch.from_numpy(np.array(stored if quant is None else quant.dequantize(stored)))


def unpacked(model: ModelLoader) -> Decoder:
    """The decoder of the training script with the packed weights."""
    decoder = Decoder()
    names = list(decoder.state_dict())
    decoder.load_state_dict({name: real(model, name.removesuffix(".weight")) for name in names})
    return decoder.eval()


@torch.no_grad()
def greedy(decoder: Decoder, tokens: list[int]) -> dict[str, Any]:
    """The likeliest tokens after some others, computed anew for each, and some logits of the first."""
    prompt, first = len(tokens), decoder(torch.tensor([tokens]))[0, -1]
    while len(tokens) < prompt + COUNT and (len(tokens) == prompt or tokens[-1] != 0):
        tokens = [*tokens, int(decoder(torch.tensor([tokens]))[0, -1].argmax())]
    return {"tokens": tokens[prompt:], "logits": [round(float(one), 4) for one in first[:8]]}


def main() -> None:
    with ModelLoader.open(MODEL) as model:
        decoder, tokenizer = unpacked(model), tokenizer_of(model)
        found = {prompt: greedy(decoder, [0, *tokenizer.encode(prompt)]) for prompt in PROMPTS}
    lines = [f" {json.dumps(prompt)}: {json.dumps(wanted)}" for prompt, wanted in found.items()]
    (HERE / "golden.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
