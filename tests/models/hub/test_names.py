"""The parser of names on the Hub: any text is a name or a typed error, and names come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.errors import RemoteError
from ggufkit.models.hub.names import HubName, is_hub_name, parse_hub_name

ODD = st.text(alphabet="hf:/@%.~-_ \\\n\0aQ4K", max_size=40)
PART = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}[A-Za-z0-9]", fullmatch=True)
FILE = st.from_regex(r"[A-Za-z0-9 +-]{1,8}(/[A-Za-z0-9 +-]{1,8}){0,3}\.gguf", fullmatch=True)


@given(
    st.one_of(ODD, st.text(max_size=60)), st.sampled_from(["", "hf://", "hf://org/repo", "hf.co/"])
)
def test_any_text_is_a_name_or_a_typed_error(text, prefix):
    is_hub_name(prefix + text)
    try:
        name = parse_hub_name(prefix + text)
    except RemoteError:
        return
    assert name.repository.count("/") == 1
    for part in (*name.repository.split("/"), *name.path.split("/")):
        assert part not in ("..", ".")
    whole = "".join(name)
    assert whole.isprintable()
    assert "\\" not in whole
    assert parse_hub_name(str(name)) == name


@given(PART, PART, FILE, st.sampled_from(["main", "v1.0", "refs/pr/3"]))
def test_a_name_of_a_file_comes_back(org, repo, path, revision):
    if org in ("datasets", "spaces", "models", "api"):
        return
    name = HubName(f"{org}/{repo}", revision, path)
    assert parse_hub_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "models/tiny.gguf",
        "tiny.gguf",
        "./org/tiny:Q8_0",
        "/org/tiny:Q8_0",
        "C:/models/tiny",
        "C:\\models\\tiny.gguf",
        "org/tiny",
        "a/b/c:Q8_0",
        "ollama:llama3.2:1b",
        "hf:org/tiny:Q8_0",
        "https://example.org/org/tiny",
        "https://huggingface.co.example.org/org/tiny",
        "https://huggingface.co/api/models",
        "https://huggingface.co/datasets/org/tiny/resolve/main/x.gguf",
        "ftp://huggingface.co/org/tiny",
        "s3://org/tiny",
    ],
)
def test_paths_and_other_names_are_not_of_the_hub(text):
    assert not is_hub_name(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://Org/Repo.v2-GGUF:Q4_K_M", HubName("Org/Repo.v2-GGUF", tag="Q4_K_M")),
        ("hf://o/r/a b/c.gguf", HubName("o/r", path="a b/c.gguf")),
        ("HF://o/r", HubName("o/r")),
        ("https://huggingface.co/o/r/blob/main/a%20b.gguf#x", HubName("o/r", path="a b.gguf")),
        ("https://huggingface.co/o/r?show_file_info=x.gguf", HubName("o/r")),
        (
            "https://huggingface.co/o/r/resolve/refs%2Fpr%2F1/x.gguf",
            HubName("o/r", "refs/pr/1", "x.gguf"),
        ),
        ("hf.co/o/r:latest", HubName("o/r")),
    ],
)
def test_names_have_their_parts(text, expected):
    assert is_hub_name(text)
    assert parse_hub_name(text) == expected
