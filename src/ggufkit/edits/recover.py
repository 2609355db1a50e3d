"""Recover files whose edit in place was interrupted."""

from __future__ import annotations

from pathlib import Path

from ggufkit.format.file_name import parse_shard_name
from ggufkit.model.caches import resolve
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.edit_journal import Outcome, real, settle
from ggufkit.system.hidden_files import EDIT, PART, hidden
from ggufkit.system.staging import remove_leftover


def recover(path: AnyPath) -> Outcome:
    """Bring a file whose edit was interrupted to the state before or after it.

    `path` may also be any shard of a set, a folder, or a name of a cached model: all its files are
    looked at. Returns "before" or "after"; "nothing" where no edit was interrupted, and "replaced"
    where another file has taken its place since. Raises FormatError for a damaged journal, OSError
    where the file cannot be written and must be. Opening does the same by itself.
    """
    named = resolve(as_path(path))
    named.stat()  # a file that is missing is told as ever
    outcomes = [_recovered(real(file)) for file in _files(named)]
    return next((outcome for outcome in outcomes if outcome != "nothing"), "nothing")


def _files(named: Path) -> list[Path]:
    """Return the file, all shards of its set that are there, or the models of a folder."""
    if named.is_dir():
        return sorted(path for path in named.glob("*.gguf") if path.is_file())
    shard = parse_shard_name(named.name)
    if shard is None:
        return [named]
    others = [(parse_shard_name(path.name), path) for path in named.parent.iterdir()]
    return sorted(path for found, path in others if found and found[::2] == shard[::2])


def _recovered(target: Path) -> Outcome:
    remove_leftover(hidden(hidden(target, EDIT), PART))
    remove_leftover(hidden(target, PART))
    return settle(target)
