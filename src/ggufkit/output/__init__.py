"""Model to Plan to files: the layout, and the engine that executes it.

`layout` is pure and touches no file; `execute` does the work of a plan; `write` joins them.
Nothing here decides what a model contains.
"""
