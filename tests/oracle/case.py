"""What describes the checkpoint of a case, for tiny.py and the files in `families`."""

from __future__ import annotations

from typing import Any

BASE = {
    "vocab_size": 416, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
    "beta_fast": 32, "beta_slow": 1,
}  # fmt: skip
ABSENT = "(absent)"  # a field that a published config.json lacks
# Fields of BASE that the configurations of encoders do not have.
ENCODER = {"num_key_value_heads": None}


def case(
    config: str,
    *,
    dtype: str = "bfloat16",
    vocabulary: str = "bytes",
    architecture: str | None = None,
    model: str | None = None,
    kind: str = "AutoModelForCausalLM",
    saved: dict[str, Any] | None = None,
    library: int = 4,
    otherwise: str = "",
    extra: dict[str, tuple[int, ...]] | None = None,
    empty_rows: int = 0,
    only_parameters: bool = False,
    published: dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
    **fields: Any,
) -> dict:
    """Describe a checkpoint: the class of its configuration and what differs from BASE.

    `architecture` is the name that checkpoints with code of their own have for the class, `saved`
    says how it is saved, `library` which major version of transformers makes it. `otherwise` is the
    reason why llama.cpp computes other logits. `extra` are tensors that only the published
    checkpoints hold, and transformers ignores. The last `empty_rows` embeddings are zero.
    `only_parameters` leaves out the buffers, as published checkpoints do. `published` are fields of
    config.json as a published checkpoint has them, or ABSENT. `files` are further files.
    """
    return {
        "config": config,
        "dtype": dtype,
        "vocabulary": vocabulary,
        "architecture": architecture,
        "model": model,
        "kind": "AutoModel" if vocabulary == "words" else kind,
        "saved": saved or {},
        "library": library,
        "otherwise": otherwise,
        "extra": extra or {},
        "empty_rows": empty_rows,
        "only_parameters": only_parameters,
        "published": published or {},
        "files": files or {},
        "fields": fields,
    }
