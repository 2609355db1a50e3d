"""Every forged file gets the expected verdict from `open`, `check` and ggml."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forge
import ggufkit
from forging import unusual
from forging.builder import Forge
from forging.case import ALONE, Case
from ggufkit.errors import FormatError, NotGGUFError, TruncatedError
from ggufkit.format.header import CUT, Header, parse
from ggufkit.rules.findings import Finding
from ggufkit.rules.rules import all_rules
from rule_groups import STRUCTURE

CASES = forge.corpus()
TESTS = Path(__file__).parent
RICH = Forge(pairs=(*unusual.every_type(), unusual.nested(3)), pad_end=False).build()
# Rules that no file of a reasonable size breaks, or that are not about a file's content.
ELSEWHERE = {"value-long", "unreadable", "omitted"}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@pytest.fixture(scope="session")
def forged(tmp_path_factory) -> Path:
    """A folder that holds a folder for each case."""
    folder = tmp_path_factory.mktemp("forged")
    for case in CASES.values():
        forge.write(case, folder / case.name)
    return folder


def path_of(case: Case, forged: Path) -> Path:
    return forged / case.name / next(iter(case.files))


def verdict(findings: list[Finding]) -> str:
    severities = {finding.severity for finding in findings}
    return "refuse" if "error" in severities else "warn" if "warning" in severities else "accept"


def test_corpus_is_large_and_breaks_every_rule(forged):
    verdicts = Counter(case.verdict for case in CASES.values())
    assert verdicts["refuse"] >= 300
    assert verdicts["warn"] + verdicts["accept"] >= 60
    findings = (ggufkit.check(path_of(case, forged)) for case in CASES.values())
    broken = {finding.rule for findings in findings for finding in findings}
    assert broken - {"architecture-missing"} == STRUCTURE - ELSEWHERE


@every_case
def test_check_gives_verdict_rule_and_remedy(case, forged):
    findings = ggufkit.check(path_of(case, forged))
    assert verdict(findings) == case.verdict, case.why
    assert case.rule in {finding.rule for finding in findings} or (not case.rule and not findings)
    for finding in findings:
        assert 0 <= finding.offset <= len(case.files[finding.path.name])
        assert finding.message.isprintable()
        assert finding.remedy


@every_case
def test_open_raises_the_typed_error_or_gives_a_model(case, forged):
    path = path_of(case, forged)
    if case.verdict != "refuse":
        read_everything(ggufkit.open(path))
        return
    with pytest.raises(FormatError) as caught:
        ggufkit.open(path)
    error = caught.value
    assert error.rule == case.rule, case.why
    assert type(error) is all_rules()[case.rule].error
    assert isinstance(error, ggufkit.GGUFError)
    assert isinstance(error, ValueError)
    assert Path(error.path).parent == path.parent
    assert error.offset is not None
    assert error.remedy
    assert str(error).isprintable()


def read_everything(model: ggufkit.Model) -> None:
    """Decode all metadata and reach the bytes of all tensors."""
    with model:
        for value in model.metadata.values():
            repr(value)
            if not isinstance(value, str | bool | int | float):
                value.tolist()
        for tensor in model.tensors.values():
            assert tensor.raw().nbytes == tensor.nbytes
            if not tensor.type.is_opaque:
                assert tensor.numpy().shape == tensor.shape


# Truncation and damage at every place.


def test_truncated_file_is_called_truncated():
    assert isinstance(first_error(parse(b"", 0)), NotGGUFError)
    for size in range(1, len(RICH)):
        error = first_error(parse(RICH[:size], size))
        assert isinstance(error, TruncatedError), size
        assert error.offset <= size
    assert first_error(parse(RICH, len(RICH))) is None


def test_finding_for_truncated_data_says_how_much_is_missing(tmp_path):
    whole = Forge(pad_end=False).build()
    for missing in (1, 10, 40):
        path = tmp_path / "model.gguf"
        path.write_bytes(whole[:-missing])
        with pytest.raises(TruncatedError, match=f" {missing} bytes .* are missing"):
            ggufkit.open(path)


def first_error(header: Header) -> FormatError | None:
    return next((f.exception() for f in header.findings if f.severity == "error"), None)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_gives_a_header_and_printable_findings(data):
    whole = data.draw(st.sampled_from(SEEDS))
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 6))):
        if damaged:
            position = data.draw(st.integers(0, len(damaged) - 1))
            damaged[position] = data.draw(st.sampled_from([0, 1, 2, 8, 9, 0x7F, 0x80, 0xFF, 0x20]))
    header = parse(bytes(damaged), len(damaged))
    assert all(finding.message.isprintable() for finding in header.findings)
    is_cut = any(finding.rule == CUT for finding in header.findings)
    assert is_cut or header.data_offset + header.places.end <= header.nbytes


SEEDS = [case.files[ALONE] for case in CASES.values() if set(case.files) == {ALONE}]
SEEDS = [RICH, *(seed for seed in SEEDS if len(seed) < 10_000)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_after_the_magic_give_a_header(tail):
    for head in (b"GGUF", b"GGUF\3\0\0\0", b"GGUF\0\0\0\3"):
        header = parse(head + tail, len(head + tail))
        assert header.nbytes == len(head + tail)


# Limits, and the comparison with ggml, each file in a process of its own.


def run_each(script: str, folder: Path) -> dict[str, str]:
    """Run a script over all cases; it prints a name and a result for each."""
    command = [sys.executable, str(TESTS / "forging" / script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and address-space limits")
def test_check_needs_at_most_2_gib_and_20_seconds_for_every_file(forged):
    results = run_each("limited.py", forged)
    assert results == {case.name: case.verdict for case in CASES.values()}


# Where ggml's reader takes what we refuse or warn of, and why we differ.
LENIENT = {
    "architecture-missing": "only the model loader behind it asks for the key",
    "alignment-value": "it takes any power of two, and the specification multiples of 8",
    "bool-value": "any byte but zero is true to it",
    "data-truncated": "only the model loader behind it compares with the file's size",
    "key-nul": "it keeps the NUL, and every C string ends there",
    "key-size": "it reads up to 2^30 bytes",
    "key-utf8": "it does not look at text",
    "name-empty": "it lets one tensor have no name",
    "name-nul": "it keeps the NUL, and every C string ends there",
    "name-utf8": "it does not look at text",
    "quantization-version": "only converting tools ask for it",
    "shape-overflow": "it counts up to 2^63 elements, and leaves zero dimensions out",
    "split-type": "only the model loader behind it looks at these keys",
    "split-value": "only the model loader behind it looks at these keys",
    "string-utf8": "it does not look at text",
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_ggml_agrees_on_every_file_except_for_known_reasons(llama_cpp, forged):
    results = run_each("through_ggml.py", forged)
    alone = {name: case for name, case in CASES.items() if set(case.files) == {ALONE}}
    ours = {name for name, case in alone.items() if case.verdict == "accept"}
    theirs = {name for name in alone if results[name] == "loads"}
    assert ours <= theirs
    assert {alone[name].rule for name in theirs - ours} == set(LENIENT)
