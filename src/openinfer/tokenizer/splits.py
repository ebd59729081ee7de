"""How models with byte-level pieces split text into words, by the names that GGUF files use."""

from dataclasses import dataclass
from functools import cache

from openinfer.tokenizer.patterns import SplitPattern, split_pattern

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN35 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"


@dataclass(frozen=True)
class SplitRule:
    """Patterns that split text in sequence, each splitting what the one before has left."""

    patterns: tuple[str, ...]
    takes_whole_words: bool = False
    """Whether a word that is a piece is taken as it is, without merging."""
    adds_begin: bool = False
    """Whether texts begin with a begin token, unless the file says otherwise."""


_RULES = {
    SplitRule((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9]{3}")): "default",
    SplitRule((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9]{3}")): "falcon",
    SplitRule((_GPT2,)): "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4",
    SplitRule((r"\p{N}", _GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    SplitRule((_LLAMA3,)): "dbrx smaug-bpe chatglm-bpe",
    SplitRule((_LLAMA3,), takes_whole_words=True): "glm4 glm5",
    SplitRule((_LLAMA3,), takes_whole_words=True, adds_begin=True): (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    ),
    SplitRule((_QWEN2,)): "qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open",
    SplitRule((_QWEN35,)): "qwen35",
}
SPLIT_RULES = {name: rule for rule, names in _RULES.items() for name in names.split()}
"""The rules by the names that files use."""


@cache
def patterns_of(rule: SplitRule) -> tuple[SplitPattern, ...]:
    """The patterns of a rule, parsed."""
    return tuple(split_pattern(one) for one in rule.patterns)
