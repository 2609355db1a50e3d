"""`ggufkit release`: make and publish a whole set of quantized files."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ggufkit.cli.options import (
    FILE_PATH,
    cluster_option,
    flag,
    new_command,
    option,
    parse_size,
    threads_option,
)
from ggufkit.cli.output import counted, emit, is_quiet, note, paged, size, table
from ggufkit.cli.progress import bar_of, duration, progress_bar
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import report
from ggufkit.errors import GGUFError, OutputError, printable
from ggufkit.system.staging import write_whole
from ggufkit.system.text_file import Most, decoded, read_small

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.progress import Progress as RichProgress

    from ggufkit.release.runner import ReleaseJob, Tell
    from ggufkit.system.threads import Progress

INIT: Final = "init"  # instead of a source: write the settings
SETTINGS: Final = "release.toml"
PROBLEMS: Final = "problems.md"
NO_FILES: Final = {"base": "used where it is", "projector": "none", "texts": "long enough"}
NAME: Final = "{name}"  # in --upload, the name of each model of a list
_TEXT: Final = click.Path(exists=True, dir_okay=False)


@new_command(
    "release",
    "ggufkit release init",
    "ggufkit release SmolLM2-135M -o release/ --config release.toml --dry-run",
    "ggufkit release SmolLM2-135M -o release/ --calibration text.txt --text held-out.txt",
    "ggufkit release hf://org/model -o release/ --upload user/model-GGUF --disk 200GB",
    "ggufkit release --watch models.txt -o releases/ --upload user/{name}-GGUF",
)
@click.argument("source", required=False)
@option("-o --output folder FOLDER", "The folder for all files.")
@option("--config FILE", "A file of settings; `ggufkit release init` writes one.", type=FILE_PATH)
@option(
    "--rungs LIST",
    "The files to make: recipes, sizes or bits per weight, such as Q4_K_M,3.2GiB,4.25bpw.",
    type=lambda text: tuple(text.split(",")),
)
@option("--calibration TEXT", "The text for importance data.", type=_TEXT)
@option(
    "--text texts TEXT", "A text to measure quality on.  [repeatable]", type=_TEXT, multiple=True
)
@option(
    "--upload PLACE",
    "Publish at user/name on the Hub, s3://bucket/folder, or ./folder.",
    default="",
    show_default=False,
)
@flag("--public", "Make a new repository public, not private.")
@flag("--replace", "Replace published files with other content.")
@option(
    "--disk SIZE",
    "Let FOLDER take at most this; rungs are removed once they are published.",
    type=parse_size,
)
@option("--card FILE", "A template for Jinja that makes the model card.", type=FILE_PATH)
@option(
    "--watch LIST",
    "Work through the models in this file, one a line, each in a folder of its own.",
    type=FILE_PATH,
)
@threads_option
@cluster_option
@flag("--dry-run", "Show what would be done; write nothing.")
@flag("--json as_json", "Print a line of JSON for each step.")
def command(
    source: str | None,
    folder: str | None,
    *,
    watch: Path | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make all quantized files of SOURCE in FOLDER, with a model card, and publish them.

    SOURCE is the folder of a checkpoint, a name on the Hub, or a GGUF file. Run the same command
    again after it was stopped: it continues. `ggufkit release init` writes a file of settings.
    """
    if source == INIT:
        _write_settings(folder or SETTINGS)
        return
    if (source is None) == (watch is None) or (folder is None and not dry_run):
        raise click.UsageError(
            "Name either a source or --watch LIST, and the folder: ggufkit release SOURCE -o FOLDER"
        )
    target, failed = Path(folder or "."), []
    if watch and not dry_run:
        target.mkdir(exist_ok=True)
    for name in _listed(watch) if watch else [source or ""]:
        job = _job(name, target, is_listed=watch is not None, options=options)
        if dry_run:
            _show(job, as_json=as_json)
            continue
        try:
            problems = _released(job, as_json=as_json)
        except (GGUFError, OSError) as error:
            if watch is None:
                raise
            problems = [str(error)]
        failed += [(name, problem) for problem in problems]
    if watch and not dry_run:
        from ggufkit.reports.report import escaped  # noqa: PLC0415 (see below)

        lines = [f"- {escaped(name)}: {escaped(problem)}" for name, problem in failed]
        text = "\n".join(["# Problems", "", *(lines or ["All models were released."]), ""])
        write_whole(target / PROBLEMS, text.encode())
    if failed:
        click.get_current_context().exit(1)


