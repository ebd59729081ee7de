"""Runs emitted code: writes it to disk, compiles, loads, calls, times and traces it."""
