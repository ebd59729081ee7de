"""The language service over the Language Server Protocol, using pygls."""
