"""URLs: their parts, names of other files beside them, and how they are shown."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.errors import RemoteError
from ggufkit.remote.url import Url, UrlPath, redacted, scheme_of


@given(st.text() | st.text().map(lambda text: f"http://{text}"))
def test_any_text_is_a_url_or_an_error(text):
    try:
        url = Url.parse(text)
    except RemoteError:
        return
    assert url.scheme in {"http", "https"}
    assert 0 < url.port < 1 << 16
    assert url.target.isascii()
    assert not set(url.target + url.host) & set(" \r\n\t\0")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text("abc%?#@/: \r\n"))
def test_requests_cannot_be_split_by_a_url(path, query):
    try:
        url = Url.parse(f"http://host/{path}?{query}")
    except RemoteError:
        return
    assert url.full.isprintable()
    assert " " not in url.full


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("HTTP://Host/a b", "host", 80, "/a%20b"),
        ("https://host", "host", 443, "/"),
        ("https://host:444/x?y=%2F#part", "host", 444, "/x?y=%2F"),
        ("http://[::1]:8/x", "::1", 8, "/x"),
        ("http://bücher.example/ü", "xn--bcher-kva.example", 80, "/%C3%BC"),
    ],
)
def test_parts(text, host, port, target):
    url = Url.parse(text)
    assert (url.host, url.port, url.target) == (host, port, target)


@pytest.mark.parametrize(
    "text", ["", "x", "http://", "http://h:99999/", "http://h:x/", "file:///x", "http://[::1/x"]
)
def test_what_is_no_url_is_an_error(text):
    with pytest.raises(RemoteError):
        Url.parse(text)


def test_another_file_beside_it():
    url = Url.parse("https://h/a/model-00001-of-00002.gguf?key=1")
    assert url.name == "model-00001-of-00002.gguf"
    assert url.with_name("b c.gguf").full == "https://h/a/b%20c.gguf?key=1"


def test_what_is_shown_has_no_secrets():
    text = "https://me:hush@h/a%20b.gguf?secret=1#x"
    assert str(Url.parse(text)) == "https://h/a b.gguf"
    assert redacted(text) == "https://h/a%20b.gguf"


def test_a_path_shows_its_url():
    path = UrlPath("https://h/a/m.gguf")
    assert str(path) == "https://h/a/m.gguf"
    assert str(path.parent) == "https://h/a"
    assert str(path.parent / "n.gguf") == "https://h/a/n.gguf"
    assert (path.name, path.suffix, path.exists()) == ("m.gguf", ".gguf", False)
    assert str(pickle.loads(pickle.dumps(path))) == str(path)


def test_schemes():
    assert scheme_of("S3://x") == "s3"
    assert not any(scheme_of(name) for name in ("C:\\x", "hf:x", "/a://b", "a.gguf", 3))
