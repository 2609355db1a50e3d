"""Writes vocabularies that are BPE over bytes: llama.cpp's "gpt2"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ggufkit.conversion.tokenizer.entries import TokenEntries, Tokens, looks_special
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer, hub_tokenizer
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import pre_tokenizer_name
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials, merges_of

# The template of llama.cpp's converter for Qwen 3 ASR, to the byte.
CHATML: Final = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_pairs(
    files: TokenizerFiles, entries: TokenEntries, control: Sequence[str] = (), **offers: str
) -> None:
    """Write a BPE tokenizer; `offers` are tokens for roles that the files do not assign.

    `control` are tokens that the files describe as ordinary.
    """
    tokenizer = hub_tokenizer(files)
    tokens = hub_tokens(files, tokenizer)
    for number, text in enumerate(tokens.texts):
        if text in control:
            tokens.types[number] = PieceType.CONTROL
    entries.head("gpt2", pre_tokenizer_name(files, tokenizer))
    entries.tokens(tokens, scored=False)
    specials = Specials(files)
    for role, text in offers.items():
        if text in tokenizer.added_texts:
            specials.offer(role, tokenizer.numbers[text])
    merges = merges_of(files)
    if not merges:
        files.say("the tokenizer has no merges: llama.cpp will not load this vocabulary")
    specials.write(entries, merges)


def hub_tokens(files: TokenizerFiles, tokenizer: HubTokenizer) -> Tokens:
    """Return the tokens of a tokenizer.json, padded to the rows of the embeddings."""
    rows = files.rows_for(max(tokenizer.texts, default=-1) + 1, "the tokenizer")
    tokens = Tokens(rows)
    for number, text in tokenizer.texts.items():
        token = tokenizer.added_texts.get(text)
        if token is None:
            tokens.put(number, text, 0.0, PieceType.NORMAL)
            continue
        decoded = token.content if token.normalized else tokenizer.decoded(token.content)
        if token.special or looks_special(decoded):
            tokens.put(number, decoded, 0.0, PieceType.CONTROL)
        else:
            tokens.put(number, decoded.replace(SPACE, " "), 0.0, PieceType.USER_DEFINED)
    if rows > len(tokenizer.texts):
        files.say(f"{rows - len(tokenizer.texts)} of {rows} tokens are padding")
    return tokens


def templated(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write the same for a model to whose files llama.cpp's converter adds a chat template."""
    byte_pairs(files, entries)
    if "tokenizer.chat_template" not in entries.items:
        files.say(
            "the checkpoint has no chat template, and llama.cpp's converter would add one: put it "
            "into the folder as chat_template.jinja, or use `ggufkit edit OUT --chat-template FILE`"
        )


def chatml(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a BPE tokenizer whose <|im_end|> begins and ends texts, whatever its files say."""
    byte_pairs(files, entries)
    ends = [n for n, token in files.described.items() if token.get("content") == "<|im_end|>"]
    for role in ("bos", "eos") if ends else ():
        entries.identifier(role, int(ends[0]))


def hunyuan(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Hunyuan's BPE tokenizer, with the ends of texts that its configurations name."""
    byte_pairs(files, entries)
    end = files.of_model("eod_token_id")
    if isinstance(end, int):
        entries.identifier("eos", end)
    ends = (files.checkpoint.json("generation_config.json") or {}).get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        entries.identifier("eot", ends[0])


def laguna(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Laguna's BPE tokenizer, with the end of a turn among the ends of texts."""
    byte_pairs(files, entries, control=("</assistant>",))
    template = files.checkpoint.text("chat_template.jinja")
    if template is not None:
        entries.chat(template)
    ends = files.of_model("eos_token_id")
    begin = files.of_model("bos_token_id")
    others = [end for end in ends if end != begin] if isinstance(ends, list) else []
    if others:
        entries.identifier("eot", others[0])
