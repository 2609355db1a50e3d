"""Write models: lay out a Model as a Layout, and execute it into files.

`layout` computes all offsets and opens no file. `execute` writes the files of a layout. `write`
does both. Nothing here decides what a model contains.
"""
