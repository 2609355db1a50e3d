"""Reads what files and users write: typed values from JSON, regular expressions that end.

Everything here takes text or parsed JSON that may be hostile, and raises typed errors.
"""
