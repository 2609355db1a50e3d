"""How well models predict a text: perplexity, and divergence from a base model.

Measures what llama-perplexity measures, through `llama_cpp`. Code that changes a model or chooses
its types by these figures lives in `quantization`.
"""
