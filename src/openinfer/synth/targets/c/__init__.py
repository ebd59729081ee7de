"""The C target."""
