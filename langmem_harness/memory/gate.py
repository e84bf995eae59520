"""Who decides what becomes a memory: code. A model or a rule proposes, every proposal passes these checks. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from langchain_core.messages import BaseMessage, HumanMessage

from langmem_harness.memory.evidence import content_words, human_messages, own_words
from langmem_harness.memory.proposals import Proposal
from langmem_harness.memory.words import word_set
from langmem_harness.screening import screen_text

DropReason = Literal[
    "no_evidence",
    "secret",
    "payment_detail",
    "instruction",
    "question",
    "hypothetical",
    "third_person",
    "task_progress",
    "not_durable",
    "inference",
    "not_about_user",
]

FindSecrets = Callable[[str], Mapping[str, int]]
"""Numbers of secrets and personal data in a text by kind; see `langmem_harness.redaction`."""

MIN_SUPPORT = 0.5
"""Share of a text's content words that must be in its quote (0 to 1, inclusive); less is an inference."""

_PAYMENT_KINDS = frozenset({"card", "credit_card", "iban"})
_PAYMENT = re.compile(
    r"\b(?:cvv|cvc|card number|credit card|debit card|iban|account number|sort code|routing number|bank details"
    r"|bank account|expiry date|(?:visa|mastercard|amex|maestro|card)\b[^.\n]{0,20}\b\d{4})\b",
    re.I,
)
_SECRET = re.compile(
    r"\b(?:password|passphrase|passcode|pin(?: code)?(?= is\b| number\b)|secret key|api[ _-]?key|access token"
    r"|private key|seed phrase|social security|passport number)\b",
    re.I,
)
_HYPOTHETICAL = re.compile(
    r"^(?:if|suppose|imagine|let'?s say|maybe|perhaps|what if|say)\b|\bif (?:i|my|we)\b|\b(?:might|would be|could be)\b"
    r"|\bi (?:think|guess|suppose) (?:i|my)\b",
    re.I,
)
_THIRD_PERSON = word_set("""
    wife husband partner girlfriend boyfriend fiancé fiancée spouse son daughter child children kid kids baby mother
    father mom mum dad parents brother sister sibling siblings boss manager colleague coworker co-worker friend friends
    neighbour neighbor roommate flatmate client customer doctor teacher teammate uncle aunt cousin nephew niece
    grandmother grandfather grandma grandpa grandson granddaughter assistant
""")
_OTHERS = re.compile(r"^(?:he|she|they|his|her|their)\b", re.I)
_NAMED = re.compile(
    r"^[A-Z][\w'’-]*(?: [A-Z][\w'’-]*)? (?:likes|loves|prefers|hates|dislikes|lives|wants|speaks|eats|drinks|drives|"
    r"was born|is (?:allergic|vegetarian|vegan|married|single|pregnant|divorced|retired|afraid|sick|ill|\d+ years))\b"
)
"""A person by name; what else has a name (a city, a server) does none of this."""
_REQUEST = re.compile(
    r"^(?:(?:please|can you|could you|would you|will you|then|now|ok|okay|and|so|yes|also|just|let'?s|i want you to)"
    r"[, ]+)*(?:book|find|search|show|order|buy|send|reserve|schedule|cancel|check|look|get|give|tell|make|write|fix|"
    r"run|add|remove|delete|open|compare|plan|suggest|recommend|take|pick|choose|go with|translate|summari[sz]e|"
    r"explain|help|do|use|try|change|update|create|set|remind)\b",
    re.I,
)
_TASK = re.compile(
    r"\b(?:i'?m|i am|im) (?:currently |still |now |just |not )*\w+ing\b"
    r"|\bi(?:'d| would| will|'ll| need| want| have to| must| am going| plan| hope| wish)\b"
    r"|\bi(?:'ve| have)? (?:just |already )?(?:booked|ordered|bought|sent|found|tried|reserved|cancell?ed|paid|checked|"
    r"finished|started|installed|ran|opened|picked|chose|decided)\b"
    r"|\bbooked\b|\bremember to\b",
    re.I,
)
_TASK_NOUNS = word_set("""
    question questions problem issue error bug flight flights trip order booking reservation request idea point guess
    goal task ticket message answer code script query deadline appointment meeting package parcel train hotel turn plan
""")
_MOMENT = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|right now|at the moment|for now|just now|so far|this (?:morning|afternoon|"
    r"evening|week|weekend|month|time|one|option)|that (?:one|option)|the (?:first|second|third|last|next|other) "
    r"(?:one|option|flight|result)|next (?:week|month|monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
    r"|the \w+ (?:one|ones|option|options)|in a (?:hurry|minute|meeting|moment)|on my way)\b",
    re.I,
)
_DEICTIC = re.compile(
    r"\b(?:like|love|prefer|hate|enjoy|dislike)\s+(?:this|that|these|those|it|them|both|your|"
    r"(?:how|what|when|the way) you)\b",
    re.I,
)
_MOOD = re.compile(
    r"\b(?:i'?m|i am|im) (?!on an? (?:[\w-]+ ){1,3}diet\b)"
    r"(?!in (?:the )?(?:[\w-]+ ){0,2}(?:team|department|industry)\b)"
    r"(?:so |very |really |a bit |quite |not |pretty |too |all |still |just )*(?:sorry|tired|hungry|"
    r"thirsty|fine|good|ok|okay|ready|sure|done|back|here|there|late|busy|confused|happy|glad|afraid|excited|bored|sad|"
    r"angry|stuck|lost|curious|interested|in|at|on|off|out|home|with|about|able|unable|new|worried|grateful|impressed|"
    r"right|wrong|cold|hot|sick|ill|well|fed up|the one)\b",
    re.I,
)
_STATE = re.compile(
    r"\bmy (?:[\w'’-]+ ){1,4}(?:is|are) (?:so |very |really |still |just |not |too |already )*"
    r"(?:broken|down|late|lost|empty|full|slow|stuck|missing|working|ready|dead|wrong|delayed|cancell?ed|here|"
    r"gone|running|on (?:its|the) way)\b",
    re.I,
)
_PREFERRING = re.compile(r"\b(?:prefers?|likes?|loves?|always|usually|favou?rites?|hates?|dislikes?|enjoys?)\b", re.I)
_FIRST_PERSON = re.compile(r"\b(?:i|i'm|im|i'd|i've|me|my|mine|we|our|us)\b", re.I)


