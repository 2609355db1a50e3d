"""Models on the Hub, on a stand-in for it: names, quants, logins, caches and offline mode."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import RemoteDeniedError, RemoteError, RemoteMissingError
from hub_server import COMMIT, HubServer, Repo, at_home
from shell import done
from shell import ggufkit as run
from small_llama import keys, tensors

QUANTS = ("Q2_K", "Q4_K_M", "UD-Q4_K_XL", "Q8_0", "BF16")


@pytest.fixture(scope="session")
def content(tmp_path_factory):
    """Files of a repository by path: a model in several quants, one as a set of shards."""
    folder = tmp_path_factory.mktemp("content")
    files = {"README.md": b"---\nlicense: mit\n---\n"}
    for quant in QUANTS:
        path = ggufkit.save(folder / "m.gguf", tensors(), keys(general__name=quant))[0]
        files[f"Tiny-{quant}.gguf"] = path.read_bytes()
    with ggufkit.open(path) as model:
        for shard in ggufkit.write(model, folder / "Tiny-F16.gguf", shard_tensors=9):
            files[f"F16/{shard.name}"] = shard.read_bytes()
    files["mmproj-F16.gguf"] = files["Tiny-Q8_0.gguf"]
    return files


@pytest.fixture
def hub(content, tmp_path, monkeypatch):
    repos = {
        "org/tiny": Repo(content),
        "org/gated": Repo(content, is_gated=True),
        "org/private": Repo(content, is_private=True),
        "org/checkpoint": Repo({"config.json": b"{}"}),
        "org/other": Repo({"a-Q5_0.gguf": content["Tiny-Q8_0.gguf"]}),
        "org/old": Repo(content, revisions=("v1.0", "refs/pr/7")),
    }
    with HubServer(repos) as server:
        at_home(monkeypatch, tmp_path, server.endpoint)
        yield server


def opened(name):
    with ggufkit.open(name) as model:
        return model.metadata["general.name"]


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("hf://org/tiny/Tiny-Q8_0.gguf", "Q8_0"),
        ("hf://org/tiny@main/Tiny-Q8_0.gguf", "Q8_0"),
        (f"hf://org/tiny@{COMMIT}/Tiny-Q8_0.gguf", "Q8_0"),
        ("hf://org/tiny:Q8_0", "Q8_0"),
        ("hf://org/tiny:q8_0", "Q8_0"),
        ("hf://org/tiny", "Q4_K_M"),
        ("hf://org/tiny/", "Q4_K_M"),
        ("hf://org/tiny:latest", "Q4_K_M"),
        ("hf://org/tiny:Q4_K_XL", "UD-Q4_K_XL"),
        ("hf://org/tiny:ud-q4_k_xl", "UD-Q4_K_XL"),
        ("hf://org/other", "Q8_0"),
        ("org/tiny:Q2_K", "Q2_K"),
        ("hf.co/org/tiny:Q2_K", "Q2_K"),
        ("huggingface.co/org/tiny", "Q4_K_M"),
        ("https://huggingface.co/org/tiny", "Q4_K_M"),
        ("https://huggingface.co/org/tiny/blob/main/Tiny-Q2_K.gguf", "Q2_K"),
        ("https://huggingface.co/org/tiny/resolve/main/Tiny-Q2_K.gguf?download=true", "Q2_K"),
        ("https://hf.co/org/tiny/tree/main/F16", "BF16"),
        ("hf://org/old@v1.0:Q8_0", "Q8_0"),
        ("hf://org/old@refs/pr/7:Q8_0", "Q8_0"),
        ("hf://org/old@refs%2Fpr%2F7/Tiny-Q8_0.gguf", "Q8_0"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_every_form_of_a_name_opens_the_model_that_it_means(name, quant):
    assert opened(name) == quant


@pytest.mark.parametrize(
    "name",
    ["hf://org/tiny:F16", "hf://org/tiny/F16", "hf://org/tiny/F16/Tiny-F16-00002-of-00003.gguf"],
)
def test_the_shards_of_a_quant_open_as_one_model(hub, name):
    with ggufkit.open(name) as model, ggufkit.open("hf://org/tiny:Q8_0") as whole:
        assert list(model.tensors) == list(whole.tensors)
        assert len(model.files) == 3
        for tensor, expected in zip(model.tensors.values(), whole.tensors.values(), strict=True):
            np.testing.assert_array_equal(tensor.numpy(), expected.numpy())


def test_a_file_takes_one_request_and_a_quant_two(hub):
    opened("hf://org/tiny/Tiny-Q8_0.gguf")
    assert (len(hub.hub.requests), len(hub.cdn.requests)) == (1, 1)
    hub.forget()
    opened("hf://org/tiny:Q8_0")
    assert (len(hub.hub.requests), len(hub.cdn.requests)) == (2, 1)


def test_a_local_file_of_the_name_comes_first(hub, tmp_path, content):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "tiny:Q8_0").write_bytes(content["Tiny-Q2_K.gguf"])
    assert opened("org/tiny:Q8_0") == "Q2_K"
    assert not hub.requests


def test_long_lists_come_in_pages(hub):
    hub.page = 3
    assert opened("hf://org/tiny:BF16") == "BF16"
    assert len(hub.hub.requests) > 4


def test_a_list_that_goes_on_at_another_server_is_refused(hub):
    hub.page = 3
    hub.hub.url = lambda path: f"http://127.0.0.2:9{path}"
    with pytest.raises(RemoteError, match="continues on another server"):
        opened("hf://org/tiny:BF16")


@pytest.mark.parametrize("size", [10**400, 1 << 63, -1, 1.5, True, "7", None])
def test_files_of_sizes_that_no_file_has_are_left_out(hub, size):
    hub._entry = lambda path, _: {"type": "file", "path": path, "size": size}
    with pytest.raises(RemoteMissingError, match="has no GGUF files"):
        opened("hf://org/tiny")


# What is missing.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf://org/tiny:Q3_K_S", "has no quant Q3_K_S.*hf://org/tiny:Q2_K, hf://org/tiny:Q4_K_M"),
        ("hf://org/tiny/Tiny-Q8.gguf", "has no file 'Tiny-Q8.gguf'.*Tiny-Q8_0.gguf"),
        ("hf://org/tiny/Q8/Tiny-Q8_0.gguf", "Did you mean Tiny-Q8_0.gguf"),
        ("hf://org/tiny/missing", "has no file 'missing'"),
        ("hf://org/tiny@v9/Tiny-Q8_0.gguf", "has no revision 'v9'"),
        ("hf://org/tiny@v9:Q8_0", "has no revision 'v9'"),
        ("hf://org/none:Q8_0", "no repository org/none that you may read.*set HF_TOKEN"),
        ("hf://org/none/x.gguf", "no repository org/none that you may read"),
        ("hf://org/private:Q8_0", "no repository org/private that you may read.*set HF_TOKEN"),
        ("hf://org/checkpoint", "org/checkpoint has no GGUF files.*ggufkit convert"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_is_missing_is_said_with_what_there_is(name, message):
    with pytest.raises(RemoteMissingError, match=message):
        ggufkit.open(name)


@pytest.mark.parametrize(
    "name",
    [
        "hf://tiny",
        "hf://",
        "hf://org/",
        "hf://org/tiny/../x.gguf",
        "hf://org/tiny//x.gguf",
        "hf://datasets/org/tiny",
        "hf://org/tiny:Q8 0",
        "hf://org/ti ny",
        "hf://org/tiny/a\x1b[2J.gguf",
        "hf://org/..",
    ],
)
def test_a_text_that_is_no_name_is_refused_without_a_request(hub, name):
    with pytest.raises(RemoteError, match="is not the name of a model on the Hub"):
        ggufkit.open(name)
    assert not hub.requests


# Logins.


@pytest.mark.parametrize("name", ["hf://org/gated:Q8_0", "hf://org/gated/Tiny-Q8_0.gguf"])
def test_a_gated_repository_says_where_to_ask_for_access(hub, name):
    page = f"{hub.endpoint}/org/gated"
    with pytest.raises(RemoteDeniedError, match=f"is gated.*{page}, then set HF_TOKEN"):
        ggufkit.open(name)


@pytest.mark.parametrize("name", ["hf://org/gated:Q8_0", "hf://org/private/Tiny-Q8_0.gguf"])
def test_the_token_opens_what_is_gated_or_private(hub, name, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", f" {hub.token}\n")
    assert opened(name) == "Q8_0"
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "cache" / "huggingface").mkdir(parents=True)
    (tmp_path / "cache" / "huggingface" / "token").write_text(f"{hub.token}\n")
    assert opened(name) == "Q8_0"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with pytest.raises(RemoteError):
        opened(name)
    (tmp_path / "mine").write_text(hub.token)
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "mine"))
    assert opened(name) == "Q8_0"


def test_the_token_goes_to_the_hub_alone_and_into_no_message(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    opened("hf://org/tiny:Q8_0")
    assert all("authorization" in request.headers for request in hub.hub.requests)
    assert not any("authorization" in request.headers for request in hub.cdn.requests)
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    result = run("inspect", "hf://org/tiny:Q8_0")
    assert result.code == 1
    assert "does not accept your token" in result.err
    assert "s3cret" not in result.err


def test_other_processes_log_in_with_their_own_token(hub, monkeypatch, content):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    with ggufkit.open("hf://org/private:Q8_0") as model:
        sent = pickle.dumps(next(iter(model.tensors.values())).source)
        assert hub.token.encode() not in sent
        with ggufkit.open(content["Tiny-Q8_0.gguf"]) as whole:
            expected = next(iter(whole.tensors.values())).source.read(0, 1)
        np.testing.assert_array_equal(pickle.loads(sent).read(0, 1), expected)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(RemoteError, match="org/private"):
        pickle.loads(sent)


def test_a_token_that_would_add_headers_is_refused(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_a\r\nX-Evil: 1")
    with pytest.raises(RemoteDeniedError, match="characters that no token has") as caught:
        opened("hf://org/tiny:Q8_0")
    assert "Evil" not in str(caught.value)
    assert not hub.requests


def test_signatures_of_the_cdn_are_in_no_message(hub, monkeypatch):
    hub.cdn.files.clear()
    result = run("inspect", "hf://org/tiny:Q8_0")
    assert result.code == 1
    assert "s3cret" not in result.err


def test_a_busy_hub_is_asked_again(hub):
    hub.busy = 2
    assert opened("hf://org/tiny:Q8_0") == "Q8_0"


# The cache of huggingface_hub, and offline mode.


@pytest.fixture
def cached(tmp_path, content):
    """Put files into the cache as huggingface_hub does, and return where."""

    def put(*paths, repo="org/tiny", ref="main"):
        folder = tmp_path / "cache" / "huggingface" / "hub" / f"models--{repo.replace('/', '--')}"
        for path in paths:
            blob = folder / "blobs" / path.replace("/", "-")
            blob.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(content[path])
            link = folder / "snapshots" / COMMIT / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blob)
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(COMMIT)

    return put


@pytest.mark.parametrize(
    "name",
    [
        "hf://org/tiny/Tiny-Q8_0.gguf",
        "hf://org/tiny:q8_0",
        "org/tiny:Q8_0",
        f"hf://org/tiny@{COMMIT}:Q8_0",
    ],
)
def test_a_cached_file_is_opened_without_a_request(hub, cached, name):
    cached("Tiny-Q8_0.gguf")
    assert opened(name) == "Q8_0"
    assert not hub.requests


def test_of_a_cached_repository_without_its_usual_quant_the_hub_decides(hub, cached):
    cached("Tiny-Q8_0.gguf")
    assert opened("hf://org/tiny") == "Q4_K_M"
    cached("Tiny-Q4_K_M.gguf")
    hub.forget()
    assert opened("hf://org/tiny") == "Q4_K_M"
    assert not hub.requests


def test_a_set_with_a_shard_in_the_cache_comes_from_the_hub(hub, cached):
    cached("F16/Tiny-F16-00001-of-00003.gguf")
    with ggufkit.open("hf://org/tiny:F16") as model:
        assert len(model.files) == 3
    assert hub.requests


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_only_the_cache_is_opened(hub, cached, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    cached("Tiny-Q8_0.gguf")
    assert opened("hf://org/tiny:Q8_0") == "Q8_0"
    assert opened("hf://org/tiny") == "Q8_0"
    with pytest.raises(RemoteError, match=f"{name} forbids to ask the Hub"):
        opened("hf://org/tiny:Q2_K")
    with pytest.raises(RemoteError, match=f"{name} forbids"):
        opened("hf://org/tiny/Tiny-Q2_K.gguf")
    assert not hub.requests


def test_the_cache_may_lie_elsewhere(hub, cached, monkeypatch, tmp_path):
    cached("Tiny-Q8_0.gguf")
    monkeypatch.setenv("HF_HUB_OFFLINE", "true")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    with pytest.raises(RemoteError):
        opened("hf://org/tiny:Q8_0")
    monkeypatch.setenv("HF_HUB_CACHE", "$XDG_CACHE_HOME/huggingface/hub")
    assert opened("hf://org/tiny:Q8_0") == "Q8_0"


# Lists.


def test_list_shows_the_quants_of_a_repository_with_their_sizes(hub, content):
    rows = done("list", "hf://org/tiny", "--json").json()
    names = ["F16", *QUANTS]
    assert sorted(row["name"] for row in rows) == sorted(
        ["hf://org/tiny/mmproj-F16.gguf", *(f"hf://org/tiny:{quant}" for quant in names)]
    )
    sizes = {row["name"]: row["nbytes"] for row in rows}
    assert sizes["hf://org/tiny:Q8_0"] == len(content["Tiny-Q8_0.gguf"])
    shards = [data for path, data in content.items() if path.startswith("F16/")]
    assert sizes["hf://org/tiny:F16"] == sum(map(len, shards))
    assert len(hub.requests) == 1
    for row in rows:
        assert opened(row["name"])


def test_list_of_one_quant_and_of_what_is_not_there(hub):
    assert [model.name for model in ggufkit.find_models("org/tiny:q8_0")] == ["hf://org/tiny:Q8_0"]
    result = run("list", "hf://org/tiny:Q9")
    assert result.code == 1
    assert "has no quant Q9" in result.err
    assert "hf://org/tiny:Q2_K" in result.err


def test_list_of_a_name_that_may_be_a_repository_says_how_to_ask_the_hub(hub):
    result = done("list", "org/tiny")
    assert "`ggufkit list hf://org/tiny` lists a repository on the Hub" in result.err
    assert not hub.requests
    assert "Hub" not in done("list", "tiny").err


# Every command that reads.


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "IN"),
        ("inspect", "IN", "--bytes"),
        ("check", "IN"),
        ("check", "IN", "--data"),
        ("plan", "IN"),
        ("estimate", "IN"),
        ("diff", "IN", "hf://org/tiny:Q2_K"),
        ("hash", "IN", "--content"),
        ("hash", "IN", "--sha256sum"),
        ("name", "IN"),
        ("copy", "IN", "OUT.gguf"),
        ("select", "IN", "OUT.gguf", "--keep", "re:norm"),
        ("quantize", "IN", "OUT.gguf", "Q8_0", "--allow-requantize"),
        ("edit", "IN", "--set", "general.name=x", "--output", "OUT.gguf"),
        ("list", "IN"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["hf://org/tiny:Q8_0", "org/tiny:Q8_0"])
def test_commands_read_from_the_hub_as_from_the_disk(hub, words, name, content, tmp_path):
    (tmp_path / "Tiny-Q8_0.gguf").write_bytes(content["Tiny-Q8_0.gguf"])
    local = [str(tmp_path / "Tiny-Q8_0.gguf") if word == "IN" else word for word in words]
    result = run(*[name if word == "IN" else word for word in words])
    assert result.code in (0, 1), result.err
    assert "Traceback" not in result.err
    if words[0] in ("check", "plan", "estimate", "hash", "diff"):
        expected = run(*local)
        assert result.code == expected.code
        assert len(result.lines) == len(expected.lines)
    elif words[0] != "name":
        assert result.code == 0, result.err
