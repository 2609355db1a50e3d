"""The command line as tests use it: called in this process, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from ggufkit.cli.app import app
from ggufkit.cli.errors import outcome


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def ggufkit(*arguments: object) -> Result:
    """Run a command in this process."""
    out, err = io.BytesIO(), io.BytesIO()
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)) as stdout,
        contextlib.redirect_stderr(io.TextIOWrapper(err, "utf-8", write_through=True)) as stderr,
    ):
        code = outcome(app, [str(argument) for argument in arguments])
        stdout.detach()
        stderr.detach()
    return Result(code, out.getvalue(), err.getvalue().decode())


def done(*arguments: object) -> Result:
    """Run a command that must succeed."""
    result = ggufkit(*arguments)
    assert result.code == 0, result.err
    return result


def process(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command as a process of its own, `options` being those of Popen."""
    command = [sys.executable, "-m", "ggufkit", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | options.pop("env", {})
    return subprocess.Popen(command, env=environment, **(pipes | options))
