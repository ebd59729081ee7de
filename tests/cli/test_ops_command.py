"""``openinfer ops`` and the page made from the same records."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from tests.cli.in_process import openinfer

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS, usage
from openinfer.ops.catalogue import FAMILIES, catalogue_markdown, families, op_facts, op_markdown


def on_a_terminal(*arguments: str) -> str:
    primary, secondary = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    command = [sys.executable, "-m", "openinfer", *arguments]
    with subprocess.Popen(command, stdout=secondary, env=environment) as process:
        os.close(secondary)
        output = b""
        while chunk := _read(primary):
            output += chunk
    os.close(primary)
    assert process.returncode == 0
    return output.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""


def test_lists_every_op_once_with_its_usage_and_dtypes() -> None:
    done = openinfer("ops")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(names) == sorted({record.name for record in OPS.values()})
    assert "  gather          gather(x, ids, axis=0) >> y  all" in [re.sub(r"  +all", "  all", line) for line in lines]
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert headings == list(families())


def test_families_stand_in_the_order_of_the_page() -> None:
    known = [family for family in families() if family in FAMILIES]
    assert known == [family for family in FAMILIES if family in known]


def test_shows_one_op_in_full() -> None:
    done = openinfer("ops", "scatter")
    assert done.status == 0
    assert done.out == op_markdown(OPS["scatter"])
    for line in (
        "# scatter",
        'op scatter(x, ids, updates, axis, reduce="none") >> y',
        "| `ids` | i8, i16, i32, i64, u8, u16, u32, u64 |  |",
        "| `updates` | the dtype of x |  |",
        "| `axis` | int | required | The axis that the indices belong to. |",
        "Outputs: `y`: the dtype of x. Precision: within twice the error bound of any order of summation.",
    ):
        assert line in done.out.splitlines()
    assert 'One of `"none"`, `"add"`, `"mul"`, `"min"`, `"max"`. |\n' in done.out


def test_shows_what_can_be_left_out_repeated_or_quantized() -> None:
    assert "| `window` | the dtype of x | can be left out |" in openinfer("ops", "stft").out
    assert "| `x` | all | any number, of one dtype |" in openinfer("ops", "concat").out
    assert "| `x` | all | a quantized tensor counts as its real numbers |" in openinfer("ops", "gather").out
    assert "Outputs: `y, ...`: the dtype of x." in openinfer("ops", "split").out


def test_an_alias_shows_its_op() -> None:
    shown = openinfer("ops", "filter").out
    assert shown.startswith("# where\n")
    assert "Also written `filter`.\n" in shown


def test_an_unknown_op_exits_1_and_suggests_the_nearest() -> None:
    done = openinfer("ops", "gathr")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error[E206]: there is no op 'gathr'\n")
    assert "did you mean 'gather'" in done.err
    assert "'openinfer ops' lists them" in openinfer("ops", "zzzzzzzz").err


def test_an_unknown_op_is_json_where_json_is_asked_for() -> None:
    done = openinfer("ops", "gathr", "--json")
    assert (done.status, done.err) == (1, "")
    facts = json.loads(done.out)
    assert (facts["ok"], facts["diagnostics"][0]["code"]) == (False, "E206")


def test_json_has_the_facts_of_one_op() -> None:
    facts = json.loads(openinfer("ops", "stft", "--json").out)
    assert facts["family"] == "Signal"
    assert facts["usage"] == 'op stft(x, window?, frame, hop, window_type="hann", center=false) >> y'
    assert facts["dtypes"] == ["f8", "bf16", "f16", "f32", "f64"]
    assert facts["tolerance"] == {"kind": "row", "ulps": 16}
    assert facts["inputs"][1] == {
        "name": "window",
        "type": "T",
        "dtypes": ["f8", "bf16", "f16", "f32", "f64"],
        "optional": True,
        "variadic": False,
        "dequantizes": False,
    }
    params = {param["name"]: param for param in facts["params"]}
    assert (params["frame"]["required"], params["frame"]["default"]) == (True, None)
    assert (params["center"]["required"], params["center"]["default"]) == (False, False)
    assert params["window_type"]["choices"] == ["hann", "hamming", "blackman", "rectangular"]


def test_json_lists_the_facts_of_all_ops() -> None:
    facts = json.loads(openinfer("ops", "--json").out)
    assert facts == json.loads(json.dumps([op_facts(record) for members in families().values() for record in members]))
    assert len(facts) == len({record.name for record in OPS.values()})


@pytest.mark.parametrize(("arguments", "shown"), [((), "gather_nd"), (("gather",), "gather(x, ids, axis=0)")])
def test_a_terminal_gets_tables(arguments: tuple[str, ...], shown: str) -> None:
    output = on_a_terminal("ops", *arguments)
    assert "\x1b[" in output
    assert "─" in output or "━" in output
    assert shown in output


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_has_a_section_for_every_op() -> None:
    page = catalogue_markdown()
    names = {record.name for record in OPS.values()}
    assert sorted(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == sorted(names)
    assert all(usage(record) in page for record in OPS.values())
    assert "{" not in page.split("\n## ")[0], "the introduction is filled in"


def test_the_page_marks_the_dtypes_of_every_op() -> None:
    rows = {
        found[1]: found[2].split("|")
        for found in re.finditer(r"^\| \[(\w+)\]\(#\1\) \|(.*)\|$", catalogue_markdown(), re.MULTILINE)
    }
    assert set(rows) == {record.name for record in OPS.values()}
    for name, cells in rows.items():
        marked = [dtype for dtype, cell in zip(DTYPES, cells, strict=True) if cell.strip() == "x"]
        assert set(marked) == {dtype.name for dtype in OPS[name].dtypes}


def test_links_of_the_page_lead_to_ops_and_to_nothing_else() -> None:
    headings = [line.lstrip("# ").lower() for line in catalogue_markdown().splitlines() if line.startswith("#")]
    assert len(headings) == len(set(headings)), "two headings with one anchor"


def test_bars_in_a_cell_do_not_end_it() -> None:
    for line in catalogue_markdown().splitlines():
        if line.startswith("| `"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (4, 5)
