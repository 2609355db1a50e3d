"""Every reader of what others made is in one table, with its limit and what attacks it.

The test derives the readers from the code. A new one fails here until it has a row.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import fuzz
import ggufkit

PACKAGE = Path(ggufkit.__file__).parent
TESTS = Path(__file__).parents[1]
OWN = "own"  # reads only what ggufkit itself contains or writes, or text of the command line

CALLS = {
    *("json.loads", "json.load", "_toml.loads", "yaml.parse", "ast.literal_eval", "pickle.loads"),
    *("read_small", "read_stream", "text_of", "open_text", "MappedFile", "MappedBytes", "os.open"),
    *("subprocess.Popen", "http.client.HTTPConnection", "http.client.HTTPSConnection"),
    *("socket.create_connection", "compile_pattern", "compile_untrusted"),
}
# Of each file with such a call: the limit, as MODULE:NAME in ggufkit, and a target of `make fuzz`
# or a file of tests that attacks it.
MAPPED = "format.types:MAX_NAME_BYTES"  # mapped, not read: the scanner compares counts with bytes
VALUES = "system.text_file:Most"
HEADER = "conversion.checkpoint.safetensors:MAX_HEADER_BYTES"
CONFIG = "conversion.checkpoint.folder:MAX_CONFIG_BYTES"
JOURNAL = "system.edit_journal:MAX_BYTES"
TABLE = {
    "checks/other_models.py": (OWN, OWN),
    "checks/requirements.py": (OWN, OWN),
    "cli/app.py": (OWN, OWN),
    "cli/commands/edit.py": (VALUES, "cli/commands/test_edit.py"),
    "cli/commands/quantize.py": (OWN, OWN),
    "cli/commands/release.py": (VALUES, "system/test_small_files.py"),
    "cli/commands/template.py": (OWN, OWN),
    "cli/commands/tokenize.py": (VALUES, "cli/commands/test_tokenize.py"),
    "cli/pipes.py": (VALUES, "cli/test_pipes.py"),
    "cli/streams.py": (OWN, OWN),
    "conversion/added_tensors.py": (HEADER, "safetensors"),
    "conversion/architecture/architecture.py": (VALUES, "system/test_small_files.py"),
    "conversion/architecture/config.py": (OWN, OWN),
    "conversion/architecture/layer_lists.py": (OWN, OWN),
    "conversion/architecture/name_rules.py": (VALUES, "checkpoint"),
    "conversion/architecture/of_checkpoint.py": (OWN, "checkpoint"),
    "conversion/architecture/pooling.py": (CONFIG, "checkpoint"),
    "conversion/card/front_matter.py": (
        "conversion.card.front_matter:MAX_CHARACTERS", "card",
    ),
    "conversion/checkpoint/folder.py": (CONFIG, "checkpoint"),
    "conversion/checkpoint/packed_weights.py": (
        "conversion.checkpoint.packed_weights:MAX_JSON_BYTES", "diffusion",
    ),
    "conversion/checkpoint/safetensors.py": (HEADER, "safetensors"),
    "conversion/diffusion/checkpoint_files.py": (HEADER, "diffusion"),
    "conversion/invert_mapping.py": (OWN, OWN),
    "conversion/legacy/convert_legacy.py": ("conversion.legacy.header:MAX_TOKENS", "legacy"),
    "conversion/map_tensors.py": (OWN, "checkpoint"),
    "conversion/tokenizer/own/lines.py": (
        "conversion.checkpoint.folder:MAX_FILE_BYTES", "tokenizer",
    ),
    "conversion/tokenizer/pre/pre_tokenize.py": ("system.sandbox:MAX_WAIT", "tokenizer"),
    "conversion/tokenizer/tokenizer_json.py": (OWN, OWN),
    "diffusion/architecture.py": (OWN, OWN),
    "diffusion/diffusers_names.py": (OWN, OWN),
    "edits/in_place.py": (JOURNAL, "journal"),
    "edits/name_patterns.py": (OWN, OWN),
    "edits/undo.py": (JOURNAL, "journal"),
    "evaluation/passes.py": (VALUES, "evaluation/test_base_file.py"),
    "evaluation/quality_rows.py": (VALUES, "results"),
    "evaluation/variants.py": (VALUES, "system/test_small_files.py"),
    "format/file_name.py": (OWN, OWN),  # its expressions are its own
    "frameworks/live/compute_imatrix.py": (VALUES, "frameworks/test_live_imatrix.py"),
    "frameworks/live/weights.py": (OWN, OWN),  # names of the weights of a class
    "frameworks/transformers.py": (CONFIG, "commands"),
    "imatrix/compute.py": (VALUES, "system/test_small_files.py"),
    "imatrix/matrix.py": ("imatrix.dat_file:MAX_LEGACY_NAME", "imatrix"),
    "inspection/device_memory.py": (OWN, OWN),  # what drivers and the kernel say
    "inspection/file_digest.py": (OWN, "hashes"),
    "inspection/hash_manifest.py": (OWN, "hashes"),  # line by line
    "inspection/kv_cache.py": (OWN, OWN),
    "lora/image_adapter.py": (MAPPED, "lora/test_merge_lora.py"),
    "lora/peft.py": ("validation.patterns:MOST_BITS", "adapter"),
    "models/caches.py": (VALUES, "cache"),
    "models/hub/names.py": (OWN, OWN),
    "models/hub/repository.py": (VALUES, "cache"),
    "models/open.py": (MAPPED, "model"),
    "output/chunks.py": (OWN, "system/test_cluster.py"),  # from a scheduler that the user trusts
    "quantization/losses/sensitivities.py": (VALUES, "results"),
    "quantization/provenance.py": (MAPPED, "results"),
    "quantization/recipe_files.py": (VALUES, "results"),
    "quantization/recipes.py": ("validation.patterns:MOST_BITS", "results"),
    "release/card.py": (VALUES, "system/test_small_files.py"),
    "release/importance.py": (VALUES, "system/test_small_files.py"),
    "release/journal.py": (VALUES, "release/test_journal.py"),
    "release/publish.py": (OWN, OWN),
    "release/settings.py": (VALUES, "system/test_small_files.py"),
    "release/source.py": (OWN, OWN),  # its expression is escaped
    "remote/connections.py": ("remote.limits:ANSWER_SECONDS", "remote/test_faults.py"),
    "remote/hub/hub.py": ("remote.hub.hub:MAX_PAGE_BYTES", "remote/test_commands.py"),
    "remote/hub/settings.py": (VALUES, "system/test_small_files.py"),
    "rules/rules.py": (OWN, OWN),
    "system/cluster.py": ("system.cluster:MAX_GREETING", "system/test_cluster.py"),
    "system/descriptors.py": (OWN, OWN),
    "system/edit_journal.py": (JOURNAL, "journal"),
    "system/hidden_files.py": (OWN, "system/test_hidden_files.py"),
    "system/mapped_file.py": (MAPPED, "model"),
    "system/sandbox.py": ("system.sandbox:MAX_ANSWER", "system/test_sandbox.py"),
    "system/staging.py": (OWN, "system/test_staging.py"),
    "system/text_file.py": (VALUES, "system/test_small_files.py"),
    "validation/patterns.py": ("validation.patterns:MOST_BITS", "validation/test_patterns.py"),
    "view/edit_page.py": ("view.serving.routes:MAX_BODY", "view/test_edit_page.py"),
    "view/serving/routes.py": ("view.serving.routes:MAX_BODY", "page"),
}  # fmt: skip


def reads(tree: ast.AST) -> bool:
    """Whether code opens, parses or connects, or compiles an expression that is no constant."""
    return any(is_reader(node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_reader(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    first = call.args[0] if call.args else None
    text = first.value if isinstance(first, ast.Constant) else None
    is_dynamic = name.startswith("re.") and name != "re.escape" and text is None and first
    return name in CALLS or bool(is_dynamic) or (name.endswith(".open") and text == "rb")


def readers() -> set[str]:
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if reads(ast.parse(path.read_text("utf-8")))
    }


def test_every_reader_has_a_row():
    assert readers() == {*TABLE}


@pytest.mark.parametrize("name", TABLE)
def test_each_row_names_a_limit_and_an_attack(name):
    limit, attack = TABLE[name]
    if limit != OWN:
        module, constant = limit.split(":")
        assert hasattr(importlib.import_module(f"ggufkit.{module}"), constant)
    assert attack == OWN or attack in fuzz.PYTHON or (TESTS / attack).is_file()
    assert attack != OWN or limit == OWN


@pytest.mark.parametrize(
    "code", ["json.loads(x)", "re.compile(x)", "p.open('rb')", "MappedFile(p)", "read_small(p, m)"]
)
def test_a_new_reader_is_noticed(code):
    assert reads(ast.parse(code))
    assert not reads(ast.parse("re.compile('a'); p.open('w'); len(x)"))
