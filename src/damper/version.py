"""The version, in one place: the build reads it from here, and so does every record."""

__version__ = "0.1.0"
