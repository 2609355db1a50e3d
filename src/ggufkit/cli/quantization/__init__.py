"""Parts of the command `quantize`: some of its options, and what it prints.

The command itself is `cli/commands/quantize.py`. What quantizing means is in the package
`ggufkit.quantization`, not here: nothing in this folder decides a type or reads a tensor.
"""
