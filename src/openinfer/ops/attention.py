"""Attention and rotary positions."""
