"""Word lists the rules of this room share. English where nothing else is said; other languages simply match less."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


SMALL_TALK = word_set("""
    hi hello hey hiya yo greetings morning afternoon evening night good day thanks thank thx you very much so a lot
    ok okay alright fine great cool nice perfect awesome super wonderful excellent sure yes yeah yep no nope nah bye
    goodbye see later soon cheers welcome please sorry lol haha hmm how are is it going what's whats up there how's
    right all problem worries you're youre my pleasure got i understood understand and to too that's thats sounds
    well take care have weekend anytime np ty noted done
""")

NEGATIONS = word_set("""
    no not never none nothing neither nor without cannot can't don't doesn't didn't won't isn't aren't wasn't
    weren't hasn't haven't hadn't shouldn't wouldn't couldn't stopped quit former formerly anymore unable dislike
    dislikes hate hates avoid avoids except kein keine nicht nie ohne pas jamais sans non senza mai sin nunca não
    nao sem
""")
"""Words that turn a statement around; some European languages included, because losing one merges opposites."""

NUMBER_WORDS = word_set("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million first second
    third monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december
""")

EMPTY_WORDS = word_set("""
    a an and are as at be been by do does for from has have he her his i i'm in is it its me my of on or our she so
    that the their them they this to user users was we were will with you your s am i've i'd she's he's prefers
    prefer likes like wants want says said mentioned always usually
""")
"""Words that say nothing about whether one text supports another, also the verbs of reporting."""

NAMES_THAT_ARE_WORDS = word_set("""
    ace amber angel april art august autumn ava basil bill bob brook brooks carol chance charity chase chip christian
    clay cliff colt crystal daisy dale dawn dean drew duke earl earnest ember eve faith fern forest frank gene ginger
    glen grace grant guy hazel heath heather holly hope hunter iris ivy jack jade jasmine jewel joy june king lance
    lane lily lucky mark mars may mercy miles misty noble norm olive pat patience pearl penny prince ray reed rich
    rob robin rock rod roman rose rosemary ruby rusty sage sandy scarlet scout sky skip sterling stone storm sue
    summer sunny terry tony trinity violet wade wells will willow winter woody wren
""")
"""First names that are English words as well."""

TIME_WORDS = word_set("""
    in since until till by during from before after last next this early mid late of and or every each
    january february march april may june july august september october november december
""")
"""Words before which "May" or "Summer" is a time and not a person."""

TITLES = word_set("""
    mr mrs ms miss dr prof sir madam lord lady herr frau monsieur madame señor señora senor senora signor signora don
    doña von van der den del della the
""")
"""Words of a name that alone name nobody."""
