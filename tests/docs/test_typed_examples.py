"""The examples of Python in docs are well typed: pyright agrees in its strict mode.

Libraries that are not installed here have no types, nor what comes from them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRANSLATION = re.compile(r"\.(ja|ko|zh)\.md$")
# Blocks of a page repeat imports, and cells of notebooks show values.
ALLOWED = ("reportDuplicateImport", "reportUnusedExpression", "reportUnusedImport")
OF_LIBRARIES = (
    *("reportMissingImports", "reportUnknownArgumentType", "reportUnknownMemberType"),
    *("reportUnknownVariableType", "reportOptionalCall", "reportOptionalMemberAccess"),
)
USES_LIBRARY = re.compile(
    r"^(?:import|from) (?:diffusers|lm_eval|matplotlib|mlx|torch|transformers)", re.MULTILINE
)
# What the text above an example describes.
GIVEN = {
    "frameworks": "config: dict[str, object] = {}\nweather_schema: dict[str, object] = {}\n"
    "import torch\nfrom transformers import Trainer\nweight = torch.ones(2, 32)\n",
    "trainer": "from transformers import AutoTokenizer\n"
    "tokenizer = AutoTokenizer.from_pretrained('folder')\n",
}


def test_examples_are_well_typed(tmp_path):
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    for page in (page for page in pages if not TRANSLATION.search(page.name)):
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
        code = "\n".join([GIVEN.get(page.stem, ""), *blocks])
        allowed = [*ALLOWED, *(OF_LIBRARIES if USES_LIBRARY.search(code) else ())]
        lead = "".join(f"# pyright: {rule}=false\n" for rule in allowed)
        name = re.sub(r"\W", "_", page.stem)
        (tmp_path / f"example_{name}.py").write_text(lead + code, encoding="utf-8")
    config = {"typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", tmp_path]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
