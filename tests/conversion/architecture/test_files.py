"""The architecture files that ggufkit brings: a fact stands in one of them."""

from __future__ import annotations

from importlib import resources

from ggufkit import _toml

FOLDER = resources.files("ggufkit.conversion.architecture") / "files"
FILES = {
    path.name.removesuffix(".toml"): _toml.loads(path.read_text("utf-8"))
    for path in FOLDER.iterdir()
    if path.name.endswith(".toml")
}
# An entry that is written again comes last: here the order of the keys is llama.cpp's.
MOVED = {("gemma4-dspark", "metadata", "block_size")}


def entries(name: str) -> dict[tuple[str, str], object]:
    """Return the entries of all tables of a file, with those that it inherits."""
    file = FILES[name]
    parent = entries(file["like"]) if "like" in file else {}
    inherited = {key: value for key, value in parent.items() if key[0] not in file.get("fresh", [])}
    return inherited | own_entries(name)


def own_entries(name: str) -> dict[tuple[str, str], object]:
    tables = {table: own for table, own in FILES[name].items() if isinstance(own, dict)}
    return {(table, key): value for table, own in tables.items() for key, value in own.items()}


def test_no_file_repeats_what_it_inherits():
    repeated = [
        (name, *key)
        for name, file in FILES.items()
        if "like" in file
        for key, value in own_entries(name).items()
        if key[0] not in file.get("fresh", []) and entries(file["like"]).get(key, ...) == value
    ]
    assert len(FILES) > 150
    assert {*repeated} <= MOVED
