"""Tiles chosen by measurement: candidates, races between them, and records of the winners."""
