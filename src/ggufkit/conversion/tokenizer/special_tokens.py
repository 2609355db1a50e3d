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

_ADDED: Final = ("bos", "eos", "sep")  # llama.cpp can add these to a text
NAMES: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Stands for a space inside a half of a merge, where a space separates the halves.
MERGE_SPACE: Final = chr(ord(" ") + 256)


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
        self.normalizer: dict[str, object] = {"lowercase": None, "strip_accents": None}
        self._settings = dict(files.settings)
        if files.tokenizer:
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
        entries.merges(merges)
        for name, number in self.ids.items():
            entries.identifier(name, number)
        for name, value in self.adds.items():
            if name in _ADDED:
                entries.boolean(f"add_{name}_token", value)
        if self.template is not None:
            entries.chat(self.template)
        for key, flag in self.normalizer.items():
            if flag is not None:
                entries.boolean(f"normalizer.{key}", flag)

    def _read_normalizer(self, normalizer: Mapping[str, Any]) -> None:
        kind = normalizer.get("type")
        if kind == "Lowercase":
            self.normalizer["lowercase"] = True
        elif kind == "StripAccents":
            self.normalizer["strip_accents"] = True
        elif kind == "BertNormalizer":
            self.normalizer |= {
                key: normalizer[key] for key in self.normalizer if key in normalizer
            }
        elif kind == "Sequence":
            for part in normalizer.get("normalizers", []):
                self._read_normalizer(part)

    def _read_settings(self) -> None:
        """Read the tokens that tokenizer_config.json names, with their ids from tokenizer.json."""
        numbers: dict[str, int] = {}
        for token in self.files.tokenizer.get("added_tokens") or []:
            numbers.setdefault(token.get("content"), token.get("id"))
        for name in self.names:
            setting = self._settings.get(f"add_{name}_token")
            if isinstance(setting, bool):
                self.adds.setdefault(name, setting)
            text = token_content(self._settings.get(f"{name}_token"))
            if text is not None:
                self.offer(name, numbers.get(text))

    # Tokens that the post-processor of tokenizer.json adds to a text.

    def _read_processors(self, tokenizer: Mapping[str, Any]) -> None:
        settings = self._settings
        if settings:
            settings["bos_token"] = settings.get("bos_token") or settings.get("cls_token")
            settings["eos_token"] = settings.get("eos_token") or settings.get("sep_token")
        self._around = {role: settings.get(f"{role}_token") for role in ("bos", "eos")}
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
        ends = (single[0], single[-1]) if len(single) > 1 else ({}, {})
        first, last = (_id_of(part, "SpecialToken") for part in ends)
        if first:
            self._read_first(first)
        if last:
            self._read_last(last)
        if processor.get("pair"):
            self._read_pair(processor["pair"], first, last)

    def _read_first(self, text: str) -> None:
        settings = self._settings
        beginnings = (self._around["bos"], settings.get("cls_token"))
        if not settings or (text not in beginnings and not self._around["bos"]):
            self._around["bos"] = text
        if settings and text not in beginnings:
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
        specials = [_id_of(part, "SpecialToken") for part in pair]
        texts = [_id_of(part, "Sequence") for part in pair]
        start = 1 if first and specials[0] == first else 0
        stop = len(pair) - 1 if last and specials[-1] == last else len(pair)
        between = specials[start + 1 : stop - 1]
        if not between or texts[start] != "A" or texts[stop - 1] != "B":
            return
        tokens = (self._settings.get("sep_token"), self._around["eos"])
        separates = [text is not None and text in tokens for text in between]
        adds = separates[0] and not last
        if len(between) == 2 and separates[1]:  # noqa: PLR2004 (A, two, B)
            adds = True
        self.adds["sep"] = adds
        if adds and self._settings and not self._settings.get("sep_token"):
            self._settings["sep_token"] = self._around["eos"]


def token_content(token: object) -> str | None:
    """Return the text of a special token, which files give alone or in an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def merges_of(files: TokenizerFiles) -> list[str]:
    """Return the merges of a BPE tokenizer, each as two halves with a space between."""
    merges = files.model.get("merges")
    if isinstance(merges, list) and merges:
        if isinstance(merges[0], str):
            return merges
        return [
            text
            if text.count(" ") == 1
            else " ".join(part.replace(" ", MERGE_SPACE) for part in pair)
            for text, pair in zip(map(" ".join, merges), merges, strict=True)
        ]
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
    has_own = "chat_template" in files.settings
    template = files.settings["chat_template"] if has_own else _template_files(files)
    if template is None or isinstance(template, str | list):
        return template
    files.say("chat_template in tokenizer_config.json is neither text nor list: left out")
    return None


def default_template(checkpoint: Checkpoint) -> str | None:
    """Return the chat template of a checkpoint, of named ones the default."""
    files = TokenizerFiles(checkpoint, lambda _: None)
    template = chat_template(files) if files.settings else None
    if isinstance(template, list):
        return next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template if isinstance(template, str) else None


def _template_files(files: TokenizerFiles) -> str | list[dict[str, str]] | None:
    default = files.checkpoint.text("chat_template.jinja")
    if default is None:
        return (files.checkpoint.json("chat_template.json") or {}).get("chat_template")
    folder = "additional_chat_templates"
    others = [
        {
            "name": name.removesuffix(".jinja"),
            "template": files.checkpoint.text(f"{folder}/{name}") or "",
        }
        for name in files.checkpoint.names(folder, ".jinja")
    ]
    return [{"name": "default", "template": default}, *others] if others else default


def _id_of(part: Mapping[str, Any], kind: str) -> str | None:
    identifier = part.get(kind, {}).get("id")
    return identifier if isinstance(identifier, str) else None
