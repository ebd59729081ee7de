"""The configuration of Neovim that the documentation gives, in Neovim without a window: ``make test-studio``."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

TEXT = "dynamic { x: f32[4]; }\nvolatile { y: f32[4]; }\nblock entry { op rleu(x) >> y; return y; }\n"
ASKED = """
vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 50)
local said = {}
for _, one in ipairs(vim.diagnostic.get(0)) do table.insert(said, one.code .. " " .. one.message) end
local params = vim.lsp.util.make_range_params()
params.range = { start = { line = 2, character = 14 }, ["end"] = { line = 2, character = 30 } }
params.context = { diagnostics = {} }
for _, answer in pairs(vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 60000) or {}) do
  for _, action in ipairs(answer.result or {}) do table.insert(said, action.title) end
end
vim.fn.writefile(vim.split(table.concat(said, "\\n"), "\\n"), "said.txt")
"""


def documented() -> str:
    """The configuration for versions as old as Debian's."""
    found: list[str] = re.findall(r"^```lua\n(.*?)^```$", Path("docs/editor.md").read_text(), re.MULTILINE | re.DOTALL)
    return next(one for one in found if "start_client" in one)


def test_neovim_shows_problems_and_offers_changes(tmp_path: Path) -> None:
    program = which("nvim")
    assert program is not None, "this test needs Neovim: apt-get install neovim"
    for name, text in (("init.lua", documented()), ("ask.lua", ASKED), ("g.oig", TEXT)):
        (tmp_path / name).write_text(text)
    command = [program, "--headless", "-u", "init.lua", "g.oig", "-c", "luafile ask.lua", "-c", "qa!"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": path}, timeout=180, check=True, capture_output=True
    )
    said = (tmp_path / "said.txt").read_text().splitlines()
    assert said[0] == "E206 there is no op 'rleu'"
    assert "change 'rleu' to 'relu'" in said
