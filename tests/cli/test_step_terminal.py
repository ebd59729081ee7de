"""``openinfer step`` in a real terminal, and fed from a pipe."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pexpect
import pytest
from tests.cli.waiting import wait_for_work
from typer.testing import CliRunner

from openinfer import OpenInferError, graph
from openinfer.cli.app import app
from openinfer.oinf import save_file

SOURCE = """\
dynamic { x: f32[2]; }
volatile { h: f32[2]; }
persistent { count: i32; }

block entry {
    transfer x >> h;
    loop layers (l in 0..3) {  // a long comment that is much wider than a narrow window has room for
        op add(h, h) >> h;
    }
    branch more;
    cache.increment count;
    return h;
}

block more {
    op neg(h) >> h;
    return;
}
"""
ENDLESS = """\
volatile { y: f64; one: f64 @init(1); }
persistent { n: i64; }
block entry {
    cache.increment n;
    loop forever (i in 0..1000000000000) { op add(y, one) >> y; }
    loop empty (i in 0..1000000000000) { }
    return y;
}
"""
PROMPT = r"\(step\) "
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
Start = Callable[..., "Terminal"]


class Terminal:
    """The command in a terminal, and what a person would see of it."""

    def __init__(self, arguments: list[str], size: tuple[int, int], **environment: str) -> None:
        clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "openinfer", "step", *arguments],
            env=clean | {"TERM": "xterm", "INPUTRC": "/dev/null"} | environment,
            dimensions=size,
            encoding="utf-8",
            timeout=30,
        )
        self.welcome = self.answer()

    def answer(self) -> str:
        """What stands above the next prompt."""
        self.child.expect(PROMPT)
        return str(self.child.before)

    def say(self, *commands: str) -> str:
        """The answer to the last of some commands, without colours."""
        found = ""
        for command in commands:
            self.child.sendline(command)
            found = self.answer()
        return ESCAPES.sub("", found).replace("\r\n", "\n").partition("\n")[2]

    def end(self) -> int:
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus)

    def stop(self) -> None:
        """However busy the machine is: what closes it by itself waits for tenths of a second only."""
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
            self.child.wait()
        self.child.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "g.oig").write_text(SOURCE)
    (tmp_path / "endless.oig").write_text(ENDLESS)
    return tmp_path / "g.oig"


@pytest.fixture
def start(source: Path) -> Iterator[Start]:
    with ExitStack() as started:

        def make(
            *arguments: str, path: Path = source, size: tuple[int, int] = (40, 120), **environment: str
        ) -> Terminal:
            given = arguments or ("--input", "x=[1, 2]")
            terminal = Terminal([str(path), *given], size, **environment)
            started.callback(terminal.stop)
            return terminal

        yield make


def test_a_conversation(start: Start) -> None:
    terminal = start()
    assert "->" in terminal.welcome
    assert "transfer x >> h;" in terminal.welcome
    assert terminal.say("next").startswith("h: f32[2] [1, 2]\n")
    assert "l=0 in ..3" in terminal.say("step")
    assert terminal.say("watch h") == "watch h: f32[2] [1, 2]  new\n"
    assert "watch h: f32[2] [2, 4]  changed: 2 of 2, by at most 2" in terminal.say("step")
    assert "l=2 in ..3" in terminal.say("")
    assert terminal.say("print h[1]") == "h[1]: f32, volatile\n  8\n"
    assert terminal.say("edit h[0] = 1.5") == "h[0]: f32 1.5\n"
    assert "breakpoint 1: op neg, 1 node" in terminal.say("break op neg")
    assert "breakpoint 1" in terminal.say("continue")
    assert "block more: line 16, node 6, op neg(h) >> h" in terminal.say("where")
    assert "op add(h, h) >> h" in terminal.say("history")
    assert "there is no command 'dance'" in terminal.say("dance")
    answer = terminal.say("continue")
    assert "step 1 of 1 is done" in answer
    assert "h: f32[2] [-3, -16]" in answer
    terminal.child.sendline("quit")
    assert terminal.end() == 0


def test_the_arrow_keys_bring_commands_back_and_tab_completes(start: Start) -> None:
    terminal = start()
    terminal.say("print x", "next")
    terminal.child.send("\x1b[A\x1b[A\r")
    assert "x: f32[2], dynamic" in ESCAPES.sub("", terminal.answer())
    terminal.child.send("whe\t\r")
    assert "step 1 of 1" in terminal.answer()
    terminal.child.send("print cou\t\r")
    assert "count: i32, persistent" in ESCAPES.sub("", terminal.answer())


def test_control_c_halts_a_run_and_leaves_the_step_suspended(start: Start, source: Path) -> None:
    terminal = start("--steps", "1", path=source.with_name("endless.oig"))
    terminal.child.sendline("continue")
    wait_for_work(terminal.child.pid)
    terminal.child.sendintr()
    answer = ESCAPES.sub("", terminal.answer())
    assert "interrupted" in answer
    assert "has not happened" not in answer
    reached = float(terminal.say("print y").splitlines()[1])
    assert reached > 10
    assert terminal.say("next").startswith("y: f64 ")
    assert float(terminal.say("print y").splitlines()[1]) == reached + 1
    assert terminal.say("print n").splitlines()[1] == "  1"


def test_a_second_control_c_gives_the_step_up(start: Start, source: Path) -> None:
    source.write_text(ENDLESS.replace("op add(y, one) >> y;", ""))
    terminal = start("--steps", "1")
    terminal.child.sendline("continue")
    wait_for_work(terminal.child.pid)
    terminal.child.sendintr()
    wait_for_work(terminal.child.pid, 0.3)
    terminal.child.sendintr()
    assert "interrupted in the middle of a node: step 1 of 1 has not happened" in ESCAPES.sub("", terminal.answer())
    assert terminal.say("print n").splitlines()[1] == "  0"
    assert terminal.say("next").startswith("n: i64 1")


def test_control_c_at_the_prompt_discards_the_line(start: Start) -> None:
    terminal = start()
    terminal.child.send("quit")
    terminal.child.expect("quit")
    time.sleep(0.2)
    terminal.child.sendintr()
    assert "(quit or Ctrl-D leaves)" in terminal.answer()
    assert terminal.say("next").startswith("h: f32[2] [1, 2]\n")


def test_control_d_leaves(start: Start) -> None:
    terminal = start()
    terminal.say("next")
    terminal.child.sendeof()
    assert terminal.end() == 0


def test_a_narrow_window_cuts_lines_and_a_wider_one_does_not(start: Start) -> None:
    terminal = start(size=(24, 40))
    narrow = terminal.say("list").splitlines()
    assert max(len(line) for line in narrow) == 40
    assert any(line.endswith("...") for line in narrow)
    terminal.child.setwinsize(24, 200)
    assert not any(line.endswith("...") for line in terminal.say("list 1").splitlines())


def test_colours_are_for_terminals_that_want_them(start: Start) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*m")
    assert coloured.search(start().welcome)
    assert not coloured.search(start(NO_COLOR="1").welcome)


# --- pipes ------------------------------------------------------------------------------------------------------------


def piped(commands: str, *arguments: str) -> "tuple[int, str, str]":
    """Exit status, output and errors of the command when it is fed with commands, in this process."""
    done = CliRunner().invoke(app, ["step", *arguments], input=commands)
    if isinstance(done.exception, OpenInferError):
        return 1, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def process(commands: bytes, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "openinfer", "step", *arguments]
    return subprocess.run(command, input=commands, capture_output=True, check=False, env=os.environ | environment)


def test_commands_from_a_pipe_are_shown_with_their_answers(source: Path) -> None:
    done = process(b"# a comment\nnext\nprint h\n", str(source), "-i", "x=[1, 2]")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"(step) print h\nh: f32[2], volatile\n  [1, 2]\n  min 1, max 2, mean 1.5, nan 0\n")
    assert b"\x1b" not in done.stdout
    assert b"# a comment" not in done.stdout


def test_a_script_with_a_failing_command_exits_1_after_the_rest(source: Path) -> None:
    status, output, _ = piped("nonsense\nprint x\n", str(source), "-i", "x=[1, 2]")
    assert status == 1
    assert "x: f32[2]" in output
    assert piped("quit\nnonsense\n", str(source), "-i", "x=[1, 2]")[0] == 0


def test_an_interrupted_script_ends_with_the_status_of_interrupted_commands(source: Path) -> None:
    command = [sys.executable, "-m", "openinfer", "step", str(source.with_name("endless.oig"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("continue\nprint y\n")
        child.stdin.close()
        while "(step) continue" not in child.stdout.readline():
            pass
        wait_for_work(child.pid)
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait(30) == 130
    assert "interrupted" in rest
    assert "print y" not in rest


def test_what_is_no_text_or_cannot_be_spelled_does_not_end_a_session(source: Path) -> None:
    source.write_text(SOURCE.replace("a long comment", "caf\u00e9"), encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = process(b"\xff\xfe\nnext\n", str(source), "-i", "x=[1, 2]", **plain)
    assert b"there is no command" in done.stdout
    assert b"h: f32[2] [1, 2]" in done.stdout
    assert b"caf\\xe9" in done.stdout


def test_a_json_graph_is_shown_as_canonical_text(source: Path) -> None:
    document = source.with_suffix(".json")
    document.write_text(json.dumps(graph(SOURCE).to_json()))
    _, output, _ = piped("break op neg\ncontinue\nlist\n", str(document), "-i", "x=[1, 2]")
    assert f"{document} (canonical text): 8 nodes" in output
    assert re.search(r"-> \d+ \|     op neg\(h\) >> h;", output)


def test_steps_inputs_and_state_are_those_of_run(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, 4]], np.float32))
    _, output, _ = piped("finish\nprint x\nfinish\nprint x\n", str(source), "-i", f"x=@{tmp_path / 'x.npy'}[]")
    assert "step 2 of 2 is done" in output
    assert "  [1, 2]\n" in output
    assert "  [3, 4]\n" in output
    state = str(tmp_path / "s.oinf")
    assert CliRunner().invoke(app, ["run", str(source), "-i", "x=ones", "--save-state", state]).exit_code == 0
    _, output, _ = piped("print count\nfinish\nprint count\n", str(source), "-i", "x=ones", "--load-state", state)
    assert [line for line in output.splitlines() if line in ("  1", "  2")] == ["  1", "  2"]


def test_values_of_edits_take_the_forms_of_inputs(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.array([5, 6], np.float32))
    np.save(tmp_path / "wide.npy", np.array([5, 6, 7], np.float32))
    edits = [f"@{tmp_path / 'h.npy'}", "arange", "ones", f"@{tmp_path / 'wide.npy'}", "@missing.npy", "randn:x"]
    commands = "next\n" + "".join(f"edit h = {text}\n" for text in edits)
    _, output, _ = piped(commands, str(source), "-i", "x=[1, 2]")
    assert "h: f32[2] [5, 6]\n" in output
    assert "h: f32[2] [0, 1]\n" in output
    assert "h: f32[2] [1, 1]\n" in output
    assert "h has the shape [2], but the value has [3]" in output
    assert "error[E" in output
    assert "cannot understand 'h=randn:x'" in output


def test_a_model_is_stepped_through(source: Path, tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.array([2, 3], np.float32)}, sizevars={"D": 2})
    source.write_text("dynamic { x: f32[D]; } constant { w: f32[D]; } block entry { op mul(x, w) >> x; return x; }")
    _, output, _ = piped("continue\n", str(source), "--model", str(tmp_path / "m.oinf"), "-i", "x=ones")
    assert "x: f32[2] [2, 3]" in output


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-"], 2, "standard input is where commands come from"),
        (["missing.oig"], 1, "error[E112]"),
        (["g.oig"], 1, "error[E508]"),
        (["g.oig", "-i", "x=[1]"], 1, "error[E308]"),
        (["g.oig", "-i", "x"], 2, "write it as NAME=VALUE"),
        (["g.oig", "-i", "x=ones", "--steps", "0"], 2, "--steps"),
        (["g.oig", "-i", "x=ones", "--load-state", "missing.oinf"], 1, "error[E"),
    ],
)
def test_what_is_wrong_with_the_options_is_said_before_the_first_prompt(
    source: Path, arguments: list[str], status: int, message: str
) -> None:
    given = [str(source) if argument == "g.oig" else argument for argument in arguments]
    found, output, errors = piped("next\n", *given)
    assert (found, message in errors) == (status, True)
    assert "(step)" not in output
