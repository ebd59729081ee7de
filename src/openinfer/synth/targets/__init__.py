"""Targets: what a device's language and hardware add to a program."""
