"""Finds special tokens: their ids, which of them are added to texts, and the chat template.

They come from five files that may contradict each other. The winner is the same as in llama.cpp's
converter, so that the output is identical.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tokenizer.entries import TokenEntries
from ggufkit.conversion.tokenizer.files import TokenizerFiles

NAMES: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Stands for a space inside a half of a merge, where a space separates the halves.
SPACE: Final = chr(ord(" ") + 256)


class Specials:
    """The special tokens in the files of a checkpoint."""

    def __init__(self, files: TokenizerFiles, *, rows: int | None = None) -> None:
        """Read the files; skip ids of `rows` and above."""
        self.files = files
        self.rows = rows
        self.names: tuple[str, ...] = NAMES
        self.ids: dict[str, int] = {}
        self.adds: dict[str, bool] = {}
        self.template: str | Sequence[Mapping[str, str]] | None = None
        self.lowercase: object = None
        self.strip_accents: object = None
        self._settings = dict(files.settings or {})
        if files.tokenizer is not None:
            self._read_normalizer(files.tokenizer.get("normalizer") or {})
            self._read_processors(files.tokenizer)
        if files.settings:
            self.template = chat_template(files)
            self._read_settings()
        for name in self.names:
            self.offer(name, files.of_model(f"{name}_token_id"))

    def offer(self, name: str, number: object) -> None:
        """Use `number` as the id of `name`, unless `name` has one or `number` is not valid."""
        if not isinstance(number, int) or name in self.ids:
            return
        if number < 0 or (self.rows is not None and number >= self.rows):
            self.files.say(
                f"the {name} token has the id {number}, but no token has that id: left out"
            )
            return
        self.ids[name] = int(number)

    def write(self, entries: TokenEntries, merges: Sequence[str] = ()) -> None:
        """Set all keys in the order of llama.cpp's converter."""
        entries.strings("tokenizer.ggml.merges", merges)
        for name, number in self.ids.items():
            entries.identifier(name, number)
        for name, value in self.adds.items():
            entries.add(name, value)
        if self.template is not None:
            entries.chat(self.template)
        if self.lowercase is not None:
            entries.boolean("tokenizer.ggml.normalizer.lowercase", self.lowercase)
        if self.strip_accents is not None:
            entries.boolean("tokenizer.ggml.normalizer.strip_accents", self.strip_accents)

    def _read_normalizer(self, normalizer: Mapping[str, Any]) -> None:
        kind = normalizer.get("type")
        if kind == "Lowercase":
            self.lowercase = True
        elif kind == "StripAccents":
            self.strip_accents = True
        elif kind == "BertNormalizer":
            self.lowercase = normalizer.get("lowercase", self.lowercase)
            self.strip_accents = normalizer.get("strip_accents", self.strip_accents)
        elif kind == "Sequence":
            for part in normalizer.get("normalizers", []):
                self._read_normalizer(part)

    def _read_settings(self) -> None:
        """Read the tokens that tokenizer_config.json names, with their ids from tokenizer.json."""
        tokenizer = self.files.tokenizer or {}
        numbers: dict[str, int] = {}
        for token in tokenizer.get("added_tokens") or []:
            numbers.setdefault(token.get("content"), token.get("id"))
        for name in self.names:
            setting = self._settings.get(f"add_{name}_token")
            if isinstance(setting, bool):
                self.adds.setdefault(name, setting)
            token = self._settings.get(f"{name}_token")
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                self.offer(name, numbers.get(text))

    # Tokens that the post-processor of tokenizer.json adds to a text.

    def _read_processors(self, tokenizer: Mapping[str, Any]) -> None:
        settings = self._settings
        if settings:
            settings["bos_token"] = settings.get("bos_token") or settings.get("cls_token")
            settings["eos_token"] = settings.get("eos_token") or settings.get("sep_token")
        bos, eos = settings.get("bos_token"), settings.get("eos_token")
        self._around = {"bos": bos, "eos": eos}
        processor = tokenizer.get("post_processor") or {}
        for part in processor.get("processors", [processor]):
            kind = part.get("type")
            if kind == "ByteLevel":
                self.adds.setdefault("bos", False)
                self.adds.setdefault("eos", False)
            elif kind == "RobertaProcessing":
                self._read_roberta(part)
            elif kind == "TemplateProcessing":
                self._read_template(part)

    def _read_roberta(self, processor: Mapping[str, Any]) -> None:
        self.adds.update(bos=True, eos=True, sep=True)
        for name, stand_in in (("cls", "bos"), ("sep", "eos")):
            if self._settings and not self._settings.get(f"{name}_token"):
                text = processor.get(name, [self._around[stand_in]])[0]
                self._settings[f"{name}_token"] = text

    def _read_template(self, processor: Mapping[str, Any]) -> None:
        single = processor.get("single") or []
        first = _special(single[0]) if len(single) > 1 else None
        last = _special(single[-1]) if len(single) > 1 else None
        if first:
            self._read_first(first)
        if last:
            self._read_last(last)
        if processor.get("pair"):
            self._read_pair(processor["pair"], first, last)

    def _read_first(self, text: str) -> None:
        settings = self._settings
        known = (self._around["bos"], settings.get("cls_token"))
        if not settings or (text not in known and not self._around["bos"]):
            self._around["bos"] = text
        if settings and text not in known:
            settings["bos_token"] = settings.get("bos_token") or text
            settings["cls_token"] = settings.get("cls_token") or text
        self.adds["bos"] = text in (self._around["bos"], settings.get("cls_token"))

    def _read_last(self, text: str) -> None:
        """Use the last token as the end of text; the previous one then ends turns."""
        settings, old = self._settings, self._around["eos"]
        if settings and text != old:
            spare = next((name for name in ("eot", "eom") if name not in self.names), None)
            if spare:
                self.names = (*self.names, spare)
                settings[f"{spare}_token"] = old
            settings["eos_token"] = text
        self._around["eos"] = text
        self.adds["eos"] = True

    def _read_pair(
        self, pair: Sequence[Mapping[str, Any]], first: str | None, last: str | None
    ) -> None:
        """Find out whether a separator comes between the two texts of a pair."""
        start = 1 if first and _special(pair[0]) == first else 0
        stop = len(pair) - 1 if last and _special(pair[-1]) == last else len(pair)
        inner = pair[start:stop]
        if not inner or _text(inner[0]) != "A" or _text(inner[-1]) != "B" or not inner[1:-1]:
            return
        separators = (self._settings.get("sep_token"), self._around["eos"])
        between = [_special(part) for part in inner[1:-1]]
        adds = between[0] is not None and between[0] in separators and not last
        if len(between) == 2 and between[1] is not None and between[1] in separators:  # noqa: PLR2004 (A, two, B)
            adds = True
        self.adds["sep"] = adds
        if adds and self._settings and not self._settings.get("sep_token"):
            self._settings["sep_token"] = self._around["eos"]


