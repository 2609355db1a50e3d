"""What an object store answers is no more than a line of an error."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ggufkit.errors import RemoteError
from ggufkit.release import publish


def test_a_refusal_of_megabytes_is_cut(tmp_path, monkeypatch):
    def put(*_):
        raise OSError("refused: " + "x" * (1 << 20))

    store = SimpleNamespace(put=put, from_url=lambda *_, **__: None)
    monkeypatch.setattr(publish, "library", lambda *_: store)
    with pytest.raises(RemoteError, match=r"README\.md cannot be written: refused: x+") as caught:
        publish.publisher("s3://bucket/folder", public=False).put([tmp_path / "README.md"], "")
    assert len(str(caught.value)) < 2 * publish.MAX_TEXT
