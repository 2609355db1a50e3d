"""Edit a file in place: rewrite its header, and move its data by whole blocks at most.

`plan` reads the header and decides; `apply` changes the file. If the file system cannot move
blocks, or another process has the file open, a new file is written next to the old one and replaces
it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ggufkit.edits.changes import Change, changes
from ggufkit.edits.edit import Edits, edit
from ggufkit.edits.header_slack import refit, require_slack
from ggufkit.edits.recover import settle
from ggufkit.errors import FormatError, GGUFError, OutputError, ShardError
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import padded
from ggufkit.models.model import Model
from ggufkit.models.open import first_file, model_of, open_part, shard_count
from ggufkit.models.open import open as open_model
from ggufkit.models.parsed_file import ParsedFile
from ggufkit.output.execute import Order, execute_all
from ggufkit.output.layout import layout
from ggufkit.system import descriptors, disk_blocks, edit_journal
from ggufkit.system.cancellation import check_cancelled, shield
from ggufkit.system.descriptors import AnyPath, copy_at, naming, write_at
from ggufkit.system.edit_journal import EditJournal
from ggufkit.system.staging import Staging, require_space, sweep
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

Way = Literal["nothing", "patched", "moved", "cloned", "copied", "laid out"]

_DIGEST: Final = re.compile(r"(sha256-)?([0-9a-f]{40}|[0-9a-f]{64})")  # names of files in caches
COPY_CHUNK: Final = 32 << 20  # bytes that the kernel copies between reports of progress


@dataclass(frozen=True)
class EditPlan:
    """An edit of one file: the changes of its metadata and its bytes.

    `metadata` is set if every tensor must move; then the edit cannot be done in place.
    """

    path: Path
    changes: tuple[Change, ...]
    journal: EditJournal
    metadata: Metadata | None = None
    again: Callable[[], EditPlan] | None = None  # plans the same edit of the changed file

    @property
    def is_empty(self) -> bool:
        """Whether the edit changes no byte."""
        return self.journal.old == self.journal.new and self.metadata is None


@dataclass(frozen=True)
class Edited:
    """A finished edit: its `way`, and by how many bytes the tensor data moved."""

    path: Path
    way: Way
    shift: int
    changes: tuple[Change, ...]


def edit_in_place(
    path: AnyPath,
    *,
    reserve: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **edits: Unpack[Edits],
) -> Edited:
    """Edit the metadata of a file of any size, in time proportional to its header.

    `path` may be any shard of a set: the first shard, which has the keys, is edited. `reserve` is
    the slack to leave in the header, in bytes; `progress(done, total)` counts bytes if data must be
    copied. If the process is killed, the next opening finds the file unchanged or fully edited.
    Returns how the edit was done. Raises the errors of `edit`, and OutputError (an OSError) if the
    file cannot be written, and for links unless `force` is true.
    """
    return apply(plan(path, reserve=reserve, force=force, **edits), progress=progress)


def plan(
    path: AnyPath, *, reserve: int | None = None, force: bool = False, **edits: Unpack[Edits]
) -> EditPlan:
    """Plan the edit of `edit_in_place`, and change nothing."""
    return plan_by(path, lambda _: edits, reserve=reserve, force=force)


def plan_by(
    path: AnyPath,
    choose: Callable[[Metadata], Edits],
    *,
    reserve: int | None = None,
    force: bool = False,
) -> EditPlan:
    """Plan an edit that depends on the metadata; the header is parsed once."""
    target = editable(first_file(path), force=force)

    def again() -> EditPlan:
        return plan_by(path, choose, reserve=reserve, force=force)

    part, old = _part(target)
    before = _whole(part)
    after = edit(before, force=force, **choose(before.metadata))
    differences = tuple(changes(before.metadata, after.metadata))
    with naming(target), target.open("rb") as file:
        same = EditJournal.of(file.fileno(), old, old)
        earlier = edit_journal.last_of(target, file.fileno())
        step = disk_blocks.block_bytes(file.fileno())
    if after.alignment != before.alignment:
        return EditPlan(target, differences, same, after.metadata, again)
    require_slack(reserve)
    if not differences and reserve is None:
        return EditPlan(target, differences, same, again=again)
    new = refit(part.header, old, after.metadata, step=step, reserve=reserve)
    return EditPlan(target, differences, replace(same, new=new).after(earlier), again=again)


def editable(path: Path, *, force: bool) -> Path:
    """Return the path of the file; refuse links, because the edit would change other names too."""
    status = path.lstat()
    is_link = stat.S_ISLNK(status.st_mode)
    target = edit_journal.real(path) if is_link else path
    if is_link and not force:
        raise OutputError(
            f"{path} is a link to {target}, which other links may share",
            remedy="Write a copy with `ggufkit edit IN --output OUT`, name the file itself, or "
            "force it (force=True)",
        )
    if status.st_nlink > 1 and not force:
        raise OutputError(
            f"{path} is one of {status.st_nlink} hard links to the same file",
            remedy="Write a copy with `ggufkit edit IN --output OUT`, or force it (force=True): "
            "then only this name gets the change",
        )
    if _DIGEST.fullmatch(target.name) and not force:
        raise OutputError(
            f"{target} is named after the digest of its content, which the edit would change",
            remedy="Write a copy with `ggufkit edit IN --output OUT`; caches rely on these names",
        )
    return target


def _part(target: Path) -> tuple[ParsedFile, bytes]:
    """Return a file's model and header, and close it: blocks of a mapped file cannot move."""
    with contextlib.ExitStack() as opened:
        part = open_part(target, opened)
        with part.file.unchanged():
            old = part.file.view(0, part.header.data_offset).tobytes()
    return replace(part, header=part.header.with_data(old)), old


