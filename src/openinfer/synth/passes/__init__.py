"""Passes shared by all targets; each takes a program and returns a better one."""
