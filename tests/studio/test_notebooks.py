"""What notebooks show of graphs, executors and plans."""

from xml.etree import ElementTree as ET

from openinfer.lang import graph
from openinfer.sim import Simulator
from openinfer.synth.pipeline import Synthesizer

TEXT = """
dynamic { x: f32[4]; }
volatile { y: f32[4]; }
block entry { scope "<b>&" { op neg(x) >> y; } return y; }
"""


def test_graphs_executors_and_plans_are_well_formed_html_that_names_no_script() -> None:
    found = graph(TEXT)
    executor = Simulator().make_executor(found)
    plan = Synthesizer().synthesize(None, found)
    for one in (found, executor, plan):
        html = one._repr_html_()
        ET.fromstring(html)
        assert "<script" not in html
        assert "<td>x</td>" in html or "neg" in html


def test_a_graph_shows_its_text_and_an_executor_its_values() -> None:
    found = graph(TEXT)
    assert "&lt;b&gt;&amp;" in found._repr_html_()
    executor = Simulator().make_executor(found)
    executor(x=[1, 2, 3, 4])
    assert "[-1, -2, -3, -4]" in executor._repr_html_()
    assert "<svg" in Synthesizer().synthesize(None, found)._repr_html_()
