"""The page edits only files that the command opened, only as the preview showed, and undoes it."""

from __future__ import annotations

import errno
import json
import os
import shutil

import numpy as np
import pytest

import ggufkit
from ggufkit.edits import in_place
from ggufkit.system import edit_journal
from ggufkit.view.page_model import PageModel
from ggufkit.view.serving.routes import MAX_BODY

NAME = {"key": "general.name", "value": "new name"}
SET = {"set": [NAME]}
METADATA = {
    "general.architecture": "llama",
    "general.name": "old",
    "general.tags": ["a", "b"],
    "x.big": ggufkit.typed("uint64", 2**64 - 1),
    "x.float": 0.1,
    "tokenizer.chat_template": "one\ntwo\nthree\n",
    "x.windows": "one\r\ntwo\r\n",
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.gguf"
    tensors = {"a.weight": np.arange(4096, dtype=np.float32).reshape(64, 64)}
    ggufkit.write(ggufkit.model(tensors, METADATA), path)
    return path


@pytest.fixture
def page(path):
    return PageModel(str(path), ggufkit.open(path))


@pytest.fixture
def server(run_server, page):
    with run_server(page, edits=True) as running:
        yield running


def metadata_of(path):
    with ggufkit.open(path) as model:
        return model.metadata.to_dict()


def preview(server, request):
    answer = server.post("api/edit-preview", request)
    assert answer.status == 200
    return answer.json


def edit(server, request):
    """Carry out what the preview shows."""
    return server.post("api/edit-apply", request | {"state": preview(server, request)["state"]})


# What an edit does.


def test_an_edit_is_what_the_preview_showed_and_undo_restores_every_byte(server, path):
    before = path.read_bytes()
    (change,) = preview(server, SET)["changes"]
    assert (change["kind"], change["before"], change["after"]) == ("changed", "old", "new name")
    assert path.read_bytes() == before
    assert edit(server, SET).json == {"changes": 1}
    assert metadata_of(path)["general.name"] == "new name"
    assert server.ask("api/value?key=1").json["value"] == "new name"  # the page shows it
    (undone,) = server.ask("api/edit").json["undo"]
    assert (undone["before"], undone["after"]) == ("new name", "old")
    assert edit(server, {"undo": True}).json == {"changes": 1}
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("request_", "key", "value"),
    [
        ({"set": [{"key": "x.new", "value": "7", "type": "uint8"}]}, "x.new", 7),
        ({"set": [{"key": "x.new", "value": "07", "type": "string"}]}, "x.new", "07"),
        ({"set": [{"key": "x.big", "value": str(2**64 - 2)}]}, "x.big", 2**64 - 2),
        ({"set": [{"key": "x.float", "value": "1e-5"}]}, "x.float", 1e-5),
        ({"set": [{"key": "general.tags", "value": '["c"]'}]}, "general.tags", ["c"]),
        ({"set": [{"key": "general.tags[1]", "value": "ä"}]}, "general.tags", ["a", "ä"]),
        ({"drop": ["x.float"]}, "x.float", None),
    ],
)
def test_values_get_the_type_of_their_key_or_their_own(server, path, request_, key, value):
    assert edit(server, request_).json == {"changes": 1}
    assert metadata_of(path).get(key) == value
    assert np.array_equal(
        ggufkit.open(path)["a.weight"].numpy(), np.arange(4096).reshape(64, 64).astype("f4")
    )


def test_the_preview_shows_the_lines_of_a_template_and_the_items_of_an_array(server):
    row = {"key": "tokenizer.chat_template", "value": "one\n2\nthree\n"}
    (change,) = preview(server, {"set": [row]})["changes"]
    assert [line["in"] for line in change["lines"]] == ["both", "before", "after", "both"]
    row = {"key": "general.tags[0]", "value": "c"}
    (change,) = preview(server, {"set": [row]})["changes"]
    assert (change["items"], change["item_count"]) == ([[0, "a", "c"]], 1)


@pytest.mark.parametrize("number", range(len(METADATA)))
def test_the_text_of_a_value_gives_the_same_value(server, number):
    value = server.ask(f"api/edit-text?key={number}").json
    row = {"key": value["key"], "value": value["text"]}
    assert preview(server, {"set": [row]})["changes"] == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (["a"] * 20_000, "is too long"),
        ("a" * (1 << 21), "is too long"),
        ("a\r\nb\n", "several kinds of line ends"),
        ("a\rb", "several kinds of line ends"),
    ],
    ids=["items", "characters", "ends", "returns"],
)
def test_a_value_that_a_form_cannot_hold_is_edited_elsewhere(run_server, model_page, value, reason):
    page = model_page({"a": np.zeros(32, np.float32)}, {"key": value})
    with run_server(page, edits=True) as server:
        assert reason in server.ask("api/edit-text?key=0").json["error"]


# Who may edit, and what.


