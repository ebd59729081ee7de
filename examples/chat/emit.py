"""Write the C program: both generated projects, the tokenizer, the form of conversations, chat.c and a Makefile."""

from pathlib import Path

from examples.chat.example import HERE, ChatModel

from openinfer import ModelLoader
from openinfer.tokenizer import c_files, chat_header

MAKEFILE = """# Two generated libraries, a tokenizer, and one program that talks.
CFLAGS ?= -O3 -Wall -Wextra
LIBRARIES = prefill/build/libprefill.a decode/build/libdecode.a

chat: chat.c tokenizer.c tokenizer.h tokenizer_tables.h chat_format.h chat_sizes.h $(LIBRARIES)
	$(CC) -std=c11 $(CFLAGS) -pthread -Iprefill/include -Idecode/include -o $@ chat.c tokenizer.c $(LIBRARIES) -lm

$(LIBRARIES):
	$(MAKE) -C $(firstword $(subst /, ,$@))
"""


def emit(model: ChatModel, folder: Path, system: str, device: str = "cpu", threads: int | None = None) -> None:
    """Write everything that the program is built of into a folder."""
    with ModelLoader.open(model.imported.model) as weights:
        for plan in model.plans(weights, device, threads):
            plan.emit(folder / plan.project.name)
    tokenizer = model.tokenizer
    for name, data in c_files(tokenizer).items():
        (folder / name).write_bytes(data)
    (folder / "chat_format.h").write_text(chat_header(tokenizer, model.form))
    quoted = system.replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        f"#define CHAT_CONTEXT {model.context} /* tokens of a conversation */",
        f"#define CHAT_PROMPT {model.prompt} /* tokens that are read at once */",
        f"#define CHAT_VOCABULARY {len(tokenizer.vocabulary.pieces)}",
        f'#define CHAT_DEFAULT_SYSTEM "{quoted}"',
    ]
    (folder / "chat_sizes.h").write_text("\n".join(lines) + "\n")
    (folder / "chat.c").write_text((HERE / "chat.c").read_text())
    (folder / "Makefile").write_text(MAKEFILE)
