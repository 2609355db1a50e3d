"""The page's scripts import each other in one direction only."""

from __future__ import annotations

import graphlib
import re

from ggufkit.view.serving.routes import PAGE

IMPORT = re.compile(r'^import [^"]*"(?P<path>[^"]+)";', re.MULTILINE)


def test_the_scripts_do_not_import_in_a_circle():
    imports = {
        path: {(path.parent / match["path"]).resolve() for match in IMPORT.finditer(text)}
        for path in PAGE.resolve().rglob("*.js")
        if (text := path.read_text("utf-8"))
    }
    assert sum(map(len, imports.values())) > 20
    assert all(path in imports for paths in imports.values() for path in paths)
    assert len([*graphlib.TopologicalSorter(imports).static_order()]) == len(imports)
