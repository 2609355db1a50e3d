"""The version, alone in its file so that build and command line read it without imports."""

__version__ = "0.1.0"
