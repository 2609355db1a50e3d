"""All quants of a repository open with few requests and bytes."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.models.open_all import open_all
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
