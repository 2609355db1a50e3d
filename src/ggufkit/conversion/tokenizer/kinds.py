"""Chooses the kind of vocabulary: one function for each way in llama.cpp's converter.

The function takes the files of a checkpoint and sets keys. Architectures name their kind. The
order of the calls in a function is the order of keys in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Final

from ggufkit.conversion.checkpoint.folder import Checkpoint, checking_types
from ggufkit.conversion.tokenizer import byte_bpe, sentencepiece, wordpiece_unigram
from ggufkit.conversion.tokenizer.byte_bpe import byte_pairs
from ggufkit.conversion.tokenizer.entries import PREFIX, TokenEntries
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.own import lines, ranks
from ggufkit.conversion.tokenizer.sentencepiece import (
    SENTENCE_PIECE,
    byte_fallback,
    sentence_pieces,
)
from ggufkit.format.values import TypedValue
from ggufkit.system.threads import Notify

TokenizerKind = Callable[[TokenizerFiles, TokenEntries], None]


def vocabulary(  # noqa: PLR0913 (what an architecture and a user say of it)
    checkpoint: Checkpoint,
    kind: str,
    architecture: str = "",
    *,
    rows: int | None = None,
    pre: str | None = None,
    appended: Sequence[str] | None = None,
    names_template: bool = True,
    say: Notify | None = None,
) -> dict[str, TypedValue]:
    """Return the `tokenizer.*` keys of a checkpoint, typed and in llama.cpp's order.

    The tokens are padded or cut to `rows`, the rows of the embeddings (None: from config.json).
    `architecture` begins the name of a key that is not the tokenizer's; without it there is none.
    `pre` overrides the name of the pre-tokenizer; the control tokens `appended` follow the
    checkpoint's, and `rows` counts them. Without `names_template` no name of a template that
    llama.cpp has built in is written for a tokenizer of Mistral. `say` is called with each note
    for the user. Raises CheckpointError for files that are missing or malformed.
    """
    appended = appended or ()
    rows = None if rows is None else rows - len(appended)
    files = TokenizerFiles(
        checkpoint, say or (lambda _: None), rows, pre, architecture, names_template
    )
    entries = TokenEntries(appended)
    contradiction = f"the tokenizer files in {checkpoint.folder} contradict their format"
    with checking_types(contradiction, "Download them again"):
        KINDS[kind](files, entries)
    return entries.items


def in_turn(*kinds: TokenizerKind) -> TokenizerKind:
    """Return a kind that writes the keys of several, one after the other."""

    def write(files: TokenizerFiles, entries: TokenEntries) -> None:
        for kind in kinds:
            kind(files, entries)

    return write


def fixed(**values: int) -> TokenizerKind:
    """Return a kind that writes the given keys, whatever the files say: flags and ids."""

    def write(files: TokenizerFiles, entries: TokenEntries) -> None:  # noqa: ARG001 (a kind's signature)
        for key, value in values.items():
            if isinstance(value, bool):
                entries.boolean(key, value)
            else:
                entries.number(PREFIX + key, value)

    return write


def either(
    test: Callable[[TokenizerFiles], object], kind: TokenizerKind, other: TokenizerKind
) -> TokenizerKind:
    """Return a kind that writes the keys of `kind` for files that pass a test, else of `other`."""
    return lambda files, entries: (kind if test(files) else other)(files, entries)


def _has_only_pieces(files: TokenizerFiles) -> bool:
    return not files.tokenizer and files.has(SENTENCE_PIECE)


_has_pieces: Final = methodcaller("has", SENTENCE_PIECE)
_END: Final = "<|endoftext|>"
_GEMMA2: Final = in_turn(sentence_pieces, fixed(add_space_prefix=False))
KINDS: Final[Mapping[str, TokenizerKind]] = {
    "arctic": sentencepiece.arctic,
    "bert": wordpiece_unigram.bert,
    "bpe": byte_pairs,
    "byte-fallback-or-bpe": sentencepiece.byte_fallback_or_pairs,
    "chatglm": partial(byte_pairs, eos=_END, eot="<|user|>", unk=_END),
    "chatml": byte_bpe.chatml,
    "dots3-note": partial(byte_pairs, eot="<|endofassistant|>"),  # the end of an answer
    "eurobert": in_turn(fixed(add_bos_token=False), byte_pairs),
    "gemma": in_turn(sentence_pieces, fixed(eot_token_id=107, add_space_prefix=False)),
    "gemma2": _GEMMA2,
    "gemma3": either(_has_pieces, _GEMMA2, byte_pairs),
    "gemma4": sentencepiece.gemma4,
    "glm": partial(
        byte_pairs, bos="[gMASK]", eot="<|user|>", unk=_END, eom="<|observation|>"
    ),  # GLM 4.5 and later
    "glm4": partial(byte_pairs, eos=_END, eot="<|user|>", unk=_END, bos=_END),
    "hunyuan": byte_bpe.hunyuan,
    "hunyuan-moe": ranks.hunyuan_moe,
    "internlm2": sentencepiece.internlm2,
    "internlm3": sentencepiece.internlm3,
    "jamba": either(
        _has_pieces, sentence_pieces, in_turn(byte_fallback, fixed(add_space_prefix=False))
    ),
    "jina-bert-v2": either(
        lambda files: files.model.get("type") == "BPE",  # of its model of code
        in_turn(byte_pairs, fixed(token_type_count=2)),
        wordpiece_unigram.bert,
    ),
    "laguna": byte_bpe.laguna,
    "llada": in_turn(byte_pairs, fixed(add_bos_token=True)),
    "llama": sentencepiece.llama,
    "mamba": either(_has_only_pieces, sentence_pieces, byte_pairs),
    "mistral": ranks.mistral,
    "modern-bert": in_turn(
        fixed(add_bos_token=True, add_eos_token=True, add_sep_token=True), byte_pairs
    ),
    "mpt": either(
        _has_only_pieces,  # SEA-LION
        in_turn(
            sentence_pieces,
            fixed(add_bos_token=False, padding_token_id=3, eos_token_id=1, unknown_token_id=0),
        ),
        byte_pairs,
    ),
    "nemotron": in_turn(sentence_pieces, fixed(padding_token_id=0, unknown_token_id=1)),
    "nomic-bert": either(
        lambda files: files.model.get("type") == "Unigram",
        wordpiece_unigram.xlm_roberta,
        wordpiece_unigram.bert,
    ),
    "none": lambda _files, entries: entries.head("none", None),  # models without a vocabulary
    "phi3": sentencepiece.phi3,
    "plamo2": lines.plamo2,
    "plamo3": lines.plamo3,
    "qwen": ranks.qwen,
    "qwen3-asr": in_turn(byte_bpe.chatml, lambda _, entries: entries.chat(byte_bpe.CHATML)),
    "roberta": either(
        lambda files: files.tokenizer,
        in_turn(byte_pairs, wordpiece_unigram.count_types),
        wordpiece_unigram.bert,
    ),
    "rwkv": lines.rwkv,
    "sentencepiece": sentence_pieces,
    "sentencepiece-or-bpe": either(_has_pieces, sentence_pieces, byte_pairs),
    "solar-open": partial(byte_pairs, eos=_END, eot=_END, unk="<unk>", bos="<|startoftext|>"),
    "spaced-sentencepiece": in_turn(sentence_pieces, sentencepiece.space_prefix),
    "t5": wordpiece_unigram.t5,
    "templated": byte_bpe.templated,
    # Such a model reads texts aloud and does not answer.
    "templateless": in_turn(byte_pairs, lambda _, entries: entries.chat(None)),
    "xlm-roberta": wordpiece_unigram.xlm_roberta,
    "xverse": sentencepiece.xverse,
}
