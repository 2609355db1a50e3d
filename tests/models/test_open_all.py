"""All quants of a repository open with few requests and bytes, and headers stay on this disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import FormatError
from ggufkit.models.open_all import open_all
from ggufkit.remote.hub import header_cache
from ggufkit.remote.limits import FIRST_BYTES
from hub_server import HubServer, Repo, at_home
from shell import done
from shell import ggufkit as run
from small_llama import keys, tensors

QUANTS = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")
TOKENS = [f"token{number:06d}" for number in range(20_000)]


def content(folder, quant, **more):
    values = keys(
        general__name=quant,
        general__note="x" * (QUANTS.index(quant) * 7),
        tokenizer__ggml__tokens=TOKENS,
        tokenizer__ggml__token_type=np.ones(len(TOKENS), np.int32),
        **more,
    )
    values["general.after"] = quant * 3  # beyond the vocabulary
    arrays = tensors()
    arrays["token_embd.weight"] = np.zeros((len(TOKENS), 64), np.float32)
    return ggufkit.save(folder / "m.gguf", arrays, values)[0].read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quants")
    return {f"Tiny-{quant}.gguf": content(folder, quant) for quant in QUANTS}


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    with HubServer({"org/tiny": Repo(dict(files))}) as server:
        at_home(monkeypatch, tmp_path, server.endpoint)
        yield server


def seen(name="hf://org/tiny"):
    """Return what the headers of all models say."""
    with open_all(name) as models:
        return {
            name.name.rpartition(":")[2]: (
                model.metadata["general.name"],
                model.metadata["general.after"],
                list(model.metadata),
                list(model.metadata["tokenizer.ggml.tokens"]) == TOKENS,
                [(t.name, t.type, t.shape, t.offset) for t in model.tensors.values()],
            )
            for name, model in models
        }


def test_all_headers_are_those_of_their_files(hub, files):
    for quant, notes in seen().items():
        with ggufkit.open(files[f"Tiny-{quant}.gguf"]) as model:
            assert notes == (
                quant,
                quant * 3,
                list(model.metadata),
                True,
                [(t.name, t.type, t.shape, t.offset) for t in model.tensors.values()],
            )


def test_the_shared_vocabulary_comes_once(hub):
    assert len(seen()) == len(QUANTS)
    assert len(hub.hub.requests) == 1 + len(QUANTS)
    assert len(hub.cdn.requests) <= 2 * len(QUANTS)
    one = sum(map(len, TOKENS)) + 12 * len(TOKENS)
    assert hub.cdn.sent < FIRST_BYTES + one + (len(QUANTS) - 1) * (120 << 10)


def test_a_second_time_the_first_header_comes_from_this_disk(hub):
    first = seen()
    hub.forget()
    assert seen() == first
    assert len(hub.cdn.requests) <= 2 * (len(QUANTS) - 1)


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer__ggml__tokens": [*TOKENS[:-1], "token_other"]},
        {"tokenizer__ggml__tokens": ["other_first", *TOKENS[1:]]},
        {"tokenizer__ggml__tokens": TOKENS[:-1]},
        {"tokenizer__ggml__tokens": [*TOKENS[:10_000], "a_longer_token", *TOKENS[10_001:]]},
    ],
)
def test_another_vocabulary_is_noticed(hub, tmp_path, change):
    path = ggufkit.save(tmp_path / "m.gguf", tensors(), keys(general__name="odd", **change))[0]
    hub.repos["org/tiny"].files["Tiny-Q4_0.gguf"] = path.read_bytes()
    hub.store()
    with open_all("hf://org/tiny") as models_by_name:
        models = {name.name: model for name, model in models_by_name}
        odd = models["hf://org/tiny:Q4_0"]
        assert list(odd.metadata["tokenizer.ggml.tokens"]) == change["tokenizer__ggml__tokens"]
        assert len(odd.tensors) == len(tensors())


def test_list_shows_what_fits(hub):
    rows = done("list", "hf://org/tiny", "--memory", "1MiB", "--context", 64, "--json").json()
    assert [row["name"] for row in rows] == [f"hf://org/tiny:{quant}" for quant in QUANTS]
    for row in rows:
        alone = done("estimate", row["name"], "--memory", "1MiB", "--context", 64, "--json").json()
        assert (row["total"], row["fit"]) == (alone["total"], alone["fit"])
    assert done("list", "hf://org/tiny", "--memory", "1G").lines[-1].endswith("yes")
    assert "yes" not in done("list", "hf://org/tiny", "--memory", "1MiB").out


@pytest.mark.parametrize(
    "words", [("llama", "--memory", "8G"), ("hf://org/tiny", "--context", "9")]
)
def test_memory_is_for_repositories(hub, words):
    assert run("list", *words).code == 2


# Beginnings on this disk.


def cached_files(tmp_path):
    return list((tmp_path / "cache" / "ggufkit" / "headers").glob("*"))


def test_a_quant_opens_again_with_the_list_alone(hub, tmp_path):
    for requests in ((2, 1), (1, 0)):
        hub.forget()
        with ggufkit.open("hf://org/tiny:Q8_0") as model:
            assert model.metadata["general.after"] == "Q8_0" * 3
        assert (len(hub.hub.requests), len(hub.cdn.requests)) == requests
    (cached,) = cached_files(tmp_path)
    assert cached.stat().st_size < 1 << 20
    assert cached.parent.stat().st_mode & 0o777 == 0o700


def test_tensors_of_a_recalled_file_come_from_the_server(hub, files):
    done("inspect", "hf://org/tiny:Q8_0")
    with (
        ggufkit.open("hf://org/tiny:Q8_0") as model,
        ggufkit.open(files["Tiny-Q8_0.gguf"]) as whole,
    ):
        for name, tensor in model.tensors.items():
            np.testing.assert_array_equal(tensor.numpy(), whole.tensors[name].numpy())


def test_a_recalled_file_that_is_not_the_listed_one_is_an_error(hub, files):
    done("inspect", "hf://org/tiny:Q8_0")
    with ggufkit.open("hf://org/tiny:Q8_0") as model:
        changed = files["Tiny-Q8_0.gguf"][:-1] + b"\1"
        hub.repos["org/tiny"].files["Tiny-Q8_0.gguf"] = changed
        hub.store()
        with pytest.raises(FormatError, match="changed while it was in use"):
            next(iter(model.tensors.values())).numpy()


@pytest.mark.parametrize("spoil", [bytes.upper, lambda data: data[:50], lambda _: b"", bytes])
def test_spoiled_headers_are_fetched_again(hub, tmp_path, spoil):
    done("inspect", "hf://org/tiny:Q8_0")
    (cached,) = cached_files(tmp_path)
    cached.write_bytes(spoil(cached.read_bytes()))
    assert "Q8_0Q8_0Q8_0" in done("inspect", "hf://org/tiny:Q8_0").out


def test_a_beginning_of_another_file_is_only_as_harmful_as_that_file(hub, tmp_path):
    done("inspect", "hf://org/tiny:Q8_0")
    (cached,) = cached_files(tmp_path)
    cached.unlink()
    header_cache.store(cached.name, b"GGUF\3\0\0\0" + b"\xff" * 100)
    result = run("inspect", "hf://org/tiny:Q8_0")
    assert result.code == 1
    assert "error: hf://org/tiny/Tiny-Q8_0.gguf" in result.err


def test_nothing_is_kept_if_the_user_forbids_it(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("GGUFKIT_NO_CACHE", "1")
    done("inspect", "hf://org/tiny:Q8_0")
    assert not cached_files(tmp_path)


def test_a_folder_that_cannot_be_written_is_no_error(hub, tmp_path):
    (tmp_path / "cache").write_bytes(b"a file")
    done("inspect", "hf://org/tiny:Q8_0")
    assert (tmp_path / "cache").read_bytes() == b"a file"


def test_the_oldest_headers_go_first(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(header_cache, "MAX_BYTES", 3500)
    for number in range(6):
        header_cache.store(f"{number:064x}", bytes([number]) * 1000)
        path = tmp_path / "cache" / "ggufkit" / "headers" / f"{number:064x}"
        os.utime(path, (number, number))
    sizes = sorted(int(path.name, 16) for path in cached_files(tmp_path))
    assert sizes == [3, 4, 5]
    assert header_cache.lookup(f"{5:064x}") == bytes([5]) * 1000