def _whole(part: ParsedFile) -> Model:
    """Return the model of a file, with the tensors of all its shards that are present."""
    model = model_of([part])
    if shard_count(part.header) == 1:
        return model
    with contextlib.suppress(ShardError), contextlib.closing(open_model(part.file.path)) as whole:
        return model.replace(tensors=whole.tensors.values())
    return model


def apply(plan: EditPlan, *, progress: Progress | None = None) -> Edited:
    """Carry out a plan, and return how it was done.

    If another edit is running, this one waits, and then changes the result of the other.
    """
    try:
        with shield():
            plan, way = _apply(plan, progress)
    except OSError as error:
        if isinstance(error, GGUFError):
            raise
        reason = error.strerror or str(error)
        raise OutputError(
            f"editing {plan.path}: {reason}",
            remedy=f"`ggufkit recover {plan.path}` restores it where needed",
        ) from error
    return Edited(plan.path, way, plan.journal.shift, plan.changes)


def _apply(plan: EditPlan, progress: Progress | None) -> tuple[EditPlan, Way]:
    """Carry out a plan, or a new one if another edit came first; return which, and how."""
    settle(plan.path)
    if plan.is_empty:
        return plan, "nothing"
    sweep(plan.path.parent)
    if plan.metadata is not None:
        return plan, _laid_out(plan, plan.metadata, progress)
    change, target = plan.journal, plan.path
    with contextlib.ExitStack() as stack:
        descriptor = stack.enter_context(edit_journal.exclusively(target))
        if change.state(descriptor) == "before":
            if _in_place(target, descriptor, change):
                return plan, "moved" if change.shift else "patched"
            return plan, _replace_file(target, descriptor, change, stack, progress)
        if plan.again is None or edit_journal.last_of(target, descriptor) is None:
            raise FormatError(
                "the file changed during the edit", remedy="Edit it again", path=str(target)
            )
    return _apply(plan.again(), progress)


def _in_place(target: Path, descriptor: int, change: EditJournal) -> bool:
    """Change the file in place; return False if that is impossible or unsafe."""
    if os.fstat(descriptor).st_nlink > 1:  # its other names have no journal
        return False
    with disk_blocks.sole_use(descriptor) as is_alone:
        # A reader must not see the header change while it loads, or data move at any time.
        is_safe = is_alone if change.shift else is_alone is not False
        return bool(is_safe) and _moved_and_written(target, descriptor, change)


def _moved_and_written(target: Path, descriptor: int, change: EditJournal) -> bool:
    """Move the data and write the header; return False if the file system cannot.

    Nothing here checks for a signal, because undoing the steps takes as long as they do.
    """
    edit_journal.publish(target, change)
    try:
        if not disk_blocks.shift(descriptor, change.shift):
            edit_journal.withdraw(target)
            return False
        write_at(descriptor, change.new, 0)
        os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # if this fails, the next opening uses the journal
            _roll_back(target, descriptor, change)
        raise
    _finish(target)
    return True


