"""`summarize_thread`: a summary of a conversation for people. It has nothing to do with what the model sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langmem_harness.driving import Ask, Body, adrive, drive
from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.record import SummaryRecord, policy_fingerprint
from langmem_harness.summaries.service import SummaryService
from langmem_harness.summaries.summarizer import Summarizer
from langmem_harness.window.messages import role_of, tag_of
from langmem_harness.window.tokens import TokenCounter, estimate_tokens

POLICY_NAME = "thread_summary"


@dataclass(frozen=True, kw_only=True)
class ThreadSummaryPolicy:
    """When a thread is summarized for people, and what of it.

    Attributes:
        over_tokens: Once its estimate is above so many tokens; None: no such rule.
        after_messages: Once it has so many messages or more; None: no such rule. With both rules, either is enough;
            with none, always.
        include_system: Whether system messages are summarized too.
        keep_latest: Whether the latest user message and the latest answer, and all between and after them, stay
            verbatim and are not summarized.
    """

    over_tokens: int | None = None
    after_messages: int | None = None
    include_system: bool = False
    keep_latest: bool = True

    def __post_init__(self) -> None:
        for name in ("over_tokens", "after_messages"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigurationError(f"{name} must be 0 or more, or None, not {value!r}")

    @property
    def fingerprint(self) -> str:
        """Tagged hash of what decides which messages a summary covers."""
        return policy_fingerprint(POLICY_NAME, include_system=self.include_system, keep_latest=self.keep_latest)


@dataclass(frozen=True, kw_only=True)
class ThreadSummary:
    """A conversation, for people.

    Attributes:
        record: Summary of what came before `latest`; None when nothing was summarized.
        latest: What stays verbatim, oldest first; all messages when nothing was summarized.
        action: As in `SummaryOutcome`; ``"nothing"`` also when no rule was reached.
        reason: Why there is no summary, without user text.
    """

    record: SummaryRecord | None
    latest: Sequence[BaseMessage]
    action: str
    reason: str | None = None


def plan_thread_summary(
    messages: Sequence[BaseMessage], policy: ThreadSummaryPolicy, counter: TokenCounter = estimate_tokens
) -> tuple[Sequence[BaseMessage], Sequence[BaseMessage]]:
    """What to summarize and what stays verbatim: ``(sources, latest)``. No sources when no rule is reached.

    Pure. Messages that this package put into a request (markers, recalled memories) are not part of a conversation.
    """
    spoken = [
        message
        for message in messages
        if (tag_of(message) or {}).get("kind", "tool_output") == "tool_output"
        and (policy.include_system or role_of(message) != "system")
    ]
    rules = [
        policy.over_tokens is not None and counter(spoken) > policy.over_tokens,
        policy.after_messages is not None and len(spoken) >= policy.after_messages,
    ]
    if (policy.over_tokens is not None or policy.after_messages is not None) and not any(rules):
        return (), spoken
    start = _latest_start(spoken) if policy.keep_latest else len(spoken)
    return spoken[:start], spoken[start:]


def summarize_thread(
    conversation: Sequence[BaseMessage] | BaseCheckpointSaver[Any],
    *,
    summarizer: SummaryService | Summarizer | BaseChatModel | str | Callable[[str], Any],
    thread_id: str | None = None,
    policy: ThreadSummaryPolicy | None = None,
    ledger: SummaryLedger | None = None,
    token_counter: TokenCounter = estimate_tokens,
) -> ThreadSummary:
    """Summarize a conversation for showing to people.

    Its records have the purpose ``"user_history"``: the model's window never uses or replaces them, and the reverse.
    Asking again for an unchanged conversation calls no model, if there is a `ledger`.

    Args:
        conversation: The messages; or a checkpointer, with `thread_id`.
        summarizer: What writes, or a service with settings of its own.
        thread_id: The conversation; needed with a checkpointer, and to find and keep records.
        policy: When and what; the default summarizes all but the latest user message and answer.
        ledger: Where records are kept.
        token_counter: Counts tokens for `policy`.

    Raises:
        ConfigurationError: A checkpointer without `thread_id`.
        NotFoundError: The checkpointer does not have this thread.
    """
    return drive(_summarizing(conversation, summarizer, thread_id, policy, ledger, token_counter))


async def asummarize_thread(
    conversation: Sequence[BaseMessage] | BaseCheckpointSaver[Any],
    *,
    summarizer: SummaryService | Summarizer | BaseChatModel | str | Callable[[str], Any],
    thread_id: str | None = None,
    policy: ThreadSummaryPolicy | None = None,
    ledger: SummaryLedger | None = None,
    token_counter: TokenCounter = estimate_tokens,
) -> ThreadSummary:
    """Async twin of `summarize_thread`."""
    return await adrive(_summarizing(conversation, summarizer, thread_id, policy, ledger, token_counter))


def _summarizing(
    conversation: Sequence[BaseMessage] | BaseCheckpointSaver[Any],
    summarizer: SummaryService | Summarizer | BaseChatModel | str | Callable[[str], Any],
    thread_id: str | None,
    policy: ThreadSummaryPolicy | None,
    ledger: SummaryLedger | None,
    token_counter: TokenCounter,
) -> Body[ThreadSummary]:
    policy = policy or ThreadSummaryPolicy()
    service = summarizer if isinstance(summarizer, SummaryService) else SummaryService(summarizer)
    if isinstance(conversation, BaseCheckpointSaver):
        if thread_id is None:
            raise ConfigurationError("a checkpointer needs thread_id= to know which conversation")
        messages = yield from _read_thread(conversation, thread_id)
    else:
        messages = conversation
    sources, latest = plan_thread_summary(messages, policy, token_counter)
    outcome = yield from service.serving(
        sources,
        ledger=ledger,
        thread_id=thread_id,
        policy=POLICY_NAME,
        policy_fingerprint=policy.fingerprint,
        purpose="user_history",
        history=messages,
    )
    return ThreadSummary(
        record=outcome.record,
        latest=latest if outcome.record is not None else [*sources, *latest],
        action=outcome.action,
        reason=outcome.reason,
    )


def _read_thread(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> Body[Sequence[BaseMessage]]:
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    found: CheckpointTuple | None = yield Ask(
        do=lambda: checkpointer.get_tuple(config), ado=lambda: checkpointer.aget_tuple(config)
    )
    if found is None:
        raise NotFoundError(f"the checkpointer has no thread {thread_id!r}")
    messages = found.checkpoint["channel_values"].get("messages", [])
    if not isinstance(messages, list):
        raise ConfigurationError("this thread does not keep its messages as a list: pass the messages themselves")
    return messages


def _latest_start(messages: Sequence[BaseMessage]) -> int:
    """Where the latest user message or the latest answer begins, whichever is earlier; 0 when one of them is missing
    and the other is the first."""
    newest = {
        role: next(
            (
                position
                for position in range(len(messages) - 1, -1, -1)
                if role_of(messages[position]) == role and messages[position].text.strip()
            ),
            len(messages),
        )
        for role in ("human", "ai")
    }
    return min(newest.values())
