"""Converts image and video models to GGUF, as ComfyUI and stable-diffusion.cpp read them.

`checkpoint_files` opens what a user downloads, and `convert_diffusion` makes the model of it.
"""
