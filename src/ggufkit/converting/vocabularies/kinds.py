"""The kinds of vocabulary: one function per way in which llama.cpp's converter writes one.

A kind takes the files of a checkpoint and sets keys. Architectures name theirs; the order of the
calls in a kind is the order of its keys in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ggufkit.converting.checkpoint import Checkpoint
from ggufkit.converting.vocabularies import byte_pairs, encoders, sentence_pieces
from ggufkit.converting.vocabularies.entries import Entries
from ggufkit.converting.vocabularies.files import Say, TokenizerFiles
from ggufkit.errors import MISFORMED, CheckpointError, GGUFError
from ggufkit.values import Value

Kind = Callable[[TokenizerFiles, Entries], None]


def vocabulary(
    checkpoint: Checkpoint,
    kind: str,
    *,
    rows: int | None = None,
    pre: str | None = None,
    say: Say | None = None,
) -> dict[str, Value]:
    """Return the `tokenizer.*` keys of a checkpoint, typed and in llama.cpp's order.

    `rows` are the rows of the embeddings (None: as config.json has it), to which the tokens are
    padded or cut; `pre` overrides the name of the pre-tokenizer; `say` is called with each line
    that the user should read. Raises CheckpointError for files that are missing or wrong.
    """
    files = TokenizerFiles(checkpoint, say or (lambda _: None), rows, pre)
    entries = Entries()
    try:
        KINDS[kind](files, entries)
    except GGUFError:
        raise
    except MISFORMED as error:
        what = f"{error.__class__.__name__}: {error}"
        raise CheckpointError(
            f"the tokenizer files in {checkpoint.folder} contradict their format ({what})",
            remedy="Fetch them again, or name another kind of tokenizer",
        ) from error
    return entries.items


def none(files: TokenizerFiles, entries: Entries) -> None:  # noqa: ARG001 (a kind's signature)
    """Write that there is no vocabulary."""
    entries.head("none", None)


KINDS: Final[Mapping[str, Kind]] = {
    "bert": encoders.bert,
    "bpe": byte_pairs.byte_pairs,
    "chatglm": byte_pairs.chatglm,
    "gemma": sentence_pieces.gemma,
    "gemma2": sentence_pieces.gemma2,
    "gemma3": sentence_pieces.gemma3,
    "glm": byte_pairs.glm,
    "glm4": byte_pairs.glm4,
    "internlm2": sentence_pieces.internlm2,
    "llama": sentence_pieces.llama,
    "mamba": sentence_pieces.mamba,
    "modern-bert": encoders.modern_bert,
    "mpt": sentence_pieces.mpt,
    "nemotron": sentence_pieces.nemotron,
    "nomic-bert": encoders.nomic_bert,
    "none": none,
    "phi3": sentence_pieces.phi3,
    "roberta": encoders.roberta,
    "sentencepiece": sentence_pieces.sentence_pieces,
    "sentencepiece-or-bpe": sentence_pieces.sentence_pieces_or_pairs,
    "t5": encoders.t5,
    "xlm-roberta": encoders.xlm_roberta,
}
