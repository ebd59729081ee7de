"""The C of tiled contractions: panels, register tiles, vector intrinsics."""
