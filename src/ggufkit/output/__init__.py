"""Write models: lay out a Model as a Layout, and execute it into files.

`layout` is pure and touches no file; `execute` carries out a plan; `write` does both.
Nothing here decides what a model contains.
"""
