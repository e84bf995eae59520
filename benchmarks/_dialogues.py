"""GENERATED dialogues with questions: made by templates, not by people, and no stand-in for LoCoMo or any other set.

They have the difficulties that were seen in real sets, so that a run shows something where those are not at hand: an
answer that shares no word with the question (the turn before it does), names in cheers ("Wow, Ada!"), and the same
topic for both speakers. Figures on them compare systems with each other; they say nothing about real conversations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from langmem_harness.evaluation.datasets import Collection, Dataset, Question, Turn

NAMES = (
    "Caroline",
    "Melanie",
    "Joanna",
    "Nate",
    "Deborah",
    "Jolene",
    "Audrey",
    "Andrew",
    "Evan",
    "Sam",
    "Grace",
    "Will",
)

CHEERS = (
    "Wow, {other}! That is amazing.",
    "{other}, I am so proud of you!",
    "That sounds wonderful, {other}.",
    "Thanks, {other}! It means a lot.",
    "Good to hear from you, {other}. How was your week?",
    "Same here, {other}. Busy as always.",
    "Haha, {other}, you always make me laugh.",
    "Take care, {other}, talk soon!",
    "I know what you mean.",
    "It has been raining here for days.",
)

ANSWERED = (  # (what the other asks, the answer that stands alone, what is asked later)
    ("What did you end up naming the puppy?", ("Biscuit", "Juno", "Pepper", "Waffles"),
     "What is {who}'s puppy called?"),
    ("Where are you going on holiday this year?", ("Lisbon", "Iceland", "Hanoi", "the Dolomites"),
     "Which place did {who} pick for the holiday?"),
    ("Which instrument are you learning now?", ("The cello", "Drums", "An old accordion", "The oboe"),
     "What instrument does {who} learn?"),
    ("What are you allergic to again?", ("Peanuts, sadly", "Cats, of all things", "Shellfish", "Kiwi"),
     "What allergy does {who} have?"),
    ("How did the marathon training go?", ("Thirty kilometres on Sunday", "I twisted an ankle", "Better than feared"),
     "How is the marathon training of {who} going?"),
    ("What did the doctor say about your back?", ("Six weeks without lifting", "Nothing serious", "More swimming"),
     "What was the doctor's advice for {who}'s back?"),
    ("Who is coming to the wedding from your side?", ("Only my sister", "Everybody, even uncle Theo", "Two cousins"),
     "Who comes to the wedding for {who}?"),
    ("What was the book club reading?", ("Middlemarch", "A detective story from Oslo", "Beloved"),
     "What is read in {who}'s book club?"),
)  # fmt: skip

TOLD = (  # (what is told, what is asked later in other words)
    ("I signed up for a {thing} class last night.", ("pottery", "salsa", "welding", "calligraphy"),
     "What course is {who} taking?"),
    ("The new job starts in {thing}, I accepted the offer.", ("two weeks", "autumn", "March", "ten days"),
     "When does {who} begin the new position?"),
    ("My {thing} is staying with us until the end of the month.", ("brother", "aunt", "old flatmate", "niece"),
     "Who is visiting {who}?"),
    ("We painted the living room {thing} over the weekend.", ("green", "mustard yellow", "pale blue", "brick red"),
     "What colour did {who} choose for the room?"),
    ("I sold the car and bought a {thing} instead.", ("cargo bike", "scooter", "rail pass", "tandem"),
     "How does {who} get around without a car?"),
    ("The {thing} at school won my kids over completely.", ("chess club", "choir", "robot lab", "garden group"),
     "What do the children of {who} like at school?"),
)  # fmt: skip


def generate_dialogues(*, conversations: int = 6, sessions: int = 14, seed: int = 7) -> Dataset:
    """A set of dialogues of two speakers, the same for the same arguments.

    Args:
        conversations: How many, 1 or more; each is searched on its own.
        sessions: Dated threads of each, 1 or more.
        seed: Of the random choices.
    """
    rng = random.Random(seed)
    return Dataset(
        name="generated (no real set)",
        collections=tuple(_conversation(f"generated-{number}", sessions, rng) for number in range(conversations)),
    )


def _conversation(name: str, sessions: int, rng: random.Random) -> Collection:
    speakers = rng.sample(NAMES, 2)
    topics = [
        (kind, number, who)
        for kind, of in (("asked", ANSWERED), ("told", TOLD))
        for number in range(len(of))
        for who in (0, 1)
    ]
    rng.shuffle(topics)
    day = datetime(2024, 1, 6, tzinfo=UTC)
    turns: list[Turn] = []
    questions: list[Question] = []
    for session in range(sessions):
        share = topics[session::sessions]
        for speaker, text, question in _session(share, speakers, rng):
            key = f"D{session + 1}:{len([turn for turn in turns if turn.thread == f'D{session + 1}']) + 1}"
            turns.append(Turn(key=key, thread=f"D{session + 1}", speaker=speaker, text=text, said_at=day))
            if question is not None:
                category, asked = question
                questions.append(Question(text=asked, gold=frozenset({key}), category=category))
        day += timedelta(days=rng.randint(5, 20))
    items = {turn.key: f"[{turn.said_at:%d %B, %Y}] {turn.speaker}: {turn.text}" for turn in turns}
    return Collection(name=name, items=items, questions=tuple(questions), turns=tuple(turns))


def _session(
    share: list[tuple[str, int, int]], speakers: list[str], rng: random.Random
) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    """(speaker, text, the question it answers with its category) of each turn."""
    yield from _small_talk(speakers, rng, 4)
    for kind, number, who in share:
        speaker, other = speakers[who], speakers[1 - who]
        if kind == "asked":
            asks, answers, later = ANSWERED[number]
            yield other, asks, None
            yield (
                speaker,
                rng.choice(answers) + rng.choice((".", "!", ", as you know.")),
                ("neighbour", later.format(who=speaker)),
            )
        else:
            tells, things, later = TOLD[number]
            yield speaker, tells.format(thing=rng.choice(things)), ("told", later.format(who=speaker))
        yield from _small_talk(speakers, rng, rng.randint(2, 5))


def _small_talk(speakers: list[str], rng: random.Random, count: int) -> Iterator[tuple[str, str, None]]:
    for place in range(count):
        yield speakers[place % 2], rng.choice(CHEERS).format(other=speakers[1 - place % 2]), None