def _job(source: str, folder: Path, *, is_listed: bool, options: dict[str, Any]) -> ReleaseJob:
    # Slow to import, and `--help` needs none of them.
    from ggufkit.release.runner import ReleaseJob  # noqa: PLC0415
    from ggufkit.release.settings import Settings, read_settings  # noqa: PLC0415
    from ggufkit.release.source import ReleaseSource  # noqa: PLC0415

    settings = read_settings(options["config"]) if options["config"] else Settings()
    changed = {key: options[key] for key in ("calibration", "texts", "rungs") if options[key]}
    settings = replace(settings, **changed)
    stem = settings.name or ReleaseSource(source, settings, note).stem
    job_options = ("public", "replace", "disk", "card", "threads")
    return ReleaseJob(
        source,
        folder / stem if is_listed else folder,
        replace(settings, name=stem),
        upload=options["upload"].replace(NAME, stem),
        cluster=options["cluster"] or "",
        **{key: options[key] for key in job_options},
    )


def _listed(path: Path) -> list[str]:
    """Return the sources in a list, one a line; # begins a comment."""
    lines = decoded(read_small(path, Most.RECIPE)).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _write_settings(out: str) -> None:
    from ggufkit.release.settings import template  # noqa: PLC0415 (see below)

    if out == PIPE:
        click.echo(template(), nl=False)
        return
    if Path(out).exists():
        raise OutputError(f"{out} exists already", remedy="Name another file with -o")
    write_whole(Path(out), template().encode())
    report([Path(out)])


def _print_steps() -> Tell:
    """Return what prints a line for each step that did something."""
    skipped, finished = 0, set[str]()

    def tell(step: str, state: str, **facts: Any) -> None:
        nonlocal skipped
        if state == "done":
            finished.add(step)
        if state == "note":
            note(facts["text"])
        elif state == "failed":
            click.echo(f"{step} failed: {printable(facts['text'])}", err=True)
        elif state == "skipped":
            skipped += step not in finished  # by this run
        elif state == "begun" and skipped and not is_quiet():
            click.echo(f"continuing: {counted(skipped, 'step')} done already")
            skipped = 0
        elif state == "done" and not is_quiet():
            names = ", ".join(map(printable, facts.get("files", ()))) or NO_FILES.get(step, "")
            click.echo(f"{printable(step)}{': ' if names else ''}{names}")

    return tell


def _released(job: ReleaseJob, *, as_json: bool) -> list[str]:
    """Run a release; return what went wrong with single files."""
    from ggufkit.release.run import release  # noqa: PLC0415 (see above)

    def emitted(step: str, state: str, **facts: Any) -> None:
        emit({"step": step, "state": state, **facts})

    tell = emitted if as_json else _print_steps()
    if sys.stderr.isatty() and not as_json and not is_quiet():
        with ReleaseView(job, tell) as view:
            problems = release(job, view.tell, view.bar)
    else:
        problems = release(job, tell, progress_bar)
    if problems and not as_json:
        label = click.style("error:", fg="red", bold=True)
        click.echo(f"{label} these went wrong; the other files are complete:", err=True)
        for problem in problems:
            click.echo(f"  {printable(problem)}", err=True)
    return problems


