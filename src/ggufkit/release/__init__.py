"""Makes a whole set of quantized files with their model card: `ggufkit release`.

Each step is skipped if its result is there and was made from the same inputs.
"""
