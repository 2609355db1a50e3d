"""Rebuilds the tokenizer that transformers would load: its vocabulary and its rules.

A tokenizer.json is not complete: tokenizer_config.json adds tokens and changes rules, and so does
the Python class that it names. llama.cpp's converter reads the result of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.special_tokens import NAMES, merges_of_text
from ggufkit.conversion.tokenizer.token_text import decode
from ggufkit.errors import CheckpointError

_ENDOFTEXT: Final = "<|endoftext|>"
_GPT2: Final = {"bos": _ENDOFTEXT, "eos": _ENDOFTEXT, "unk": _ENDOFTEXT}
_BERT: Final = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA: Final = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
_LLAMA: Final = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
# The default special tokens of a class, if the files name none.
_CLASSES: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(["GPT2Tokenizer", "GPTNeoXTokenizer", "CodeGenTokenizer"], _GPT2),
    **dict.fromkeys(["LlamaTokenizer", "CodeLlamaTokenizer"], _LLAMA),
    **dict.fromkeys(["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"], _BERT),
    **dict.fromkeys(["RobertaTokenizer", "BartTokenizer", "XLMRobertaTokenizer"], _ROBERTA),
    "MPNetTokenizer": {**_ROBERTA, "unk": "[UNK]"},
    "Qwen2Tokenizer": {"eos": _ENDOFTEXT, "unk": _ENDOFTEXT, "pad": _ENDOFTEXT},
    "GemmaTokenizer": {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"},
    "BloomTokenizer": {**_LLAMA, "pad": "<pad>"},
    "CohereTokenizer": {
        "bos": "<BOS_TOKEN>",
        "eos": "<|END_OF_TURN_TOKEN|>",
        "unk": "<UNK>",
    },
    "T5Tokenizer": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
}
# Classes that add their own tokens at the beginning (by default, or on request) and end of a text.
_ADDS_BOS: Final = {
    **dict.fromkeys(["LlamaTokenizer", "CodeLlamaTokenizer"], True),
    **dict.fromkeys(["GemmaTokenizer", "CohereTokenizer"], True),
    "GPTNeoXTokenizer": False,
}
_LOWERCASING: Final = frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"})
# The class of a model type, for checkpoints that do not name a class.
_CLASS_OF: Final = {
    **dict.fromkeys(["gpt2", "gpt_bigcode", "starcoder2"], "GPT2Tokenizer"),
    **dict.fromkeys(["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"], "Qwen2Tokenizer"),
    **dict.fromkeys(["gpt_neox", "mpt", "mamba", "olmo"], "GPTNeoXTokenizer"),
    **dict.fromkeys(["phi", "codegen"], "CodeGenTokenizer"),
    **dict.fromkeys(["gemma", "gemma2", "gemma3", "gemma3_text"], "GemmaTokenizer"),
    **dict.fromkeys(["llama", "mistral", "mixtral"], "LlamaTokenizer"),
    **dict.fromkeys(["cohere", "cohere2"], "CohereTokenizer"),
    **dict.fromkeys(["xlm-roberta"], "XLMRobertaTokenizer"),
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "roberta": "RobertaTokenizer",
    "bloom": "BloomTokenizer",
    "t5": "T5Tokenizer",
}
_QWEN_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


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
        is_special = bool(data.get("special", False))
        return cls(
            str(data["content"]),
            bool(data.get("single_word", False)),
            bool(data.get("lstrip", False)),
            bool(data.get("rstrip", False)),
            bool(data.get("normalized", not is_special)),
            is_special,
        )


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
        texts.update((number, token.content) for number, token in self.added.items())
        return texts

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The id of every text."""
        numbers = dict(self.vocabulary)
        numbers.update((token.content, number) for number, token in self.added.items())
        return numbers

    @cached_property
    def added_texts(self) -> dict[str, AddedToken]:
        """The added tokens by their text."""
        return {token.content: token for token in self.added.values()}

    def decoded(self, text: str) -> str:
        """Return the text of an added token after encoding and decoding it."""
        return decode(text, self.rules.get("decoder"), cleans=self.cleans_spaces)


def hub_tokenizer(files: TokenizerFiles) -> HubTokenizer:
    """Return the tokenizer of a checkpoint."""
    settings = files.settings or {}
    name = _class_name(files)
    rules = files.tokenizer or _rules_of_parts(files, name)
    vocabulary = _vocabulary(rules.get("model") or {})
    specials = _specials(files, name)
    added = _added(files, rules, vocabulary, specials)
    rules = _as_class(rules, name, settings, specials)
    cleans = bool(settings.get("clean_up_tokenization_spaces", False))
    return HubTokenizer(rules, vocabulary, added, specials, cleans)


def _class_name(files: TokenizerFiles) -> str:
    settings = files.settings or {}
    named = settings.get("tokenizer_class") or files.config.get("tokenizer_class")
    if not isinstance(named, str):
        named = _CLASS_OF.get(str(files.config.get("model_type")), "")
    return named.removesuffix("Fast")


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    held = model.get("vocab")
    if isinstance(held, list):  # Unigram: pairs of text and score
        return {entry[0]: number for number, entry in enumerate(held)}
    if not isinstance(held, dict) or not all(isinstance(n, int) for n in held.values()):
        raise CheckpointError("tokenizer.json has no vocabulary that maps texts to ids")
    return held


# Special and added tokens.