def _show(job: ReleaseJob, *, as_json: bool) -> None:
    from ggufkit.release.forecast import forecast  # noqa: PLC0415 (see above)

    document = forecast(job)
    if as_json:
        emit(document)
        return
    rows = [
        (
            printable(file["file"]),
            size(file["nbytes"]),
            f"{file['bits_per_weight']:.2f}",
            size(file["memory"]) if file["memory"] else "",
        )
        for file in document["files"]
    ]
    rows += [(printable(file["file"]), size(file["nbytes"]), "", "") for file in document["others"]]
    steps = [(step["step"], f"{step['seconds']:,.0f} s") for step in document["steps"]]
    with paged():
        table(("FILE", "SIZE", "BITS PER WEIGHT", "MEMORY"), rows, right="lrrr")
        click.echo()
        table(("STEP", "ESTIMATED"), steps, right="lr")
        click.echo(f"\nat most {size(document['disk'])} on disk at once")
    labels = {"left_out": "left out: ", "doubts": "doubtful: ", "missing": "missing: ", "notes": ""}
    for key, label in labels.items():
        for text in document[key]:
            note(f"{label}{text}")


DISK_SECONDS: Final = 1.0  # between looks at the disk


class ReleaseView(contextlib.AbstractContextManager["ReleaseView"]):
    """A running release: its steps, the rung, a bar with rate, and disk space; a context manager.

    These lines are at the bottom of the terminal, below what `tell` prints.
    """

    def __init__(self, job: ReleaseJob, tell: Tell) -> None:
        self._job, self._tell = job, tell
        self._began = time.monotonic()
        self._count = 0
        self._steps: list[str] = []  # that are being done
        self._bar: RichProgress | None = None
        self._disk, self._disk_time = "", 0.0
        self._live: Live | None = None

    def __enter__(self) -> ReleaseView:
        from rich.console import Console  # noqa: PLC0415 (slow to import, and rarely needed)
        from rich.live import Live  # noqa: PLC0415

        console = Console(stderr=True)
        self._live = Live(
            self, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def tell(self, step: str, state: str, **facts: Any) -> None:
        """Show what happens, and print it as without a view."""
        self.__exit__()  # so that lines are printed above the view
        self._tell(step, state, **facts)
        if state == "begun":
            self._steps.append(step)
        elif state != "note":
            self._count += state != "failed"
            self._steps = [other for other in self._steps if other != step]
        self.__enter__()

    @contextlib.contextmanager
    def bar(self, doing: str, *, in_bytes: bool = True) -> Iterator[Progress]:
        """Show the bar of a step."""
        outer = self._bar
        self._bar, show = bar_of(doing, in_bytes=in_bytes)
        try:
            yield show
        finally:
            self._bar = outer

    def __rich__(self) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 (see above)
        from rich.text import Text  # noqa: PLC0415

        steps, seconds = counted(self._count, "step"), duration(time.monotonic() - self._began)
        lines = [f"{self._job.settings.name}: {steps} done in {seconds}"]
        lines += [f"{self._steps[0]}{self._rung}"] if self._steps else []
        texts = [Text(printable(line), no_wrap=True, overflow="ellipsis") for line in lines]
        bars = [self._bar] if self._bar else []
        return Group(*texts, *bars, Text(self._disk_line, no_wrap=True, overflow="ellipsis"))

    @property
    def _rung(self) -> str:
        """How many more steps are done together, or which of how many rungs the step is for."""
        from ggufkit.release.rungs import name_of  # noqa: PLC0415 (slow to import)

        names = [name_of(label) for label in self._job.settings.rungs]
        name = self._steps[0].partition(" ")[2].partition(" ")[0]
        if others := len(self._steps) - 1:
            return f" and {others} more"
        if name not in names:
            return ""
        return f" (rung {names.index(name) + 1} of {len(names)})"

    @property
    def _disk_line(self) -> str:
        from ggufkit.release.refusals import bytes_in  # noqa: PLC0415 (slow to import)

        job, now = self._job, time.monotonic()
        if now > self._disk_time + DISK_SECONDS:
            with contextlib.suppress(OSError):  # files come and go
                taken, free = bytes_in(job.folder), shutil.disk_usage(job.folder).free
                rest = f"{size(free)} free" if job.disk is None else f"limit {size(job.disk)}"
                self._disk, self._disk_time = f"disk: {size(taken)}, {rest}", now
        return self._disk