def _finish(target: Path) -> None:
    """Conclude a finished edit. Errors here are ignored: the next edit tries again."""
    with contextlib.suppress(OSError):
        edit_journal.finish(target)


def _roll_back(target: Path, descriptor: int, change: EditJournal) -> None:
    """Restore the file; if that needs more disk space than there is, leave the journal.

    After each step the journal knows the file's state: first write the old header at the place it
    moved to, then remove everything before it in one call.
    """
    has_moved = os.fstat(descriptor).st_size != change.nbytes
    if has_moved and change.shift < 0:
        return
    if has_moved or change.shift == 0:
        write_at(descriptor, change.old, change.shift)
        os.fsync(descriptor)
        if not disk_blocks.shift(descriptor, -change.shift):
            return
        os.fsync(descriptor)
    edit_journal.withdraw(target)


def _replace_file(
    target: Path,
    descriptor: int,
    change: EditJournal,
    stack: contextlib.ExitStack,
    progress: Progress | None,
) -> Way:
    """Write the changed file next to the old one, and replace the old one."""
    with contextlib.ExitStack() as opened:
        stage = Staging(target)
        opened.callback(stage.discard)
        modified_before = os.fstat(descriptor).st_mtime_ns
        os.ftruncate(stage.descriptor, change.nbytes + change.shift)
        way = _transfer_data(descriptor, stage, change, progress)
        write_at(stage.descriptor, change.new, 0)
        _keep_labels(descriptor, stage.descriptor)
        os.fsync(stage.descriptor)
        if os.fstat(descriptor).st_mtime_ns != modified_before:
            raise FormatError(
                "the file changed during the edit", remedy="Edit it again", path=str(stage.target)
            )
        inodes = (os.fstat(descriptor).st_ino, os.fstat(stage.descriptor).st_ino)
        if descriptors.renames_open_files:  # locked until the end, so that no other edit starts
            opened.callback(os.close, os.dup(stage.descriptor))
        else:  # such systems cannot rename locked files either
            stack.close()
        edit_journal.publish(target, replace(change, inodes=inodes))
        stage.publish()
        _finish(target)
    return way


def _transfer_data(
    source: int, stage: Staging, change: EditJournal, progress: Progress | None
) -> Way:
    """Put the data into the new file: share its blocks if the file system can, else copy."""
    copy = stage.descriptor
    offset, shift = len(change.old), change.shift
    step = disk_blocks.block_bytes(source)
    shared = padded(offset, step)
    may_share = shift % step == 0 and shared < change.nbytes
    if may_share and disk_blocks.clone(source, shared, copy, shared + shift):
        _copy(source, offset, shared, copy, shift, None)
        return "cloned"
    remedy = "Free some space, or write a copy elsewhere with `ggufkit edit IN --output OUT`"
    require_space(stage.target.parent, change.nbytes + shift, f"{remedy}; nothing was changed")
    _copy(source, offset, change.nbytes, copy, shift, progress)
    return "copied"


def _copy(  # noqa: PLR0913 (from, to, how far)
    source: int, start: int, stop: int, target: int, shift: int, progress: Progress | None
) -> None:
    for offset in range(start, stop, COPY_CHUNK):
        check_cancelled()
        nbytes = min(COPY_CHUNK, stop - offset)
        copy_at(source, offset, target, offset + shift, nbytes)
        if progress:
            progress(offset + nbytes - start, stop - start)


def _keep_labels(source: int, target: int) -> None:
    """Give the new file the old one's extended attributes, as far as allowed.

    Owner and mode follow when it is published.
    """
    with contextlib.suppress(AttributeError, OSError):  # not on every system
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _laid_out(plan: EditPlan, metadata: Metadata, progress: Progress | None) -> Way:
    """Rewrite the file with every tensor at a new offset; no journal can undo this."""
    target = plan.path
    with contextlib.closing(open_model(target, shards=False)) as model:
        laid = layout(model.replace(metadata=metadata), target.name)
        execute_all([Order(laid, target.parent)], progress=progress)
    edit_journal.forget(target)
    return "laid out"
