"""Architecture files: their language, read forwards and backwards.

An architecture is one TOML file in `files`. A new one should need no change here; if it does, the
language gets a word.
"""
