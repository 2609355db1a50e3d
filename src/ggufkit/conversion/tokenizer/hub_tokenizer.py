"""Rebuilds the tokenizer that transformers would load: its vocabulary and its rules.

A tokenizer.json is not complete: tokenizer_config.json adds tokens and changes rules, and so does
the Python class that it names. llama.cpp's converter reads the result of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.special_tokens import NAMES, merges_of_text, token_content
from ggufkit.conversion.tokenizer.token_text import decode
from ggufkit.errors import CheckpointError

# What each tokenizer class of transformers adds to the files, by its name.
_CLASSES: Final[Mapping[str, Mapping[str, Any]]] = _toml.read(__file__, "tokenizer_classes.toml")


@dataclass(frozen=True)
class AddedToken:
    """A token added to a vocabulary; the tokenizer finds it in a text before all other rules."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AddedToken:
        """Return the token that a file describes."""
        flags = {key: bool(data.get(key)) for key in ("single_word", "lstrip", "rstrip", "special")}
        is_normalized = bool(data.get("normalized", not flags["special"]))
        return cls(str(data["content"]), normalized=is_normalized, **flags)


@dataclass(frozen=True)
class HubTokenizer:
    """A tokenizer: `rules` in the form of tokenizer.json, its vocabulary and its added tokens."""

    rules: Mapping[str, Any]
    vocabulary: Mapping[str, int]
    added: Mapping[int, AddedToken]
    specials: Mapping[str, str]
    cleans_spaces: bool

    @cached_property
    def texts(self) -> dict[int, str]:
        """The text of every id."""
        texts = {number: text for text, number in self.vocabulary.items()}
        return texts | {number: token.content for number, token in self.added.items()}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The id of every text."""
        added = {token.content: number for number, token in self.added.items()}
        return {**self.vocabulary, **added}

    @cached_property
    def added_texts(self) -> dict[str, AddedToken]:
        """The added tokens by their text."""
        return {token.content: token for token in self.added.values()}

    def decoded(self, text: str) -> str:
        """Return the text of an added token after encoding and decoding it."""
        return decode(text, self.rules.get("decoder"), cleans=self.cleans_spaces)


def hub_tokenizer(files: TokenizerFiles) -> HubTokenizer:
    """Return the tokenizer of a checkpoint."""
    settings = files.settings
    config = files.checkpoint.config
    name = settings.get("tokenizer_class") or config.get("tokenizer_class")
    if not isinstance(name, str):
        rows, model_type = _CLASSES.items(), config.get("model_type")
        name = next((own for own, row in rows if model_type in row.get("types", ())), "")
    name = name.removesuffix("Fast")
    rules = files.tokenizer or _rules_of_parts(files, name)
    vocabulary = _vocabulary(rules.get("model") or {})
    specials_of_class = _CLASSES.get(name, {}).get("specials", {})
    defaults = {f"{role}_token": text for role, text in specials_of_class.items()}
    tokens = {**defaults, **settings, **_mapped(files)}
    texts = {role: token_content(tokens.get(f"{role}_token")) for role in NAMES}
    specials = {role: text for role, text in texts.items() if text is not None}
    added = _added(files, rules, vocabulary, specials)
    rules = _as_class(rules, name, settings, specials)
    cleans = bool(settings.get("clean_up_tokenization_spaces", False))
    return HubTokenizer(rules, vocabulary, added, specials, cleans)


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    ids = model.get("vocab")
    if isinstance(ids, list):  # Unigram: pairs of text and score
        return {entry[0]: number for number, entry in enumerate(ids)}
    if not isinstance(ids, dict) or not all(isinstance(n, int) for n in ids.values()):
        raise CheckpointError("tokenizer.json has no vocabulary that maps texts to ids")
    return ids


def _mapped(files: TokenizerFiles) -> dict[str, Any]:
    """Return special_tokens_map.json, which counts if the settings do not describe tokens."""
    if "added_tokens_decoder" in files.settings:
        return {}
    return files.checkpoint.json("special_tokens_map.json") or {}


def _added(
    files: TokenizerFiles,
    rules: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    specials: Mapping[str, str],
) -> dict[int, AddedToken]:
    """Return all added tokens by id: tokenizer.json's, then the settings', then special ones."""
    added: dict[int, AddedToken] = {}
    _add(added, vocabulary, [AddedToken.of(token) for token in rules.get("added_tokens") or []])
    extra = [
        token_content(token)
        for place in (files.settings, _mapped(files))
        for token in place.get("additional_special_tokens") or []
    ]
    special = [*dict.fromkeys([*specials.values(), *(text for text in extra if text)])]
    listed = [token for token in _listed(files, special) if token not in added.values()]
    marked = [replace(token, special=token.special or token.content in special) for token in listed]
    _add(added, vocabulary, marked)
    contents = {token.content for token in added.values()}
    fresh = [text for text in special if text not in contents]
    _add(added, vocabulary, [AddedToken(text, normalized=False, special=True) for text in fresh])
    return added


def _listed(files: TokenizerFiles, special: list[str]) -> list[AddedToken]:
    if "added_tokens_decoder" in files.settings:
        decoder = files.settings["added_tokens_decoder"]
        return [AddedToken.of(decoder[key]) for key in sorted(decoder, key=int)]
    texts = sorted(files.added, key=lambda text: files.added[text])
    return [
        AddedToken(text, normalized=text not in special, special=text in special) for text in texts
    ]


def _add(
    added: dict[int, AddedToken], vocabulary: Mapping[str, int], tokens: Iterable[AddedToken]
) -> None:
    """Add tokens as the tokenizers library does: a new text takes the next free id."""
    numbers = {token.content: number for number, token in added.items()}
    top = max(added, default=-1)
    present = set(added.values())
    for token in tokens:
        if not token.content or token in present:
            continue
        number = numbers.get(token.content, vocabulary.get(token.content))
        if number is None:
            number = max(top + 1, len(vocabulary))
        numbers[token.content] = number
        added[number] = token
        present.add(token)
        top = max(top, number)


def _rules_of_parts(files: TokenizerFiles, name: str) -> dict[str, Any]:
    vocabulary = files.checkpoint.json("vocab.json")
    merges = files.checkpoint.text("merges.txt")
    if vocabulary is not None and merges is not None:
        return _byte_level_rules(vocabulary, merges_of_text(merges), name)
    text = files.checkpoint.text("vocab.txt")
    if text is not None:
        return _word_piece_rules(text)
    raise CheckpointError(
        f"{files.checkpoint.folder} has no tokenizer",
        remedy="Add tokenizer.json (or tokenizer.model, or vocab.json and merges.txt)",
    )


def _byte_level_rules(
    vocabulary: Mapping[str, Any], merges: list[str], name: str
) -> dict[str, Any]:
    rules = _toml.read(__file__, "default_rules.toml")
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    return {**rules["BPE"], **rules.get(name, {}), "model": model}


def _word_piece_rules(text: str) -> dict[str, Any]:
    lines = text.removesuffix("\n").split("\n") if text else []
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    model = {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]"}
    return {**_toml.read(__file__, "default_rules.toml")["WordPiece"], "model": model}


def _as_class(
    rules: Mapping[str, Any], name: str, settings: Mapping[str, Any], specials: Mapping[str, str]
) -> dict[str, Any]:
    changed, about_class = dict(rules), _CLASSES.get(name, {})
    pre, normalizer = rules.get("pre_tokenizer") or {}, rules.get("normalizer") or {}
    if "add_prefix_space" in pre:
        prefix = bool(settings.get("add_prefix_space"))
        changed["pre_tokenizer"] = {**pre, "add_prefix_space": prefix}
    if "lowercases" in about_class and normalizer.get("type") == "BertNormalizer":
        changed["normalizer"] = {
            **normalizer,
            "lowercase": settings.get("do_lower_case", True),
            "strip_accents": settings.get("strip_accents"),
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        }
    if "adds_bos" in about_class:
        single: list[dict[str, Any]] = [{"Sequence": {"id": "A"}}]
        if settings.get("add_bos_token", about_class["adds_bos"]) and "bos" in specials:
            single.insert(0, {"SpecialToken": {"id": specials["bos"]}})
        if settings.get("add_eos_token", False) and "eos" in specials:
            single.append({"SpecialToken": {"id": specials["eos"]}})
        changed["post_processor"] = {"type": "TemplateProcessing", "single": single}
    return changed