@pytest.mark.parametrize("name", ["edit-preview", "edit-apply", "edit", "edit-text"])
def test_without_the_option_there_are_no_such_routes(run_server, page, name):
    with run_server(page) as server:
        assert server.post(f"api/{name}", SET).status == 404
        assert server.ask(f"api/{name}").status == 404
        assert "editable" not in server.ask("api/models").json["models"][0]


@pytest.mark.parametrize("name", ["edit-preview", "edit-apply"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_another_page_cannot_edit(server, path, name, headers, status):
    before = path.read_bytes()
    assert server.post(f"api/{name}", SET, headers).status == status
    assert path.read_bytes() == before


def test_nobody_edits_without_the_token_or_by_get(server, path):
    before, body = path.read_bytes(), json.dumps(SET).encode()
    json_ = {"Content-Type": "application/json"}
    for place in ("/api/edit-apply", "/wrong/api/edit-apply", "//api/edit-apply"):
        answer = server.ask(place, method="POST", headers=json_, body=body, raw=True)
        assert answer.status == 403
    assert server.ask("api/edit-apply").status == 405
    assert server.ask("api/edit-apply", method="PUT", headers=json_, body=body).status == 405
    assert path.read_bytes() == before


def test_a_long_body_is_refused(server, path):
    before = path.read_bytes()
    row = {"key": "general.name", "value": "a" * (MAX_BODY + 1)}
    assert server.post("api/edit-apply", {"set": [row]}).status == 413
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"set": []},
        {"set": {"general.name": "x"}},
        {"set": [{"key": "general.name"}]},
        {"set": [{"key": 7, "value": "x"}]},
        {"set": [{"key": "general.name", "value": 7}]},
        {"set": [NAME, NAME]},
        {"set": [NAME | {"path": "/etc/passwd"}]},
        {"set": [NAME], "path": "/etc/passwd"},
        {"set": [NAME], "force": True},
        {"set": [NAME] * 101},
        {"set": [{"key": "x", "value": "1", "type": "uint128"}]},
        {"set": [{"key": "x", "value": "1", "type": "array[array[array]]"}]},
        {"set": [{"key": "x", "value": "[" * 100_000, "type": "array[string]"}]},
        {"set": [{"key": "x", "value": "1"}]},
        {"set": [{"key": "x", "value": "9" * 5000, "type": "uint64"}]},
        {"set": [{"key": "x", "value": "-1", "type": "uint8"}]},
        {"set": [{"key": "", "value": "1", "type": "uint8"}]},
        {"set": [{"key": "x\x00", "value": "\ud800", "type": "string"}]},
        {"drop": ["general.architecture"]},
        {"set": [{"key": "general.alignment", "value": "64", "type": "uint32"}]},
        {"drop": ["no.such"]},
        {"drop": [["general.name"]]},
        {"drop": "general.name"},
        {"undo": 1},
        {"undo": True},
        {"undo": True, "set": [NAME]},
    ],
    ids=lambda request_: json.dumps(request_)[:60],
)
def test_wrong_edits_get_an_answer_in_words_and_change_nothing(server, path, request_):
    before = path.read_bytes()
    for name in ("edit-preview", "edit-apply"):
        answer = server.post(f"api/{name}", request_)
        assert answer.status in {200, 422}
        assert answer.json["error"]
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("state", [None, "", "0" * 64, 7, ["x"]])
def test_an_edit_that_was_not_previewed_is_refused(server, path, state):
    before = path.read_bytes()
    answer = server.post("api/edit-apply", SET | ({} if state is None else {"state": state}))
    assert "not the one that was previewed" in answer.json["error"]
    state = preview(server, {"set": [NAME | {"value": "other"}]})["state"]
    assert "not the one" in server.post("api/edit-apply", SET | {"state": state}).json["error"]
    assert path.read_bytes() == before


def test_the_same_edit_is_not_carried_out_twice(server, path):
    request = SET | {"state": preview(server, SET)["state"]}
    assert server.post("api/edit-apply", request).json == {"changes": 1}
    after = path.read_bytes()
    assert server.post("api/edit-apply", request).json["error"]
    assert path.read_bytes() == after


def test_links_pipes_and_other_formats_are_only_shown(run_server, path, tmp_path):
    (tmp_path / "link.gguf").symlink_to(path)
    model = ggufkit.model({"a": np.zeros(32, np.float32)}, METADATA)
    pages = [
        PageModel(str(tmp_path / "link.gguf"), ggufkit.open(tmp_path / "link.gguf")),
        PageModel("https://example.org/m.gguf", model),
        PageModel("checkpoint", model),
    ]
    before = path.read_bytes()
    with run_server(*pages, edits=True) as server:
        flags = [row.get("editable") for row in server.ask("api/models").json["models"]]
        assert flags == [True, None, True]
        for number in range(3):
            assert server.ask(f"api/edit?model={number}").json["reason"]
            assert server.post(f"api/edit-preview?model={number}", SET).json["error"]
            assert server.post(f"api/edit-apply?model={number}", SET).json["error"]
        assert server.post("api/edit-apply?model=3", SET).status == 422
    assert path.read_bytes() == before


