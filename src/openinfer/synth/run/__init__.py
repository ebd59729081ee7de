"""Emitted code at work: written to disk, compiled, loaded, called, timed and traced."""
