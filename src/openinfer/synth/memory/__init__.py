"""Everything about bytes: aliasing, the arena, weights, rollback, and which of a device's memories holds what."""
