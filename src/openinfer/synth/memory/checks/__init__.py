"""Runtime checks that a step makes before it touches memory: planned here for every step, printed elsewhere."""
