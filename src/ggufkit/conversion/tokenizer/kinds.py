"""Chooses the kind of vocabulary: one function for each way in llama.cpp's converter.

The function takes the files of a checkpoint and sets keys. Architectures name their kind. The
order of the calls in a function is the order of keys in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tokenizer import byte_bpe, sentencepiece, wordpiece_unigram
from ggufkit.conversion.tokenizer.entries import TokenEntries
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.own import lines, ranks, tekken
from ggufkit.errors import MISFORMED, CheckpointError, GGUFError
from ggufkit.format.values import TypedValue
from ggufkit.system.threads import Say

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
    say: Say | None = None,
) -> dict[str, TypedValue]:
    """Return the `tokenizer.*` keys of a checkpoint, typed and in llama.cpp's order.

    The tokens are padded or cut to `rows`, the rows of the embeddings (None: from config.json).
    `architecture` begins the name of a key that is not the tokenizer's; without it there is none.
    `pre` overrides the name of the pre-tokenizer; the control tokens `appended` follow those of the
    checkpoint, and `rows` counts them. Without `names_template` no name of a template that
    llama.cpp has built in is written for a tokenizer of Mistral. `say` is called with each note
    for the user. Raises CheckpointError for files that are missing or malformed.
    """
    appended = appended or ()
    rows = None if rows is None else rows - len(appended)
    files = TokenizerFiles(
        checkpoint, say or (lambda _: None), rows, pre, architecture, names_template
    )
    entries = TokenEntries(appended)
    try:
        KINDS[kind](files, entries)
    except GGUFError:
        raise
    except MISFORMED as error:
        what = f"{error.__class__.__name__}: {error}"
        raise CheckpointError(
            f"the tokenizer files in {checkpoint.folder} contradict their format ({what})",
            remedy="Download them again",
        ) from error
    return entries.items


def none(files: TokenizerFiles, entries: TokenEntries) -> None:  # noqa: ARG001 (a kind's signature)
    """Write the kind "none", for models without a vocabulary."""
    entries.head("none", None)


KINDS: Final[Mapping[str, TokenizerKind]] = {
    "arctic": sentencepiece.arctic,
    "bert": wordpiece_unigram.bert,
    "bpe": byte_bpe.byte_pairs,
    "byte-fallback-or-bpe": sentencepiece.byte_fallback_or_pairs,
    "chatglm": byte_bpe.chatglm,
    "chatml": byte_bpe.chatml,
    "dots3-note": byte_bpe.dots3_note,
    "eurobert": byte_bpe.eurobert,
    "gemma": sentencepiece.gemma,
    "gemma2": sentencepiece.gemma2,
    "gemma3": sentencepiece.gemma3,
    "gemma4": sentencepiece.gemma4,
    "glm": byte_bpe.glm,
    "glm4": byte_bpe.glm4,
    "hunyuan": byte_bpe.hunyuan,
    "hunyuan-moe": ranks.hunyuan_moe,
    "internlm2": sentencepiece.internlm2,
    "internlm3": sentencepiece.internlm3,
    "jamba": sentencepiece.jamba,
    "jina-bert-v2": wordpiece_unigram.jina_bert_v2,
    "laguna": byte_bpe.laguna,
    "llada": byte_bpe.llada,
    "llama": sentencepiece.llama,
    "mamba": sentencepiece.mamba,
    "mistral": tekken.mistral,
    "modern-bert": wordpiece_unigram.modern_bert,
    "mpt": sentencepiece.mpt,
    "nemotron": sentencepiece.nemotron,
    "nomic-bert": wordpiece_unigram.nomic_bert,
    "none": none,
    "phi3": sentencepiece.phi3,
    "plamo2": lines.plamo2,
    "plamo3": lines.plamo3,
    "qwen": ranks.qwen,
    "qwen3-asr": byte_bpe.qwen3_asr,
    "roberta": wordpiece_unigram.roberta,
    "rwkv": lines.rwkv,
    "sentencepiece": sentencepiece.sentence_pieces,
    "sentencepiece-or-bpe": sentencepiece.sentence_pieces_or_pairs,
    "solar-open": byte_bpe.solar_open,
    "spaced-sentencepiece": sentencepiece.spaced,
    "t5": wordpiece_unigram.t5,
    "templated": byte_bpe.templated,
    "templateless": byte_bpe.templateless,
    "xlm-roberta": wordpiece_unigram.xlm_roberta,
    "xverse": sentencepiece.xverse,
}
