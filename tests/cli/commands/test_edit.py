"""The command `edit`: options to edits, what is shown, and which exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit as api
from rule_groups import STRUCTURE
from shell import done, ggufkit

TOKENS = ["<s>", "</s>", "a", "b"]
PLAIN = {
    "general.architecture": "llama",
    "general.name": "old",
    "llama.context_length": 64,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "line one\nline two\n",
    "my.small": np.uint8(7),
    "my.sizes": [1, 2, 3],
    "my.words": ["a", "b"],
    "my.sure": True,
}
NESTED = "my.new:array[array[int8]]=[[1],[]]"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    api.save(path, {"token_embd.weight": np.zeros((4, 8), np.float32)}, PLAIN)
    return path


def metadata(path):
    with api.open(path) as model:
        return {
            key: (model.metadata.type_name(key), _plain(model.metadata[key]))
            for key in model.metadata
        }


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize(
    ("arguments", "key", "expected"),
    [
        (["--set", "general.name=a=b"], "general.name", ("string", "a=b")),
        (["--set", "general.name=7"], "general.name", ("string", "7")),
        (["--set", "general.name="], "general.name", ("string", "")),
        (["--set", "llama.context_length=0x80"], "llama.context_length", ("uint32", 128)),
        (["--set", "llama.rope.freq_base=5"], "llama.rope.freq_base", ("float32", 5.0)),
        (["--set", "my.sure=False"], "my.sure", ("bool", False)),
        (["--set", "my.sizes=[9]"], "my.sizes", ("array[uint32]", [9])),
        (["--set", "my.sizes[-1]=9"], "my.sizes", ("array[uint32]", [1, 2, 9])),
        (["--set", "my.words[1]=7"], "my.words", ("array[string]", ["a", "7"])),
        (["--set", "my.new=7"], "my.new", ("uint32", 7)),
        (["--set", "my.new=-7"], "my.new", ("int32", -7)),
        (["--set", "my.new=0.5"], "my.new", ("float32", 0.5)),
        (["--set", "my.new=true"], "my.new", ("bool", True)),
        (["--set", "my.new=1.2.3"], "my.new", ("string", "1.2.3")),
        (["--set", "my.new=nan"], "my.new", ("string", "nan")),
        (["--set", 'my.new=["x"]'], "my.new", ("array[string]", ["x"])),
        (["--set-type", "my.small:string=7"], "my.small", ("string", "7")),
        (["--set-type", "my.new:array[string]=[]"], "my.new", ("array[string]", [])),
        (["--set-type", "a:b:float64=1e-50"], "a:b", ("float64", 1e-50)),
        (["--set-type", NESTED, "--force"], "my.new", ("array[array]", [[1], []])),
        (["--rename", "my.small=my.tiny"], "my.tiny", ("uint8", 7)),
        (["--special-token", "eos=</s>"], "tokenizer.ggml.eos_token_id", ("uint32", 1)),
        (["--special-token", "pad=3"], "tokenizer.ggml.padding_token_id", ("uint32", 3)),
        (["--add-tags", "a, b", "--add-tags", "b"], "general.tags", ("array[string]", ["a", "b"])),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_option_gives_a_value_of_the_right_type(path, arguments, key, expected):
    others = {k: v for k, v in metadata(path).items() if k != key and "my.small" not in (k, key)}
    done("edit", path, *arguments)
    after = metadata(path)
    assert after[key] == expected
    assert others.items() <= after.items()
    broken = [finding for finding in api.check(path) if finding.rule in STRUCTURE]
    assert not broken or "array[array]" in expected or ":" in key


def test_keys_are_removed(path):
    done("edit", path, "--unset", "my.small", "--unset", "my.sizes")
    assert set(PLAIN) - set(metadata(path)) == {"my.small", "my.sizes"}


def test_chat_template_comes_from_a_file(path, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_bytes("line one\nзeile\r\n".encode())
    result = done("edit", path, "--chat-template", template)
    assert metadata(path)["tokenizer.chat_template"] == ("string", "line one\nзeile\r\n")
    assert result.lines[0] == "~ tokenizer.chat_template  string"
    assert "    -line two" in result.lines
    assert "    +зeile" in result.lines


def test_text_of_a_new_key_is_shown_on_one_line(path, tmp_path):
    document = tmp_path / "keys.json"
    document.write_text(json.dumps({"my.text": "one\ntwo", "my.long": "x" * 900}))
    lines = done("edit", path, "--set-json", document, "--dry-run").lines
    assert lines[0] == r'+ my.text  string "one\ntwo"'
    assert lines[1].endswith('... (900 characters)"')


def test_json_file_sets_many_keys(path, tmp_path):
    changes = {"general.name": "x", "my.sizes": [5], "my.new": {"type": "uint64", "value": 3}}
    document = tmp_path / "keys.json"
    document.write_text(json.dumps(changes))
    done("edit", path, "--set-json", document)
    after = metadata(path)
    assert after["general.name"] == ("string", "x")
    assert after["my.sizes"] == ("array[uint32]", [5])
    assert after["my.new"] == ("uint64", 3)


def test_dry_run_shows_and_writes_nothing(path):
    before = path.read_bytes()
    arguments = ["--set", "general.name=new", "--unset", "my.small", "--rename", "my.sizes=my.a"]
    arguments += ["--set", "tokenizer.ggml.tokens[3]=z", "--set", "my.b=1"]
    result = done("edit", path, *arguments, "--dry-run")
    assert result.lines == [
        '~ general.name  string "old" -> "new"',
        "~ tokenizer.ggml.tokens  array[string]",
        '    [3] "b" -> "z"',
        "> my.sizes  becomes my.a",
        "- my.small  uint8 7",
        "+ my.b  uint32 1",
        f"would edit {path} in place; tensor data stays where it is",
    ]
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_json_holds_the_same_changes(path):
    arguments = ["--set", "general.name=new", "--set", "tokenizer.ggml.tokens[3]=z"]
    planned = done("edit", path, *arguments, "--json", "--dry-run").json()
    document = done("edit", path, *arguments, "--json").json()
    assert planned == document | {"way": None}
    assert document == {
        "file": str(path),
        "way": "patched",
        "shift": 0,
        "changes": [
            {
                "key": "general.name",
                "kind": "changed",
                "before": {"type": "string", "value": "old"},
                "after": {"type": "string", "value": "new"},
            },
            {
                "key": "tokenizer.ggml.tokens",
                "kind": "changed",
                "type": "array[string]",
                "count": 1,
                "items": [{"index": 3, "before": "b", "after": "z"}],
            },
        ],
    }


def test_redo_reverts_undo(path):
    before = path.read_bytes()
    done("edit", path, "--set", "general.name=new")
    after = path.read_bytes()
    assert (
        done("edit", path, "--undo", "--dry-run").lines[0]
        == '~ general.name  string "new" -> "old"'
    )
    assert path.read_bytes() == after
    done("edit", path, "--undo")
    assert path.read_bytes() == before
    done("edit", path, "--redo")
    assert path.read_bytes() == after


def test_output_option_leaves_the_input_unchanged(path):
    before, out = path.read_bytes(), path.with_name("out.gguf")
    result = done("edit", path, "--set", "general.name=new", "--output", out)
    assert result.lines[0] == '~ general.name  string "old" -> "new"'
    assert path.read_bytes() == before
    assert metadata(out)["general.name"] == ("string", "new")
    piped = ggufkit("edit", path, "--set", "general.name=new", "--output", "-")
    assert piped.raw == out.read_bytes()
    assert "general.name" in piped.err


def test_output_has_slack_only_with_the_option(path):
    out = path.with_name("out.gguf")
    done("edit", path, "--reserve", "1K")
    assert len(metadata(path)["ggufkit.reserved"][1]) >= 1000
    done("edit", path, "--add-tags", "a", "--output", out)
    assert "ggufkit.reserved" not in metadata(out)
    done("edit", path, "--reserve", "50", "--output", out)
    assert len(metadata(out)["ggufkit.reserved"][1]) == 50


def test_says_so_when_nothing_changes(path):
    result = done("edit", path, "--set", "general.name=old")
    assert result.lines == [f"{path} already has these values; nothing written"]


def test_notes_a_new_key_that_looks_like_a_typing_error(path):
    result = done("edit", path, "--set", "general.nme=x", "--dry-run")
    assert "did you mean general.name?" in result.err
    assert not done("edit", path, "--set", "other.key=x", "--dry-run").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--set"),
        (["--set", "novalue"], "K=V"),
        (["--set-type", "a=1"], "K:T=V"),
        (["--rename", "a"], "A=B"),
        (["--special-token", "eos"], "NAME=ID|TEXT"),
        (["--set", "tokenizer.ggml.add_bos_token=maybe"], "true nor false"),
        (["--set", "llama.rope.freq_base=fast"], "not a number"),
        (["--set", "my.sizes=1, 2"], "JSON array"),
        (["--undo", "--set", "a=1"], "--undo"),
        (["--redo", "--output", "x.gguf"], "--redo"),
        (["--undo", "--redo"], "either --undo or --redo"),
        (["--set", "a=1", "--json", "--output", "-"], "stdout"),
    ],
)
def test_reports_wrong_usage(path, arguments, message):
    before = path.read_bytes()
    result = ggufkit("edit", path, *arguments)
    assert result.code == 2
    assert message in result.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["[1]", "{", '{"a": {"value": 1}}', "\udcff"])
def test_json_of_the_wrong_shape_is_wrong_usage(path, tmp_path, content):
    document = tmp_path / "keys.json"
    document.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert ggufkit("edit", path, "--set-json", document).code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unset", "general.nme"], "general.name"),
        (["--set", "my.small=256"], "my.small"),
        (["--set", "my.sizes[3]=1"], "my.sizes[3]"),
        (["--set-type", "a:uint9=1"], "uint9"),
        (["--set", "general.alignment=64"], "all tensors move"),
        (["--set", 'tokenizer.ggml.tokens=["a"]'], "token_embd.weight has 4 rows"),
        (["--special-token", "eos=<e>"], "no token"),
        (["--chat-template", "missing.jinja"], "missing.jinja"),
        (["--undo"], "no edit to undo"),
        (["--redo"], "no edit to redo"),
    ],
)
def test_failure_is_reported_and_changes_nothing(path, arguments, message):
    before = path.read_bytes()
    result = ggufkit("edit", path, *arguments)
    assert result.code == 1
    assert message in result.err
    assert "Traceback" not in result.err
    assert path.read_bytes() == before


def test_text_in_a_file_cannot_control_the_terminal(path):
    done("edit", path, "--set", "general.name=\x1b[2Jx\ny", "--set", "my.\x1bkey=1")
    result = done(
        "edit", path, "--set", "general.name=\x1b[3Jz\n\x1bq", "--unset", "my.\x1bkey", "--dry-run"
    )
    assert "\x1b" not in result.out


def test_number_of_thousands_of_digits_is_a_usage_error(path):
    result = ggufkit("edit", path, "--set", f"my.small={'9' * 5000}")
    assert result.code == 2
    assert "5,000 digits" in result.err


@pytest.mark.parametrize("words", [
    ["--set", "llama.rope.freq_base=1e400"], ["--set-type", "a.b:float64=1e400"],
    ["--set", "my.id=1e999"], ["--set", "my.list=[1e999]"],
    ["--set", "llama.rope.freq_base=1_0"], ["--set", "llama.rope.freq_base= 12"],
])  # fmt: skip
def test_numbers_are_never_changed_silently(path, words):
    before = path.read_bytes()
    assert ggufkit("edit", path, *words).code == 2
    assert path.read_bytes() == before


def test_json_number_never_becomes_infinite_silently(path, tmp_path):
    (tmp_path / "keys.json").write_text('{"a.b": 1e400}')
    assert ggufkit("edit", path, "--set-json", tmp_path / "keys.json").code == 2


@pytest.mark.parametrize("text", ["2024_01", "1_2", " 12 ", "\uff11\uff12", "1e5_0", "v1.5"])
def test_text_that_is_not_a_number_stays_text(path, text):
    done("edit", path, "--set", f"my.id={text}")
    assert metadata(path)["my.id"] == ("string", text)


@pytest.mark.parametrize(
    ("text", "number"), [("inf", np.inf), ("-Infinity", -np.inf), ("-.5e1", -5)]
)
def test_words_and_decimals_are_numbers(path, text, number):
    done("edit", path, "--set", f"llama.rope.freq_base={text}")
    assert metadata(path)["llama.rope.freq_base"] == ("float32", number)


@pytest.mark.parametrize("place", ["five", "", "0:2", "5", "9" * 5000])
def test_invalid_array_index_does_not_make_a_key(path, place):
    bracket = "" if place == "5" else "]"
    key = f"tokenizer.ggml.tokens[{place}{bracket}"
    result = ggufkit("edit", path, "--set", f"{key}=x")
    assert result.code == 1
    assert "not an item of an array" in result.err
    assert "Write an item as tokenizer.ggml.tokens[5]" in result.err
    assert len(result.err) < 6000


def test_token_with_very_many_digits_is_not_an_id(path):
    result = ggufkit("edit", path, "--special-token", f"eos={'1' * 5000}")
    assert result.code == 1
    assert "the vocabulary has no token" in result.err


@pytest.mark.parametrize(
    ("value", "remedied"), [("my.sizes[9]=1", True), ("my.sizes[0]=-1", False)]
)
def test_remedy_for_an_item_fits_the_error(path, value, remedied):
    result = ggufkit("edit", path, "--set", value)
    assert result.code == 1
    assert ("Use an index within the array" in result.err) == remedied


@pytest.mark.parametrize("size", ["68M", "10G", "100T"])
@pytest.mark.parametrize("output", [False, True])
def test_refuses_an_excessive_slack_at_once(path, tmp_path, size, output):
    where = ["--output", tmp_path / "out.gguf"] if output else []
    result = ggufkit("edit", path, "--reserve", size, *where)
    assert result.code == 1
    assert "Reserve at most 64M" in result.err
    assert not (tmp_path / "out.gguf").exists()


def test_texts_with_very_many_lines_are_not_compared_line_by_line(path, tmp_path):
    template = tmp_path / "long.jinja"
    template.write_text("x\n" * 20_000)
    result = done("edit", path, "--chat-template", template, "--dry-run")
    assert "2 lines -> 20,000 lines" in result.out


@pytest.mark.parametrize(
    "text", ["{% if %}", "{{ 1 // 0 }}", "{% for m in messages %}{{ m.role }}"]
)
def test_broken_template_needs_force(path, tmp_path, text):
    template = tmp_path / "template.jinja"
    template.write_text(text)
    before = path.read_bytes()
    refused = ggufkit("edit", path, "--chat-template", template)
    assert refused.code == 1
    assert "tokenizer.chat_template" in refused.err
    assert path.read_bytes() == before
    done("edit", path, "--chat-template", template, "--force")
    assert metadata(path)["tokenizer.chat_template"] == ("string", text)


def test_notes_windows_line_endings(path, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_bytes(b"{{ messages[0].content }}\r\n")
    assert "note: " in done("edit", path, "--chat-template", template).err
    template.write_bytes(b"{{ messages[1].content }}\n")
    assert "note: " not in done("edit", path, "--chat-template", template).err


def test_item_of_an_inner_string_array_is_text(path):
    done(
        "edit", path, "--set-type", 'my.nested:array[array[string]]=[["a"], ["b", "c"]]', "--force"
    )
    done("edit", path, "--set", "my.nested[1][0]=zz")
    assert metadata(path)["my.nested"] == ("array[array]", [["a"], ["zz", "c"]])


def test_arrays_can_be_appended_to(tmp_path):
    path = tmp_path / "m.gguf"
    api.save(path, {}, PLAIN)
    words = ("--append", "my.sizes=4", "--append", "my.sizes=[5, 6]", "--append", "my.words=[c]")
    done("edit", path, *words)
    with api.open(path) as model:
        assert model.metadata["my.sizes"].tolist() == [1, 2, 3, 4, 5, 6]
        assert model.metadata.type_name("my.sizes") == "array[uint32]"
        assert list(model.metadata["my.words"]) == ["a", "b", "[c]"]
    done("edit", path, "--undo")
    with api.open(path) as model:
        assert model.metadata["my.sizes"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("pair", ["my.none=1", "my.small=1", "my.sizes", "my.sizes=x"])
def test_failed_append_changes_nothing(tmp_path, pair):
    path = tmp_path / "m.gguf"
    api.save(path, {}, PLAIN)
    before = path.read_bytes()
    assert ggufkit("edit", path, "--append", pair).code in (1, 2)
    assert path.read_bytes() == before
