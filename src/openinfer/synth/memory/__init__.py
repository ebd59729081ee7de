"""Memory planning: aliasing, the arena, weights, rollback, and the device memory that holds each of them."""
