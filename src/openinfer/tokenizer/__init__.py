"""Turns text into the tokens of a language model and back, and formats chats as text.

Knows nothing of files: whoever reads a vocabulary checks it and passes it on as a ``Vocabulary``.
"""

from openinfer.tokenizer.c_source import c_files, chat_header
from openinfer.tokenizer.chat import CHAT_FORMATS, ChatFormat, Message, chat_format
from openinfer.tokenizer.encoding import TextStream, Tokenizer
from openinfer.tokenizer.vocabulary import PieceKind, Vocabulary

__all__ = [
    "CHAT_FORMATS",
    "ChatFormat",
    "Message",
    "PieceKind",
    "TextStream",
    "Tokenizer",
    "Vocabulary",
    "c_files",
    "chat_format",
    "chat_header",
]
