"""Lowers a bound graph to a program."""
