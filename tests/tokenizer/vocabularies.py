"""Small vocabularies for tests: byte-level pieces that ``tokenizers`` learns of some text, and pieces with scores."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.importing.gguf_files import Tiny, gguf_bytes
from tokenizers import Tokenizer as OtherTokenizer
from tokenizers import models, pre_tokenizers, trainers

ROOT = Path(__file__).parents[2]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = [
    "Hello, world! It's 2024; we'll see: 3.14159 x 10^-7",
    "\t\tdef f(x):\n\t\t    return  x ** 2  # so\n\n\n",
    "   leading and trailing   ",
    "\r\n\r\n a \r b \n  ",
    "'S'Ll 'VE 'd'T'RE'm",
    "日本語のテキスト、ですか\uff1f 한국어 텍스트",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200d\u200b\ufeff",
    "العربية ١٢٣ हिन्दी १२३ ½ ² Ⅷ ①②③ \U0001d7d8\U0001d7d9",
    "\x00\x01\x02\x7f\x80\x85\xa0\u2028\u2029\u3000",
    "<|im_start|>user\n<|im_end|> </s><s>",
    "a" * 300 + "ab" * 90 + "=-" * 50,
    " " * 70 + "\n" * 40 + "\t" * 9,
    "\U0010ffff\ue000\ud7ff ǅ ﬁ ß \u017f \u0130 \u0131",
]


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of letters, digits, spaces, signs and characters of any script."""
    rng = random.Random(seed)
    signs = "abcdefghi ABCDEZ 0123456789 \n\t\r'.,;:!?-_=+*/\\()[]{}<>|&^%$#@~`\""
    scripts = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x4FF), (0x590, 0x97F), (0x2000, 0x218F), (0x3000, 0x30FF),
               (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF), (0x10000, 0x10FFFF)]  # fmt: skip
    found = []
    for _ in range(count):
        script, weights = rng.choice(scripts), rng.choice([(9, 0, 1), (1, 6, 2), (2, 1, 6)])
        kinds = rng.choices(("sign", "script", "space"), weights, k=rng.randint(1, 60))
        picked = {"sign": signs, "space": "  \n\t1a"}
        found.append("".join(rng.choice(picked.get(one) or chr(rng.randint(*script))) for one in kinds))
    return TEXTS + found


def learned_pieces(size: int = 700) -> tuple[list[str], list[str]]:
    """Byte-level pieces and merges, learned of a page of documentation."""
    learner = OtherTokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=CONTROL
    )
    learner.train_from_iterator([(ROOT / "docs" / "importing.md").read_text(), *TEXTS], trainer)
    state = json.loads(learner.to_str())["model"]
    pieces = sorted(state["vocab"], key=state["vocab"].get)
    return pieces, [" ".join(pair) for pair in state["merges"]]


def byte_level(split: str = "smollm", size: int = 700) -> dict[str, Any]:
    """The metadata of a tokenizer with byte-level pieces."""
    pieces, merges = learned_pieces(size)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [3 if one in CONTROL else 1 for one in pieces],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}{{ '<|im_start|>' + m['role'] }}{% endfor %}",
    }


def scored(*, has_space_before: bool = True) -> dict[str, Any]:
    """The metadata of a tokenizer with scores: characters, some words of them, and bytes."""
    words = ["▁t", "▁th", "▁the", "he", "in", "▁in", "er", "re", "▁a", "nd", "▁and", "and", "ing", "▁▁", "▁▁▁▁", "日本"]
    letters = [*"▁abcdefghijklmnopqrstuvwxyzABC.,!?<>/", "日"]
    bytes_ = [f"<0x{one:02X}>" for one in range(256)]
    pieces = ["<unk>", "<s>", "</s>", *bytes_, *words, *letters, "[tool]"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(words) + len(letters)), 4]
    scores = [0.0] * 259 + [-float(at % 7) for at in range(len(words))] + [-100.0] * len(letters) + [0.0]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": has_space_before,
    }


def write(path: Path, metadata: Mapping[str, Any], tiny: Tiny | None = None) -> Path:
    """A file that has only a tokenizer, or a tiny decoder besides."""
    if tiny is None:
        path.write_bytes(gguf_bytes(metadata, {}))
    else:
        Tiny(**{**vars(tiny), "extra": {**tiny.extra, **metadata}}).write(path)
    return path
