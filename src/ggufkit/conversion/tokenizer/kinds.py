"""Writes the kind of vocabulary that an architecture names: a row of kinds.toml.

The writers of a kind take the files of a checkpoint and set keys. The order of the calls in a
writer is the order of keys in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.checkpoint.folder import Checkpoint, checking_types
from ggufkit.conversion.tokenizer import byte_bpe, sentencepiece, wordpiece_unigram
from ggufkit.conversion.tokenizer.entries import PREFIX, TokenEntries
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.own import lines, ranks
from ggufkit.conversion.tokenizer.sentencepiece import SENTENCE_PIECE
from ggufkit.format.values import TypedValue
from ggufkit.system.threads import Notify


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
        _write(kind, files, entries)
    return entries.items


def _write(kind: str, files: TokenizerFiles, entries: TokenEntries) -> None:
    row = KINDS[kind]
    if "if" in row and not TESTS[row["if"]](files):
        _write(row["else"], files, entries)
        return
    for step in row["steps"]:
        if isinstance(step, str):
            WRITERS[step](files, entries, **row.get("tokens", {}))
            continue
        for key, value in step.items():
            if isinstance(value, bool):
                entries.boolean(key, value)
            else:
                entries.number(PREFIX + key, value)


KINDS: Final[Mapping[str, Mapping[str, Any]]] = _toml.read(__file__, "kinds.toml")
TESTS: Final[Mapping[str, Callable[[TokenizerFiles], object]]] = {
    "has pieces": lambda files: files.has(SENTENCE_PIECE),
    "lacks pieces": lambda files: not files.has(SENTENCE_PIECE),
    "has only pieces": lambda files: not files.tokenizer and files.has(SENTENCE_PIECE),
    "has tokenizer.json": lambda files: files.tokenizer,
    "is BPE": lambda files: files.model.get("type") == "BPE",
    "is Unigram": lambda files: files.model.get("type") == "Unigram",
}
# The functions of these modules, and some more.
WRITERS: Final[Mapping[str, Callable[..., None]]] = {
    **vars(byte_bpe), **vars(sentencepiece), **vars(wordpiece_unigram), **vars(lines),
    **vars(ranks),
    "nothing": lambda _, entries: entries.head("none", None),
    "chatml_template": lambda _, entries: entries.chat(byte_bpe.CHATML),
    "no_template": lambda _, entries: entries.chat(None),
}  # fmt: skip
