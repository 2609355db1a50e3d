"""The models among the files of a repository, whatever their names claim."""

from __future__ import annotations

from ggufkit.format.file_name import shard_name
from ggufkit.models.hub import repository
from ggufkit.remote.hub.repo_file import RepoFile


def files(*names):
    return [RepoFile(name, 10) for name in names]


def test_a_set_with_all_its_shards_is_a_model():
    names = [f"a/{shard_name('m-Q8_0', number, 3)}" for number in range(3)]
    (model,) = repository.model_sets(files(*reversed(names)))
    assert [file.path for file in model.files] == names
    assert (model.quant, model.nbytes) == ("Q8_0", 30)


def test_a_set_without_one_of_its_shards_is_no_model():
    names = [shard_name("m", number, 3) for number in range(3)]
    for missing in range(3):
        assert not repository.model_sets(files(*names[:missing], *names[missing + 1 :]))


def test_names_that_claim_many_shards_cost_nothing(monkeypatch):
    count = [0]

    def counted(*args):
        count[0] += 1
        return shard_name(*args)

    monkeypatch.setattr(repository, "shard_name", counted)
    names = [f"m{number}-00001-of-99999.gguf" for number in range(100)]
    assert not repository.model_sets(files(*names))
    assert count[0] <= 2 * len(names)


def test_a_name_of_no_shards_is_a_file():
    (model,) = repository.model_sets(files("m-00001-of-00000.gguf"))
    assert model.path == "m-00001-of-00000.gguf"
