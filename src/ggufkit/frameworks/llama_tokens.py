"""What llama.cpp adds to the rules of a file: it recognizes some tokens by their text.

Source: `llama-vocab.cpp`. A tokenizer that gives llama.cpp's ids has to do the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.tokenizer_json import TokenizerRules, added_token

_TOKENS: Final = _toml.read(__file__, "llama_tokens.toml")
_S_END: Final = "</s>"
_GEMMA4_END: Final = "<|tool_response>"
# Tokens that take the spaces before them: names of pre-tokenizers or architectures, and the token.
_TAKING_LEFT: Final = (
    ("tokenizer.ggml.pre", ("jina-v2-de", "jina-v2-es", "jina-v2-code"), "<mask>"),
    ("general.architecture", ("nomic-bert-moe", "jina-bert-v3"), "<mask>"),
    ("general.name", ("modern-bert",), "[MASK]"),
)
_PHI3: Final = ("phi-3", "phi3")  # in names of models, whose special tokens take spaces after them
_PHI3_NOT: Final = frozenset({"<unk>", "<s>", "<|endoftext|>"})
_SPACES: Final = "\x0b\x0c\x85"  # which Hugging Face's library drops
_FIRST_HANGUL: Final = 0xAC00
_HANGUL_PER_INITIAL: Final = 588
_INITIALS: Final = 19
_FIRST_INITIAL: Final = 0x1100


def as_in_llama_cpp(rules: TokenizerRules, keys: VocabularyKeys) -> TokenizerRules:
    """Return the rules of a tokenizer, changed where llama.cpp does more than the file says."""
    added = {token["id"]: token for token in rules["added_tokens"]}
    for number in found_by_text(keys):
        token = added.get(number) or {"id": number, **added_token(keys, number)}
        added[number] = {**token, "special": True, "normalized": False}
    ordinary = _ordinary(keys)
    tokens = [_with_spaces(added[n], keys) for n in sorted(added) if keys.texts[n] not in ordinary]
    normalizer = rules["normalizer"]
    if keys.model == "bert":
        normalizer = {"type": "Sequence", "normalizers": [*_letters(normalizer), normalizer]}
    return {**rules, "added_tokens": tokens, "normalizer": normalizer}


def _ordinary(keys: VocabularyKeys) -> frozenset[str]:
    """Return the tokens that are ordinary in Gemma 4, although they end texts in other models."""
    return frozenset({_S_END}) if _GEMMA4_END in keys.texts else frozenset()


def found_by_text(keys: VocabularyKeys) -> Iterator[int]:
    """Yield the tokens that llama.cpp takes for control tokens by their text."""
    texts = set(_TOKENS["ends"])
    for role, names in _TOKENS["roles"].items():
        if keys.get(f"{role}_token_id") is None:
            texts.update(names)
    texts -= _ordinary(keys)
    yield from (number for number, text in enumerate(keys.texts) if text in texts)


def _with_spaces(token: dict[str, Any], keys: VocabularyKeys) -> dict[str, Any]:
    """Return an added token with the spaces that it takes along."""
    content = token["content"]
    for key, names, mask in _TAKING_LEFT:
        if content == mask and _names_one(keys, key, names):
            return {**token, "lstrip": True}
    is_phi3 = _names_one(keys, "general.name", _PHI3)
    return {**token, "rstrip": is_phi3 and content not in _PHI3_NOT}


def _names_one(keys: VocabularyKeys, key: str, names: tuple[str, ...]) -> bool:
    text = str(keys.metadata.get(key, ""))
    return any(name in (text.lower() if key == "general.name" else text) for name in names)


def _letters(normalizer: TokenizerRules) -> Iterator[TokenizerRules]:
    """Yield what llama.cpp does to texts of WordPiece before Hugging Face's rules would.

    It drops all marks, not only those without width, and of a Korean syllable it keeps the first
    letter.
    """
    yield _replace(f"[{_SPACES}]", " ")
    if normalizer["strip_accents"] is False or not normalizer["lowercase"]:
        return
    yield _replace(r"\p{M}", "")
    for number in range(_INITIALS):
        first = _FIRST_HANGUL + number * _HANGUL_PER_INITIAL
        last = chr(first + _HANGUL_PER_INITIAL - 1)
        yield _replace(f"[{chr(first)}-{last}]", chr(_FIRST_INITIAL + number))


def _replace(pattern: str, content: str) -> TokenizerRules:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
