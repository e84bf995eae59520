"""What fits into the context window: pure functions over messages."""

from langmem_harness.window.effective import effective_messages
from langmem_harness.window.messages import content_hash, message_identity, tag_of
from langmem_harness.window.plan import WindowPlan, plan_window
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.references import Reference, reference_message, references_of, tag_references
from langmem_harness.window.rules import RuleViolation, check_request
from langmem_harness.window.tokens import TokenCounter, estimate_text_tokens, estimate_tokens

__all__ = [
    "Reference",
    "RuleViolation",
    "TokenCounter",
    "WindowPlan",
    "WindowPolicy",
    "check_request",
    "content_hash",
    "effective_messages",
    "estimate_text_tokens",
    "estimate_tokens",
    "message_identity",
    "plan_window",
    "reference_message",
    "references_of",
    "tag_of",
    "tag_references",
]
