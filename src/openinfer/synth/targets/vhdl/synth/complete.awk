# GHDL writes case statements without a default, which yosys maps to latches although all cases are covered.
/^ +[0-9]+'b[01]+: / { target = $2 }
/^ +endcase/ { print "      default: " target " <= 'bx;" }
{ print }