def merges_of(files: TokenizerFiles) -> list[str]:
    """Return the merges of a BPE tokenizer, each as two halves with a space between."""
    tokenizer = files.tokenizer or {}
    merges = (tokenizer.get("model") or {}).get("merges")
    if isinstance(merges, list) and merges:
        if isinstance(merges[0], str):
            return merges
        return [" ".join(part.replace(" ", SPACE) for part in pair) for pair in merges]
    return merges_of_text(files.checkpoint.text("merges.txt") or "")


def merges_of_text(text: str) -> list[str]:
    """Return the merges in a merges.txt, whose first line may be a comment."""
    lines = re.split("\r\n|\r|\n", text)  # not splitlines: a merge may hold U+2028
    if lines and lines[0].startswith("#"):
        lines = lines[1:]
    halves = (line.split() for line in lines)
    return [" ".join(pair) for pair in halves if len(pair) == 2]  # noqa: PLR2004 (the halves)


def chat_template(files: TokenizerFiles) -> str | Sequence[Mapping[str, str]] | None:
    """Return the chat template, or a list of named ones.

    The one in tokenizer_config.json wins, even if it is null; next are chat_template.jinja with its
    folder of additional templates, and chat_template.json.
    """
    settings = files.settings or {}
    found = settings["chat_template"] if "chat_template" in settings else _template_files(files)
    if found is None or isinstance(found, str | list):
        return found
    files.say("chat_template in tokenizer_config.json is neither text nor list: left out")
    return None


def default_template(checkpoint: Checkpoint) -> str | None:
    """Return the chat template of a checkpoint, of named ones the default."""
    files = TokenizerFiles(checkpoint, lambda _: None)
    found = chat_template(files) if files.settings else None
    named = found if isinstance(found, list) else []
    default = next((each["template"] for each in named if each["name"] == "default"), None)
    return found if isinstance(found, str) else default


def _template_files(files: TokenizerFiles) -> str | list[dict[str, str]] | None:
    default = files.checkpoint.text("chat_template.jinja")
    if default is None:
        held = files.checkpoint.json("chat_template.json") or {}
        return held.get("chat_template")
    folder = "additional_chat_templates"
    names = files.checkpoint.names(folder, ".jinja")
    if not names:
        return default
    texts = [files.checkpoint.text(f"{folder}/{name}") or "" for name in names]
    others = [
        {"name": name.removesuffix(".jinja"), "template": text}
        for name, text in zip(names, texts, strict=True)
    ]
    return [{"name": "default", "template": default}, *others]


def _special(part: Mapping[str, Any]) -> str | None:
    found = part.get("SpecialToken", {}).get("id")
    return found if isinstance(found, str) else None


def _text(part: Mapping[str, Any]) -> str | None:
    found = part.get("Sequence", {}).get("id")
    return found if isinstance(found, str) else None
