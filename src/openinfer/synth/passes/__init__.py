"""Passes that every target shares: each takes a program and returns a better one."""
