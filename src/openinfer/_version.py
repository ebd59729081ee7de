"""The version of this package, kept separate so that the build can read it without importing anything."""

VERSION = "0.1.0"