def find_drop_reason(
    proposal: Proposal, messages: Sequence[BaseMessage], find_secrets: FindSecrets | None = None
) -> DropReason | None:
    """The first rule a proposal breaks, or None when it may be remembered.

    Args:
        proposal: From a rule or a model.
        messages: The thread at top level; only what a person said in it counts as evidence.
        find_secrets: Looks for secrets and personal data; None: only telling words are looked for.
    """
    if find_message(messages, proposal.quote) is None:
        return "no_evidence"
    both = f"{proposal.quote}\n{proposal.text}"
    if (leak := _find_leak(both, find_secrets)) is not None:
        return leak
    if screen_text(proposal.text).findings or screen_text(proposal.quote).findings:
        return "instruction"
    if proposal.quote.rstrip().endswith("?"):
        return "question"
    core = proposal.text if proposal.explicit else proposal.quote
    if _HYPOTHETICAL.search(core):
        return "hypothetical"
    if _is_about_others(core) or _is_about_others(proposal.text):
        return "third_person"
    if not proposal.explicit and _REQUEST.match(core):
        return "inference" if _PREFERRING.search(proposal.text) else "task_progress"
    if _TASK.search(core) or _is_about_a_task(core) or re.match(r"remember to\b", proposal.quote, re.I):
        return "task_progress"
    if _MOMENT.search(core) or _DEICTIC.search(core) or _STATE.search(core):
        return "not_durable"
    if not proposal.explicit and _MOOD.search(core):
        return "not_durable"
    wanted = content_words(proposal.text)
    if wanted and len(wanted & content_words(proposal.quote)) / len(wanted) < MIN_SUPPORT:
        return "inference"
    if not proposal.explicit and not _FIRST_PERSON.search(proposal.quote):
        return "not_about_user"
    return None


def find_message(messages: Sequence[BaseMessage], quote: str) -> HumanMessage | None:
    """The newest message of a person that has the quote verbatim in their own words; a blank quote is nowhere."""
    if not quote.strip():
        return None
    return next((message for message in reversed(human_messages(messages)) if quote in own_words(message.text)), None)


def _find_leak(text: str, find_secrets: FindSecrets | None) -> DropReason | None:
    found = set(find_secrets(text)) if find_secrets is not None else set()
    if found & _PAYMENT_KINDS or _PAYMENT.search(text):
        return "payment_detail"
    return "secret" if found or _SECRET.search(text) else None


def _is_about_others(text: str) -> bool:
    if _OTHERS.match(text) or (_NAMED.match(text) and not text.startswith(("I ", "The user "))):
        return True
    match = re.match(r"(?:and |but |also |remember that )*(?:my|our)\s+((?:[\w’'-]+\s+){0,2}[\w’'-]+)", text, re.I)
    if match is None:
        return False
    words = [word.casefold().replace("’", "'").removesuffix("'s") for word in match.group(1).split()]
    return any(word in _THIRD_PERSON for word in words[:2])


def _is_about_a_task(text: str) -> bool:
    match = re.search(r"\bmy\s+((?:[\w’'-]+\s+){0,3}?)(?:is|are|'s)\b", text, re.I)
    return match is not None and any(word.casefold() in _TASK_NOUNS for word in match.group(1).split())
