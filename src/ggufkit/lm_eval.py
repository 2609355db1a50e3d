"""lm-evaluation-harness: to import this registers the model `ggufkit`; `python -m` runs lm_eval."""

from ggufkit.frameworks.lm_eval import GGUFModel

__all__ = ["GGUFModel"]

if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
