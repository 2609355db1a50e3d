"""Write the stub of a model's verbs from the functions: `tools/write_verbs.py --write`.

A verb has the parameters of its function after the first. Type checkers read the stub, because
the functions are on higher floors than `Model` and are imported only when used.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "ggufkit"
TABLE: Final = PACKAGE / "models" / "verbs" / "__init__.py"
STUB: Final = TABLE.with_suffix(".pyi")
BUILTINS: Final = {"bool", "bytes", "dict", "float", "int", "list", "object", "str", "tuple"}


def verbs() -> dict[str, str]:
    """Return the module of each verb."""
    found = {}
    for node in ast.walk(ast.parse(TABLE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target, module = node.targets[0], node.value.args[0]
            if isinstance(target, ast.Name) and isinstance(module, ast.Constant):
                found[target.id] = str(module.value)
    return found


def stub() -> str:
    """Return the text of the stub."""
    lines: list[str] = []
    imports: dict[str, set[str]] = {}
    for name, module in sorted(verbs().items()):
        path = PACKAGE / f"{module.replace('.', '/')}.py"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = origins(tree, module)
        function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
        for used in names(function):
            home, original = known[used]
            imports.setdefault(home, set()).add(original)
        lines += [f"    def {name}({parameters(function)}) -> {written(function.returns)}: ..."]
    head = [f"from {home} import {', '.join(sorted(imports[home]))}" for home in sorted(imports)]
    return "\n".join([*head, "", "class ModelVerbs:", *lines, ""])


def origins(tree: ast.Module, module: str) -> dict[str, tuple[str, str]]:
    """Return where each name of a module comes from, and what it is called there."""
    known = {}
    guarded = [n for each in tree.body if isinstance(each, ast.If) for n in each.body]
    for node in (*tree.body, *guarded):
        if isinstance(node, ast.ImportFrom):
            known |= {a.asname or a.name: (str(node.module), a.name) for a in node.names}
        elif isinstance(node, ast.ClassDef):
            known[node.name] = (f"ggufkit.{module}", node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                known[target.id] = (f"ggufkit.{module}", target.id)
    return known


def names(function: ast.FunctionDef) -> set[str]:
    """Return the names in the annotations of a function, after the first parameter."""
    own = function.args
    every = [*own.args[1:], *own.kwonlyargs, *filter(None, [own.vararg, own.kwarg])]
    found = [a.annotation for a in every if a.annotation] + [function.returns]
    loads = (n for each in found if each for n in ast.walk(each))
    return {n.id for n in loads if isinstance(n, ast.Name)} - BUILTINS


def parameters(function: ast.FunctionDef) -> str:
    """Return the parameters of the verb."""
    own = function.args
    texts = ["self"]
    plain, first = own.args[1:], len(own.args) - len(own.defaults)
    for place, each in enumerate(plain, 1):
        texts.append(written(each) + (" = ..." if place >= first else ""))
    if own.kwonlyargs:
        texts.append("*")
    for each, default in zip(own.kwonlyargs, own.kw_defaults, strict=True):
        texts.append(written(each) + (" = ..." if default else ""))
    if own.kwarg:
        texts.append(f"**{written(own.kwarg)}")
    return ", ".join(texts)


def written(node: ast.AST | None) -> str:
    """Return the source of a node."""
    return ast.unparse(node) if node else "None"


def formatted() -> str:
    """Return the stub as ruff formats and sorts it."""
    ruff = [sys.executable, "-m", "ruff"]
    text = stub()
    for step in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        command = [*ruff, *step, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def main() -> None:
    """Print the stub, or write it."""
    if sys.argv[1:] == ["--write"]:
        STUB.write_text(formatted(), encoding="utf-8")
    else:
        sys.stdout.write(formatted())


if __name__ == "__main__":
    main()
