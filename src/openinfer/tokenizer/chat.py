"""Chat formats: how conversations are written for a model. Known formats are recognised by their marks.

Files carry a template that is a program. It is never run: the output of the common templates is known, and others are
refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from openinfer.errors import Code, Diagnostic, ImportingError
from openinfer.tokenizer.encoding import Tokenizer

Role = Literal["system", "user", "assistant"]
Part = tuple[str, bool]
"""A text, and whether it is markup, in which the names of control tokens stand for the tokens."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True)
class ChatTurn:
    """The text around the words of a role."""

    before: str
    after: str


@dataclass(frozen=True)
class ChatFormat:
    """A chat format. A system text without a turn of its own goes into the first turn of the user."""

    name: str
    user: ChatTurn
    assistant: ChatTurn
    system: ChatTurn | None
    joins: ChatTurn = ChatTurn("", "\n\n")
    """The text around a system text in the first turn of the user."""

    def turn(self, role: Role) -> ChatTurn:
        """The text around the words of a role; for a system text without its own turn, that within the user's turn."""
        return {"user": self.user, "assistant": self.assistant, "system": self.system or self.joins}[role]

    def parts(self, messages: Sequence[Message]) -> Iterator[Part]:
        """A conversation as texts and markup, up to the start of the model's next answer."""
        waiting: str | None = None
        for one in messages:
            if one.role == "system" and self.system is None:
                waiting = one.text
                continue
            turn = self.turn(one.role)
            yield turn.before, True
            if waiting is not None and one.role == "user":
                yield from ((self.joins.before, True), (waiting, False), (self.joins.after, True))
                waiting = None
            yield one.text, False
            yield turn.after, True
        yield self.assistant.before, True

    def encode(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, with the begin token if the model adds it."""
        one = tokenizer.vocabulary
        begin = [one.begin] if one.adds_begin and one.begin is not None else []
        return [*begin, *tokenizer.encode_parts(self.parts(messages))]


def _marked(name: str, role: str, end: str) -> ChatFormat:
    """A format in which every turn names its role: ``{}`` in ``role``."""
    turns = {one: ChatTurn(role.format(one), end) for one in ("user", "assistant", "system")}
    return ChatFormat(name, turns["user"], turns["assistant"], turns["system"])


_CHATML = _marked("chatml", "<|im_start|>{}\n", "<|im_end|>\n")
_LLAMA3 = _marked("llama-3", "<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>")
_PHI3 = _marked("phi-3", "<|{}|>\n", "<|end|>\n")
_ZEPHYR = _marked("zephyr", "<|{}|>\n", "</s>\n")
_LLAMA2 = ChatFormat(
    "llama-2", ChatTurn("[INST] ", " [/INST]"), ChatTurn(" ", " </s><s>"), None, ChatTurn("<<SYS>>\n", "\n<</SYS>>\n\n")
)
_GEMMA = ChatFormat(
    "gemma",
    ChatTurn("<start_of_turn>user\n", "<end_of_turn>\n"),
    ChatTurn("<start_of_turn>model\n", "<end_of_turn>\n"),
    None,
)
_MARKS = (
    (("<|im_start|>",), _CHATML),
    (("<|start_header_id|>", "<|end_header_id|>"), _LLAMA3),
    (("<start_of_turn>",), _GEMMA),
    (("[INST]", "<<SYS>>"), _LLAMA2),
    (("<|assistant|>", "<|end|>"), _PHI3),
    (("<|assistant|>", "eos_token"), _ZEPHYR),
)
CHAT_FORMATS = {one.name: one for _, one in _MARKS}
"""The known formats by name."""


def chat_format(template: str) -> ChatFormat:
    """The format that a template produces, recognised by its marks; the template itself is never run.

    >>> chat_format("{% for m in messages %}<|im_start|>{{ m.role }}...").name
    'chatml'
    """
    found = next((form for marks, form in _MARKS if all(one in template for one in marks)), None)
    if found is None:
        message = "the chat template of the model has no known format, and templates are not run"
        advice = (
            f"known formats are {', '.join(CHAT_FORMATS)}; use one from CHAT_FORMATS if the model was trained with it"
        )
        raise ImportingError(Diagnostic(Code.UNSUPPORTED_NODE, message, help=advice))
    return found