def _content(token: object) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _specials(files: TokenizerFiles, name: str) -> dict[str, str]:
    """Return the special tokens by role, from the files or else from the class."""
    named = {f"{role}_token": text for role, text in _CLASSES.get(name, {}).items()}
    settings = files.settings or {}
    named.update({key: settings[key] for key in _roles() if key in settings})
    if "added_tokens_decoder" not in settings:
        mapped = files.checkpoint.json("special_tokens_map.json") or {}
        named.update({key: mapped[key] for key in _roles() if key in mapped})
    texts = {key.removesuffix("_token"): _content(named.get(key)) for key in _roles()}
    return {role: text for role, text in texts.items() if text is not None}


def _roles() -> tuple[str, ...]:
    return tuple(f"{name}_token" for name in NAMES)


def _added(
    files: TokenizerFiles,
    rules: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    specials: Mapping[str, str],
) -> dict[int, AddedToken]:
    """Return all added tokens by id: tokenizer.json's, then the settings', then special ones."""
    added: dict[int, AddedToken] = {}
    _add(added, vocabulary, [AddedToken.of(token) for token in rules.get("added_tokens") or []])
    extra = [_content(token) for token in _additional(files)]
    special = [*dict.fromkeys([*specials.values(), *(text for text in extra if text)])]
    listed = [token for token in _listed(files, special) if token not in added.values()]
    _add(added, vocabulary, [_marked(token, special) for token in listed])
    known = {token.content for token in added.values()}
    fresh = [text for text in special if text not in known]
    _add(added, vocabulary, [AddedToken(text, normalized=False, special=True) for text in fresh])
    return added


def _additional(files: TokenizerFiles) -> list[Any]:
    settings = files.settings or {}
    found = list(settings.get("additional_special_tokens") or [])
    if "added_tokens_decoder" not in settings:
        mapped = files.checkpoint.json("special_tokens_map.json") or {}
        found += mapped.get("additional_special_tokens") or []
    return found


def _listed(files: TokenizerFiles, special: list[str]) -> list[AddedToken]:
    """Return the tokens in tokenizer_config.json, or else in added_tokens.json, sorted by id."""
    settings = files.settings or {}
    if "added_tokens_decoder" in settings:
        decoder = settings["added_tokens_decoder"]
        return [AddedToken.of(decoder[key]) for key in sorted(decoder, key=int)]
    texts = sorted(files.added, key=lambda text: files.added[text])
    return [
        AddedToken(text, normalized=text not in special, special=text in special) for text in texts
    ]


def _marked(token: AddedToken, special: list[str]) -> AddedToken:
    is_special = token.special or token.content in special
    return AddedToken(
        token.content,
        token.single_word,
        token.lstrip,
        token.rstrip,
        token.normalized,
        is_special,
    )


def _add(
    added: dict[int, AddedToken], vocabulary: Mapping[str, int], tokens: Iterable[AddedToken]
) -> None:
    """Add tokens as the tokenizers library does: a new text takes the next free id."""
    numbers = {token.content: number for number, token in added.items()}
    top = max(added, default=-1)
    held = set(added.values())
    for token in tokens:
        if not token.content or token in held:
            continue
        number = numbers.get(token.content, vocabulary.get(token.content))
        if number is None:
            number = max(top + 1, len(vocabulary))
        numbers[token.content] = number
        added[number] = token
        held.add(token)
        top = max(top, number)


# Rules.


def _rules_of_parts(files: TokenizerFiles, name: str) -> dict[str, Any]:
    """Return the rules of a tokenizer in vocab.json and merges.txt, or in vocab.txt."""
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
    pre: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    rules: dict[str, Any] = {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
        "pre_tokenizer": pre,
        "decoder": {"type": "ByteLevel"},
    }
    if name != "Qwen2Tokenizer":
        return rules
    split = {"type": "Split", "pattern": {"Regex": _QWEN_SPLIT}, "behavior": "Isolated"}
    parts = [split, {**pre, "use_regex": False}]
    pre_tokenizer = {"type": "Sequence", "pretokenizers": parts}
    return {**rules, "normalizer": {"type": "NFC"}, "pre_tokenizer": pre_tokenizer}


def _word_piece_rules(text: str) -> dict[str, Any]:
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    around = [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}]
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    return {
        "model": {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]"},
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [*around, {"SpecialToken": {"id": "[SEP]"}}],
        },
        "decoder": {"type": "WordPiece"},
    }


def _as_class(
    rules: Mapping[str, Any],
    name: str,
    settings: Mapping[str, Any],
    specials: Mapping[str, str],
) -> dict[str, Any]:
    """Return the rules with the changes that the class `name` makes."""
    changed = dict(rules)
    pre = changed.get("pre_tokenizer") or {}
    prefix = bool(settings.get("add_prefix_space"))
    if "add_prefix_space" in pre:
        changed["pre_tokenizer"] = {**pre, "add_prefix_space": prefix}
    normalizer = changed.get("normalizer") or {}
    if name in _LOWERCASING and normalizer.get("type") == "BertNormalizer":
        changed["normalizer"] = {
            **normalizer,
            "lowercase": settings.get("do_lower_case", True),
            "strip_accents": settings.get("strip_accents"),
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        }
    if name in _ADDS_BOS:
        changed["post_processor"] = _own_template(settings, specials, adds_bos=_ADDS_BOS[name])
    return changed


def _own_template(
    settings: Mapping[str, Any], specials: Mapping[str, str], *, adds_bos: bool
) -> dict[str, Any]:
    single: list[dict[str, Any]] = [{"Sequence": {"id": "A"}}]
    if settings.get("add_bos_token", adds_bos) and "bos" in specials:
        single.insert(0, {"SpecialToken": {"id": specials["bos"]}})
    if settings.get("add_eos_token", False) and "eos" in specials:
        single.append({"SpecialToken": {"id": specials["eos"]}})
    return {"type": "TemplateProcessing", "single": single}
