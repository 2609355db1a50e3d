"""Reads architecture files, forwards for conversion and backwards for export.

An architecture is one TOML file in `files`. A new one should need no Python. If it does, extend the
language of these files.
"""
