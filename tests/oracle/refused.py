"""Classes that llama.cpp's converter registers and cannot convert, with the reason; for docs."""

from __future__ import annotations

from typing import Final

REFUSED: Final = {
    "BaiChuanForCausalLM": "the converter calls itself without end; ggufkit converts "
    "the model, as the converter without that line",
    "BaichuanForCausalLM": "the converter calls itself without end; ggufkit converts "
    "the model, as the converter without that line",
    "CogVLMForCausalLM": "the converter leaves out the matrices for the tokens of pictures, and "
    "llama.cpp does not load the file",
    "Gemma3nForConditionalGeneration": "with `--mmproj` the converter has no names for the norms "
    "after the convolutions over sound; ggufkit writes them under the names that llama.cpp reads",
    "GraniteSpeechForConditionalGeneration": "the norms of the converter's projector have names "
    "that llama.cpp does not read: `ggufkit select IN OUT --rename "
    "'a.blk.*.conv_norm_var.*=a.blk.*.conv_norm.*'` makes a file that it loads",
    "GraniteSpeechPlusForConditionalGeneration": "as `GraniteSpeechForConditionalGeneration`",
    "MiniCPMV4_6ForConditionalGeneration": "the converter stops unless it gets `--no-mtp`; ggufkit "
    "converts the text model",
    "MiniMaxM3VLForConditionalGeneration": "the converter's list of projectors lacks the name; "
    "ggufkit writes the projector as for `MiniMaxM3SparseForConditionalGeneration`",
    "Qwen3OmniMoeForConditionalGeneration": "with `--mmproj` the converter does not find the "
    "encoder of pictures under its published names; ggufkit writes the whole projector",
    "QWenLMHeadModel": "llama.cpp does not load the converter's file, which lacks the epsilon of "
    "its norms; ggufkit writes it, and all else as the converter",
    "UltravoxModel": "it has no text model of its own: convert the one that config.json names",
}
