"""transformers' Trainer: a callback that leaves a GGUF file at each checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ggufkit.frameworks.extras import library
from ggufkit.frameworks.live.save import SaveOptions, save
from ggufkit.frameworks.live.weights import EXTRA

transformers_library: Final[Any] = library("transformers", EXTRA)
if TYPE_CHECKING:  # the types stay complete where transformers is not installed
    from typing_extensions import Unpack

    TrainerCallback = object
else:
    TrainerCallback = transformers_library.TrainerCallback


class GGUFCallback(TrainerCallback):
    """Writes the model to `model-RECIPE.gguf` in the folder of each checkpoint.

    `tokenizer` is the trainer's own by default; `options` are those of `ggufkit.transformers.save`.
    """

    def __init__(
        self, recipe: str, tokenizer: object = None, **options: Unpack[SaveOptions]
    ) -> None:
        self.recipe: str = recipe
        self.tokenizer: object = tokenizer
        self.options: SaveOptions = options

    def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ANN401, ARG002 (as transformers calls it)
        """Write the file next to the checkpoint that was just saved."""
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        tokenizer = self.tokenizer or objects.get("processing_class")
        path = folder / f"model-{self.recipe}.gguf"
        save(objects["model"], tokenizer, path, self.recipe, **self.options)
