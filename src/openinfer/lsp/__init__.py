"""The language service over the Language Server Protocol, by way of pygls."""
