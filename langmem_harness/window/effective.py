"""`effective_messages`: what a model would see of a history now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage

from langmem_harness.window.limits import Size, TriggerForm
from langmem_harness.window.marker import marker_message
from langmem_harness.window.plan import plan_window
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.tokens import TokenCounter


def effective_messages(
    messages: Sequence[BaseMessage],
    *,
    trigger: TriggerForm | None = ("fraction", 0.8),
    keep: Size = ("fraction", 0.3),
    keep_first: int = 1,
    pin: Callable[[BaseMessage], bool] | None = None,
    token_counter: TokenCounter | None = None,
    context_window: int | None = None,
    overhead_tokens: int = 0,
) -> list[BaseMessage]:
    """What a model would see of a history now, for user interfaces and tests.

    The same planner as `HistoryCompactionMiddleware`'s, with a bare marker; the marker is known by its tag
    (``message.additional_kwargs["langmem_harness"]["kind"] == "marker"``). The input is not changed.

    Args:
        messages: A history, as ``graph.get_state(config).values["messages"]`` gives it.
        trigger: As for the middleware.
        keep: As for the middleware.
        keep_first: As for the middleware.
        pin: As for the middleware.
        token_counter: As for the middleware.
        context_window: What fractions are taken of, less what the middleware reserves; needed for fractions only.
        overhead_tokens: Tokens of the system prompt and of the tools.

    Raises:
        ConfigurationError: A setting that cannot work, or a fraction without `context_window`.
    """
    policy = WindowPolicy.create(trigger, keep, window_tokens=context_window, keep_first=keep_first, pin=pin)
    plan = plan_window(messages, policy, token_counter, overhead_tokens=overhead_tokens)
    return plan.messages(marker_message(len(plan.omitted)) if plan.omitted else None)
