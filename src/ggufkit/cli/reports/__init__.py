"""Reports that are longer than a command: changes, deviations of tensors, a running release.

What only one command prints in a few lines stays in its module.
"""
