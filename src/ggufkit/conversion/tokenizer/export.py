"""Rebuilds Hugging Face's tokenizer files from the keys of a GGUF file alone.

The result gives the same ids as llama.cpp. Rules that llama.cpp does not apply, such as a Unicode
normalization, are not in the GGUF file and thus not in the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ggufkit.conversion.tokenizer.entries import ADDED_SCORE
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.own.lines import OWN_FILES
from ggufkit.conversion.tokenizer.sentencepiece import SENTENCE_PIECE
from ggufkit.conversion.tokenizer.sentencepiece_model import (
    ModelType,
    PieceModel,
    PieceType,
    SentencePiece,
    dump_pieces,
)
from ggufkit.conversion.tokenizer.tokenizer_json import MODELS, added_token
from ggufkit.conversion.tokenizer.wordpiece_unigram import FAIRSEQ, FAIRSEQ_MODEL
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from ggufkit.format.values import Value
from ggufkit.system.threads import Notify

_PIECE_MODELS: Final = {"llama": ModelType.BPE, "t5": ModelType.UNIGRAM}
# Roles with a field in transformers, in the order of its files.
_ROLES: Final = ("bos", "eos", "unk", "sep", "pad", "mask")
# Fields of generation_config.json by their keys in a GGUF file.
_SAMPLING: Final = {
    "temp": "temperature",
    "penalty_repeat": "repetition_penalty",
    **{key: key for key in ("top_k", "top_p", "min_p")},
}


def tokenizer_files(metadata: Mapping[str, Value], say: Notify | None = None) -> dict[str, bytes]:
    """Return the tokenizer files by name, in time linear in the size of the vocabulary.

    `say` is called with each part that cannot be rebuilt exactly. Raises CheckpointError for a
    file without a vocabulary, or with a kind of tokenizer that Hugging Face's library lacks.
    """
    keys = VocabularyKeys(metadata)
    texts = tokenizer_texts(keys, say)
    files = {name: _encoded(name, text) for name, text in texts.items()}
    if keys.model in _PIECE_MODELS:
        model, is_shifted = _pieces(keys), keys.texts[: len(FAIRSEQ)] == [*FAIRSEQ]
        if is_shifted:  # XLM-RoBERTa: without the tokens that fairseq inserted
            first = [SentencePiece(text, 0.0, FAIRSEQ[text]) for text in ("<unk>", "<s>", "</s>")]
            model = replace(model, pieces=(*first, *model.pieces[len(FAIRSEQ) :]))
        files[FAIRSEQ_MODEL if is_shifted else SENTENCE_PIECE] = dump_pieces(model)
    return files


def tokenizer_texts(keys: VocabularyKeys, say: Notify | None = None) -> dict[str, str]:
    """Return the files that are text by name; `tokenizer_files` documents the rest."""
    if keys.model in OWN_FILES:  # the tokenizer is code of its own
        texts = {f"{role}_token": keys.text_of(role) for role in _ROLES if role in keys.roles}
        settings = {**texts, "model_max_length": keys.context_length}
        files = {**OWN_FILES[keys.model](keys), "tokenizer_config.json": _json(settings)}
    elif keys.model in MODELS:
        rules = MODELS[keys.model](keys, say or (lambda _: None))
        specials = _specials(keys)
        files = {
            "tokenizer.json": json.dumps(rules, ensure_ascii=False, separators=(",", ":")),
            "tokenizer_config.json": _json({**specials, **_settings(keys)}),
            "special_tokens_map.json": _json(specials),
        }
    else:
        raise CheckpointError(
            f"a tokenizer of the kind {keys.model!r} cannot be exported for Hugging Face",
            remedy=f"ggufkit can export {', '.join([*MODELS, *OWN_FILES])}",
        )
    generation = _json(_generation(keys))
    return {**files, "generation_config.json": generation, **_templates(keys.metadata)}


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise CheckpointError(
            f"the vocabulary contains text that is not UTF-8, but {name} must be UTF-8",
            remedy="`ggufkit check` shows which tokens are broken",
        ) from None


def _pieces(keys: VocabularyKeys) -> PieceModel:
    rows = zip(keys.texts[: keys.unpadded], keys.scores, keys.types, strict=False)
    trained = _PIECE_MODELS[keys.model]
    is_unigram = trained == ModelType.UNIGRAM
    return PieceModel(
        tuple(SentencePiece(text, score, PieceType(kind or 1)) for text, score, kind in rows),
        trained,
        bytes(keys.get("precompiled_charsmap") or []),
        keys.get("add_space_prefix") is not False,
        is_unigram and keys.get("remove_extra_whitespaces") is not False,
    )


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def _specials(keys: VocabularyKeys) -> dict[str, str]:
    """Return the special tokens by their names in transformers.

    A converter first writes the tokens that the tokenizer names, in the order of `_ROLES`, then
    tokens that only config.json has. So the tokenizer did not name a token out of this order.
    It is left out here too, unless the file adds it to texts or its template uses it.
    """
    order = [role for role in keys.roles if role in _ROLES]
    roles, last = [], -1
    for role in order:
        place = _ROLES.index(role)
        if place > last or keys.adds(role) or f"{role}_token" in keys.template:
            roles.append(role)
            last = max(last, place)
    roles += [role for role in _ROLES if role not in order]
    texts = {role: keys.text_of(role) for role in _ROLES if role in roles}
    return {f"{role}_token": text for role, text in texts.items() if text is not None}


def _settings(keys: VocabularyKeys) -> dict[str, Any]:
    adds = {f"add_{role}_token": keys.adds(role) for role in ("bos", "eos")}
    settings: dict[str, Any] = {key: value for key, value in adds.items() if value is not None}
    prefix = keys.get("add_space_prefix")
    if prefix is not None:
        settings["add_prefix_space"] = prefix
    numbers = range(len(keys.texts))
    listed = [n for n in numbers if keys.is_added(n) and keys.scores[n] == ADDED_SCORE]
    if listed:
        settings["added_tokens_decoder"] = {str(n): added_token(keys, n) for n in listed}
    cleans = keys.get("remove_extra_whitespaces") if keys.model == "t5" else keys.cleans_spaces
    settings["clean_up_tokenization_spaces"] = bool(cleans)
    if keys.model != "bert":  # else generate(**tokenizer(text)) fails: no model takes token types
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if keys.context_length:
        settings["model_max_length"] = keys.context_length
    return settings


def _generation(keys: VocabularyKeys) -> dict[str, Any]:
    ids = {f"{role}_token_id": keys.id_of(role) for role in ("bos", "eos", "pad")}
    fields: dict[str, Any] = {key: number for key, number in ids.items() if number is not None}
    ends = [keys.id_of(role) for role in ("eos", "eot", "eom")]
    end_ids = [*dict.fromkeys(number for number in ends if number is not None)]
    if len(end_ids) > 1:
        fields["eos_token_id"] = end_ids
    for key, field in _SAMPLING.items():
        value = keys.metadata.get(f"general.sampling.{key}")
        if value is not None:
            number = plain(value)  # of a float32: the shortest decimal number that is the same
            fields[field] = float(f"{number:.7g}") if isinstance(number, float) else number
    if {"temperature", "top_k", "top_p", "min_p"} & fields.keys():
        fields["do_sample"] = True
    return fields


def _templates(metadata: Mapping[str, Value]) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    files = {}
    for key in metadata:
        if key == prefix:
            files["chat_template.jinja"] = str(metadata[key])
        elif key.startswith(f"{prefix}."):
            name = "".join(c if c.isalnum() else "_" for c in key.removeprefix(f"{prefix}."))
            files[f"additional_chat_templates/{name}.jinja"] = str(metadata[key])
    return files
