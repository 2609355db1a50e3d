"""Parts of the command `convert`: the names of its outputs, and what it prints.

The command itself is `cli/commands/convert.py`. What converting means is in the package
`ggufkit.conversion`, not here: nothing in this folder reads a checkpoint.
"""
