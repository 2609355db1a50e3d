"""Say what feedback of errors did for tensors that were written."""

from __future__ import annotations

from ggufkit.models.model import Tensor
from ggufkit.quantization.feedback.fed_back import FedBack, FeedbackOutcome, outcomes_of


def told(tensor: Tensor) -> str:
    """Return what became of a tensor's feedback, empty if it has none."""
    if not isinstance(tensor.source, FedBack):
        return ""
    outcomes = outcomes_of(tensor)
    if not outcomes:
        return "errors fed back"
    if not any(outcome.helps for outcome in outcomes):
        return f"errors not fed back: {unhelped(outcomes)}"
    plain = sum(each.plain for each in outcomes)
    left = sum(each.error if each.helps and each.error else each.plain for each in outcomes)
    return f"errors fed back: {left / plain - 1:+.0%} on inputs held out"


def unhelped(outcomes: list[FeedbackOutcome]) -> str:
    """Return why errors were not fed back."""
    if all(outcome.error is None for outcome in outcomes):
        return "the Hessian is not positive"
    return "it does not help on inputs held out"
