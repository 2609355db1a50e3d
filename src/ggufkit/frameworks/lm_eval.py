"""lm-evaluation-harness: a model that runs a GGUF file in this process, through llama.cpp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ggufkit.errors import ValueTypeError
from ggufkit.frameworks.chat_template import chat_template
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.tokenizer import tokenizer
from ggufkit.llama_cpp.continuations import Score, TextsSession, TokenIds, generate, score
from ggufkit.llama_cpp.session import MICRO_BATCH
from ggufkit.models.open import open as open_model
from ggufkit.system.cpu import worker_count

EXTRA: Final = "lm-eval"
CELLS: Final = 8192  # tokens of all texts that are computed together
MAX_LENGTH: Final = 4096  # tokens of a text, if the model does not have fewer
SEQUENCES: Final = 16
ANSWER: Final = 256  # tokens, where a task has no limit, as in the harness
harness: Final[Any] = library("lm_eval.api.model", EXTRA)
registry: Final[Any] = library("lm_eval.api.registry", EXTRA)
utils: Final[Any] = library("lm_eval.utils", EXTRA)
model_utils: Final[Any] = library("lm_eval.models.utils", EXTRA)
if TYPE_CHECKING:
    from lm_eval.api.model import TemplateLM
else:
    TemplateLM = harness.TemplateLM


@registry.register_model("ggufkit")
class GGUFModel(TemplateLM):  # type: ignore[misc]  # mypy runs without lm_eval
    """The model `ggufkit` of lm-evaluation-harness: `--model ggufkit --model_args path=FILE`.

    `max_length` is the most tokens of a text, `batch_size` the number of texts that are computed
    together, `threads` the number of cores. Answers are generated greedily.
    """

    def __init__(
        self,
        path: str,
        max_length: int | None = None,
        batch_size: int | str | None = None,
        threads: int | None = None,
        **_: object,  # what the harness passes to every model, such as `device`
    ) -> None:
        """Load the model; what loading raises."""
        super().__init__()
        self.path = Path(path)
        with open_model(path) as model:
            keys: Any = model.metadata
            length = int(keys.get(f"{model.architecture}.context_length", MAX_LENGTH))
            self._bos = keys.get("tokenizer.ggml.bos_token_id")
            self._eos = keys.get("tokenizer.ggml.eos_token_id")
            self._tokenizer = tokenizer(model)
        self.max_length = int(max_length or min(length, MAX_LENGTH))
        count = SEQUENCES if batch_size in (None, "auto") else int(str(batch_size))
        self._session = TextsSession(
            self.path,
            cells=max(CELLS, self.max_length),
            sequences=count,
            batch=MICRO_BATCH,
            threads=worker_count(threads),
        )

    @property
    def eot_token_id(self) -> int:
        """The token that ends texts."""
        if self._eos is None:
            raise ValueTypeError(f"{self.path} has no token that ends texts")
        return int(self._eos)

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without a context."""
        return self.eot_token_id if self._bos is None else int(self._bos)

    @property
    def tokenizer_name(self) -> str:
        """A name for the harness' caches."""
        return str(self.path)

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,  # noqa: FBT001 (as the harness has it)
        **_: object,
    ) -> list[int]:
        """Return the tokens of a text, with those around it unless it begins with them."""
        beginning = "" if self._bos is None else self._tokenizer.id_to_token(int(self._bos))
        whole = not (beginning and string.startswith(beginning))
        if add_special_tokens is not None:
            whole = add_special_tokens
        return self._session.tokenize(string.encode(), special=True, whole=whole)

    def apply_chat_template(
        self,
        chat_history: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,  # noqa: FBT001, FBT002 (as the harness has it)
    ) -> str:
        """Return the text of a conversation."""
        template = chat_template(self.path)
        return template.render(chat_history, add_generation_prompt=add_generation_prompt)

    def loglikelihood_rolling(
        self,
        requests: Sequence[Any],
        disable_tqdm: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> list[float]:
        """Return the log probabilities of whole texts."""
        windows = [
            (number, *utils.make_disjoint_window(window))
            for number, request in enumerate(requests)
            for window in utils.get_rolling_token_windows(
                self.tok_encode(request.args[0]), self.prefix_token_id, self.max_length, 1
            )
        ]
        sums = [0.0] * len(requests)
        scores = self._scores([window[1:] for window in windows])
        for (number, *_), result in zip(windows, scores, strict=True):
            sums[number] += result.log_probability
        for request, total in zip(requests, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: object
    ) -> list[tuple[float, bool]]:
        scores = self._scores([(context, tokens) for _, context, tokens in requests])
        for request, result in zip(requests, scores, strict=True):
            self.cache_hook.add_partial("loglikelihood", request[0], tuple(result))
        return [(result.log_probability, result.is_greedy) for result in scores]

    def _scores(self, texts: Iterable[tuple[list[int], list[int]]]) -> list[Score]:
        """Return scores in order; a context that is too long loses its beginning."""
        cut = []
        for context, tokens in texts:
            room = self.max_length + 1 - len(tokens)
            if room < 1:
                raise ValueTypeError(
                    f"a text of {len(tokens):,} tokens is longer than max_length",
                    remedy="Raise max_length in the arguments of the model",
                )
            cut.append((context[-room:], tokens))
        return [result for _, result in sorted(score(self._session, cut))]

    def generate_until(
        self,
        requests: Sequence[Any],
        disable_tqdm: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> list[str]:
        """Return the likeliest answers, up to their stop sequences."""
        prompts: list[tuple[TokenIds, int]] = []
        stops: list[list[str]] = []
        for request in requests:
            text, options = request.args
            settings = model_utils.normalize_gen_kwargs(options, ANSWER)
            if settings["do_sample"]:
                raise ValueTypeError("answers are generated greedily", remedy="Use do_sample=false")
            limit = settings["max_gen_toks"]
            if limit >= self.max_length:
                raise ValueTypeError(f"an answer of {limit:,} tokens is longer than max_length")
            tokens = self.tok_encode(text) or [self.prefix_token_id]
            prompts.append((tokens[limit - self.max_length :], limit))
            stops.append([stop for stop in settings["until"] if stop])

        def is_complete(number: int, tokens: TokenIds) -> bool:
            text = self._decoded(tokens)
            return self._session.ends(tokens[-1]) or any(stop in text for stop in stops[number])

        answers = sorted(generate(self._session, prompts, is_complete))
        texts = [
            model_utils.postprocess_generated_text(self._decoded(tokens), stops[number], None)
            for number, tokens in answers
        ]
        for request, text in zip(requests, texts, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts

    def _decoded(self, tokens: TokenIds) -> str:
        return str(self._tokenizer.decode([*tokens], skip_special_tokens=True))
