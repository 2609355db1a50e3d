"""Make a tokenizer of Hugging Face's library from the keys of a model, in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.tokenizer_json import MODELS
from ggufkit.errors import CheckpointError
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.llama_tokens import as_in_llama_cpp
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.system.threads import Say

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def tokenizer(model: AnyModel, *, say: Say | None = None) -> Tokenizer:
    """Return a `tokenizers.Tokenizer` that gives the ids that llama.cpp gives.

    `encode(text)` adds the tokens that llama.cpp adds; `add_special_tokens=False` leaves them out.
    Special tokens within a text are recognized. `say` is called with each part that cannot be
    rebuilt exactly. Raises CheckpointError for a model without a vocabulary, or with a kind of
    tokenizer that Hugging Face's library lacks.
    """
    made = library("tokenizers", "tokenizers").Tokenizer
    with opened(model) as source:
        keys = VocabularyKeys(source.metadata)
        if keys.model not in MODELS:
            raise CheckpointError(
                f"Hugging Face's library has no tokenizer of the kind {keys.model!r}",
                remedy=f"ggufkit can rebuild {', '.join(MODELS)}",
            )
        rules = MODELS[keys.model](keys, say or (lambda _: None))
        text = json.dumps(as_in_llama_cpp(rules, keys), ensure_ascii=False, separators=(",", ":"))
    try:
        found: Tokenizer = made.from_str(text)
    except Exception as error:  # the library has no class of its own
        raise CheckpointError(
            f"the tokens and merges of the file do not fit together: {error}",
            remedy="`ggufkit check` lists what is wrong with a vocabulary",
        ) from error
    return found
