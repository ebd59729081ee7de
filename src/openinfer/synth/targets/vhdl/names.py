"""VHDL identifiers and comments. Names from the graph are escaped in comments and reduced to plain letters in names."""

import re
import textwrap

from openinfer.synth.targets.cstyle.names import comment, project_name

_WIDTH = 112
_RESERVED = """
abs access after alias all and architecture array assert assume assume_guarantee attribute begin block body buffer bus
case component configuration constant context cover default disconnect downto else elsif end entity exit fairness file
for force function generate generic group guarded if impure in inertial inout is label library linkage literal loop
map mod nand new next nor not null of on open or others out package parameter port postponed procedure process
property protected pure range record register reject release rem report restrict restrict_guarantee return rol ror
select sequence severity shared signal sla sll sra srl strong subtype then to transport type unaffected units until
use variable vmode vprop vunit wait when while with xnor xor
"""  # reserved words of VHDL-2008
_VERILOG = """
accept_on always always_comb always_ff always_latch assign automatic before bind bins binsof break buf bufif0 bufif1
byte casex casez cell chandle checker class clocking cmos config const constraint continue covergroup coverpoint cross
deassign defparam design disable dist do edge endcase endchecker endclass endclocking endconfig endfunction
endgenerate endgroup endinterface endmodule endpackage endprimitive endprogram endproperty endsequence endspecify
endtable endtask enum event eventually expect export extends extern final first_match foreach forever fork forkjoin
genvar global highz0 highz1 iff ifnone ignore_bins illegal_bins implements implies import incdir include initial input
inside instance int interconnect interface intersect join join_any join_none large let liblist local localparam logic
longint macromodule matches medium modport module negedge nettype nexttime nmos noshowcancelled notif0 notif1 output
packed pmos posedge primitive priority program pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent rand
randc randcase randsequence rcmos realtime ref reg reject_on repeat rnmos rpmos rtran rtranif0 rtranif1 s_always
s_eventually s_nexttime s_until s_until_with scalared shortint shortreal showcancelled small soft solve specify
specparam static strong0 strong1 struct super supply0 supply1 sync_accept_on sync_reject_on table tagged task this
throughout timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg typedef union unique unique0
until_with untyped uwire var vectored virtual void wait_order wand weak weak0 weak1 wildcard wire within wor
"""  # reserved words of Verilog and SystemVerilog, in which netlists are written
_DECLARED = """
bit boolean character false ieee integer line natural numeric_std oi positive real runtime signed state std std_logic
std_logic_1164 std_logic_vector std_ulogic string text time to_signed to_unsigned true unsigned work busy clk failed
enable failure rst start stopped told traces tracing
"""  # names that every circuit, or a library, already declares
_TAKEN = frozenset(" ".join((_RESERVED, _VERILOG, _DECLARED)).split())
_FAMILIES = re.compile(r"(bus|busy|host|lanes|mem|oi|product|ram|rom|sequencer|trace|weights)(_.*)?")
"""Signal names inside the circuit."""


def circuit_name(text: str) -> str:
    """The closest project name that is also valid in VHDL.

    >>> circuit_name("My net"), circuit_name("signal"), circuit_name("output"), circuit_name("ram_addr")
    ('my_net', 'signal_net', 'output_net', 'n_ram_addr')
    """
    own = project_name(text)
    if _FAMILIES.fullmatch(own):
        return f"n_{own}"
    return f"{own}_net" if own in _TAKEN else own


def plain(text: str, longest: int = 40) -> str:
    """Only letters, digits and single underscores, so that an identifier can begin or end with the result.

    >>> plain("Q__k é-v2_"), plain("3d")
    ('q_k_v2', 'n3d')
    """
    kept = re.sub(r"[^a-z0-9]+", "_", text.lower())[:longest].strip("_")
    return kept if kept[:1].isalpha() else f"n{kept}"


def remark(text: str) -> list[str]:
    r"""A text as comment lines that nothing in it can end.

    >>> remark("a\nb; end entity")
    ['-- a\\nb; end entity']
    """
    return [f"-- {line}" for line in textwrap.wrap(comment(text), _WIDTH)]
