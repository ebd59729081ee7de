"""Text to the tokens of a language model and back, and the texts that chats are made of.

Knows nothing of files: what reads a vocabulary checks it, and hands on a ``Vocabulary``.
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
