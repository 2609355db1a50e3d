"""The journal of a release: which step made which files, from which inputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ggufkit._version import __version__
from ggufkit.errors import MISFORMED, FormatError, OutputError, ValueTypeError, brief
from ggufkit.inspection.file_digest import file_digest
from ggufkit.system.descriptors import close, lock
from ggufkit.system.staging import write_whole
from ggufkit.system.text_file import Most, read_small
from ggufkit.validation.typed_values import integer, json_object, short_text

JOURNAL: Final = "release.json"
LOG: Final = "release.log"
Facts = dict[str, Any]


def digest_of(*facts: object) -> str:
    """Return the SHA-256 of what a step depends on."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def identity_of(path: Path) -> object:
    """Return what changes if a file, or any file of a folder, changes: names, sizes and times."""
    if not path.is_dir():
        status = path.stat()
        return path.name, status.st_size, status.st_mtime_ns
    return [identity_of(file) for file in sorted(path.iterdir()) if not file.name.startswith(".")]


def read_journal(folder: Path) -> Facts:
    """Return the journal in a folder, empty if there is none; FormatError if it is damaged."""
    journal_path = folder / JOURNAL
    if not journal_path.exists():
        return {"steps": {}, "published": {}}
    try:
        document = json.loads(read_small(journal_path, Most.VALUES))
        steps = dict(document["steps"])
        published = {
            file_name(name): short_text(digest, name)
            for name, digest in document["published"].items()
        }
        for name, step in steps.items():
            short_text(json_object(step, name)["inputs"], "inputs")
            json_object(step["facts"], "facts")
            for path, file in json_object(step["files"], "files").items():
                short_text(json_object(file, file_name(path))["sha256"], "sha256")
                integer(file["nbytes"], "nbytes")
    except MISFORMED as error:
        raise FormatError(
            "this is not the journal of a release",
            remedy="Remove it to make everything again",
            path=str(journal_path),
        ) from error
    return {"steps": steps, "published": published}


def file_name(name: str) -> str:
    """Return the name of a file in the folder; ValueTypeError for a path, which may lead out."""
    if not name or name in (".", "..") or {"/", "\\", ":", "\0"} & {*name}:
        raise ValueTypeError(
            f"{brief(name)} is not the name of a file",
            remedy="Leave out folders and colons",
        )
    return name


class Journal:
    """The journal of one folder, which is locked as long as this is open.

    `steps` has inputs, files and facts of each step that is done, and `published` the digest of
    each file that was published, by its name.
    """

    def __init__(self, folder: Path) -> None:
        """Lock the folder and read its journal; OutputError if another run has it."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        if lock(self._log) is False:
            close(self._log)
            raise OutputError(
                f"{folder} is being written by another `ggufkit release`",
                remedy="Wait for it, or use another folder",
            )
        journal = read_journal(folder)
        self.steps: dict[str, Facts] = journal["steps"]
        self.published: dict[str, str] = journal["published"]

    def close(self) -> None:
        """Unlock the folder."""
        close(self._log)

    def log(self, line: str) -> None:
        """Append a line to the log."""
        os.write(self._log, f"{line}\n".encode())

    def facts(self, step: str) -> Facts:
        """Return what a step found out, empty if it is not done."""
        return dict(self.steps.get(step, {}).get("facts", {}))

    def files(self, step: str) -> list[Path]:
        """Return the files that a step made."""
        return [self.folder / name for name in self.steps.get(step, {}).get("files", ())]

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of all files of all steps, by name."""
        files = [item for step in self.steps.values() for item in step["files"].items()]
        return {name: file["sha256"] for name, file in files}

    def is_done(self, step: str, inputs: str) -> bool:
        """Whether a step was done with these inputs, and its files are there or published."""
        entry = self.steps.get(step)
        if entry is None or entry["inputs"] != inputs:
            return False
        return all(self._is_there(name, file) for name, file in entry["files"].items())

    def _is_there(self, name: str, file: Facts) -> bool:
        path = self.folder / name
        if path.exists():
            return bool(path.stat().st_size == file["nbytes"])
        return bool(self.published.get(name) == file["sha256"])

    def record(
        self, step: str, inputs: str, files: Sequence[Path] = (), facts: Mapping[str, Any] = {}
    ) -> None:
        """Note that a step is done; the files are hashed."""
        digests = {
            path.name: {"nbytes": path.stat().st_size, "sha256": file_digest(path)}
            for path in files
        }
        others = self.steps.items()  # an older step may have made a file that is replaced now
        self.steps = {key: old for key, old in others if not digests.keys() & old["files"].keys()}
        self.steps[step] = {"inputs": inputs, "files": digests, "facts": dict(facts)}
        self._save()

    def publish(self, digests: Mapping[str, str]) -> None:
        """Note that files with these digests are published."""
        self.published.update(digests)
        self._save()

    def _save(self) -> None:
        content = {"ggufkit": __version__, "steps": self.steps, "published": self.published}
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        write_whole(self.folder / JOURNAL, text.encode())