# Files that change meanwhile, and edits that fail.


def written(path):
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\1\2\3\4")
    os.utime(path, ns=(1, 1))


def replaced(path):
    shutil.copy2(path, path.with_suffix(".copy")).replace(path)


def edited(path):
    ggufkit.edit_in_place(path, set={"general.name": "by another program"})


@pytest.mark.parametrize("change", [written, replaced, edited, os.unlink])
def test_a_file_that_changed_meanwhile_is_not_written(server, path, change):
    request = SET | {"state": preview(server, SET)["state"]}
    change(path)
    before = path.read_bytes() if path.exists() else None
    for name in ("edit-preview", "edit-apply"):
        answer = server.post(f"api/{name}", request).json
        assert "changed on disk since the page opened it; nothing was written" in answer["error"]
        assert "again" in answer["remedy"]
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_change_in_the_last_moment_is_noticed(server, path, monkeypatch):
    request = SET | {"state": preview(server, SET)["state"]}
    settle = in_place.settle

    def late(target):
        monkeypatch.setattr(in_place, "settle", settle)
        edited(path)
        settle(target)

    monkeypatch.setattr(in_place, "settle", late)
    assert "changed during the edit" in server.post("api/edit-apply", request).json["error"]
    assert metadata_of(path)["general.name"] == "by another program"


def test_an_edit_that_fails_leaves_the_file_and_the_page_whole(server, path, monkeypatch):
    before = path.read_bytes()
    request = SET | {"state": preview(server, SET)["state"]}

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(edit_journal, "publish", full)
    assert "No space left" in server.post("api/edit-apply", request).json["error"]
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert server.ask("api/value?key=1").json["value"] == "old"
    assert edit(server, SET).json == {"changes": 1}


def test_a_set_is_edited_in_its_first_shard(run_server, tmp_path):
    tensors = {f"t{n}": np.full(32, n, np.float32) for n in range(4)}
    paths = ggufkit.model(tensors, METADATA).write(tmp_path / "set.gguf", shard_tensors=2)
    page = PageModel(str(paths[1]), ggufkit.open(paths[1]))
    others = [path.read_bytes() for path in paths[1:]]
    with run_server(page, edits=True) as server:
        assert edit(server, SET).json == {"changes": 1}
        assert server.ask("api/overview").status == 200
    assert metadata_of(paths[0])["general.name"] == "new name"
    assert [path.read_bytes() for path in paths[1:]] == others


# In a browser.


@pytest.mark.browser
def test_a_key_is_edited_and_the_edit_undone_in_the_browser(tab, path):
    before = path.read_bytes()
    page = tab.show("metadata", 0, q="general.name")
    page.get_by_text("general.name").click()
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_label("Value", exact=True).fill("<b>new</b>")
    page.get_by_role("button", name="Show the changes").click()
    page.wait_for_selector(".changes ins")
    assert "old" in page.locator(".changes del").text_content()
    assert "<b>new</b>" in page.locator(".changes ins").text_content()
    assert path.read_bytes() == before
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector(".short:has-text('<b>new</b>')")  # the page was loaded again
    assert metadata_of(path)["general.name"] == "<b>new</b>"
    page.get_by_role("button", name="Undo the last edit").click()
    page.wait_for_selector(".changes ins")
    assert "old" in page.locator(".changes ins").text_content()
    page.get_by_role("button", name="Undo", exact=True).click()
    page.wait_for_selector(".short:has-text('old')")
    assert path.read_bytes() == before


@pytest.mark.browser
def test_a_key_is_added_and_a_refusal_shown_in_the_browser(tab, path):
    page = tab.show("metadata", 0)
    page.get_by_role("button", name="Add a key").click()
    page.get_by_label("Key", exact=True).fill("x.new")
    page.get_by_label("Type").select_option("uint8")
    page.get_by_label("Value", exact=True).fill("300")
    page.get_by_role("button", name="Show the changes").click()
    assert "300" in page.get_by_role("alert").text_content()
    page.get_by_label("Value", exact=True).fill("30")
    page.get_by_role("button", name="Show the changes").click()
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("button:not([disabled]):has-text('Undo the last edit')")  # a new page
    assert metadata_of(path)["x.new"] == 30
    edited(path)
    page.get_by_role("button", name="Undo the last edit").click()
    assert "changed on disk" in page.get_by_role("alert").text_content()
    assert metadata_of(path)["general.name"] == "by another program"


@pytest.mark.browser
def test_the_ends_of_lines_are_kept_in_the_browser(tab, path):
    page = tab.show("metadata", 0, q="x.windows")
    page.get_by_text("x.windows").click()
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_label("Value", exact=True).fill("one\n2\n")
    page.get_by_role("button", name="Show the changes").click()
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector(".short:has-text('2')")
    assert metadata_of(path)["x.windows"] == "one\r\n2\r\n"
