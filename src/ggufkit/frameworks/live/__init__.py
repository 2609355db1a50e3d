"""Live models of transformers: `save` them as GGUF, without a checkpoint in between.

Their weights are presented to `convert` under the names of a checkpoint, and computed when they are
read.
"""
