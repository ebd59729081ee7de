"""The debugger over the Debug Adapter Protocol, for editors."""
