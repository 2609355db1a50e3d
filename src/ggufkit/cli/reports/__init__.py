"""Reports that are longer than a command: changes, and deviations of tensors.

What only one command prints in a few lines stays in its module.
"""
