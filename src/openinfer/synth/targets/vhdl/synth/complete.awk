# GHDL writes case statements without a default, which yosys takes for latches: all cases are there.
/^ +[0-9]+'b[01]+: / { target = $2 }
/^ +endcase/ { print "      default: " target " <= 'bx;" }
{ print }
