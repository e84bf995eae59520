"""What counts as an instruction inside data: a rule with its anchors and its pattern, and the orders in English.

Pure. A rule is looked for at its *anchors* only (plain substrings, found at the speed of C), and its pattern is tried
there on a bounded window. Quantifiers are bounded and their alternatives start differently, so the cost stays linear
in the text whatever it holds. Patterns run on folded text (see `folding`): lower case, Latin letters, nothing hidden.

Between two words up to four separators are allowed and none is needed, so ``ignore--previous__instructions`` and
``ignorepreviousinstructions`` read like the plain words. The caret is no separator: it is what neutralised text is
joined with, so neutralised text is never found again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

WINDOW = 400
"""Characters a pattern may look at from its anchor on, and a sentence may go on after a match."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One kind of embedded instruction.

    Attributes:
        name: Stable name, used in marks, findings and events.
        anchors: Folded substrings; the pattern is tried where one begins.
        pattern: Compiled pattern that begins at the anchor.
        extent: What is neutralised: from the match to the end of its ``"line"`` (what follows an override is its
            payload) or ``"sentence"``, at most `WINDOW` more characters, or only the ``"match"``.
        views: Whether the rule is also tried on disguised text (leet, rot13, reversed).
    """

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    extent: Literal["line", "sentence", "match"] = "sentence"
    views: bool = False


_GAP = r"(?:[^\w^]|_){0,4}"
_SEPARATOR = r"(?:[^\w^]|_){1,4}"
_WORD = r"[^\W_]{1,20}"


def anchors(listed: str) -> tuple[str, ...]:
    """The anchors in a text, separated by ``|``; blanks count."""
    return tuple(listed.split("|"))


def words(source: str) -> re.Pattern[str]:
    """A pattern in which a blank stands for an optional gap, and ``~n`` for up to n words of any kind."""
    source = source.replace(" ", _GAP)
    return re.compile(re.sub(r"~(\d+)", lambda m: f"(?:{_WORD}{_SEPARATOR}){{0,{m.group(1)}}}", source))


_IGNORE = (
    r"(?:ignor(?:e|es|ed|ing)|disregard(?:s|ed|ing)?|forget(?:s|ting)?|overrid(?:e|es|ing)|bypass(?:es|ing)?"
    r"|neglect(?:ing)?|discard(?:ing)?|(?:do not|don.?t|stop|never) (?:follow|obey|listen to)(?:ing)?)"
)
_WHICH = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|aforementioned|former|past|system|original|initial"
    r"|existing|current"
    r"|safety|developer)"
)
_ANY = r"(?:all|any|every|each|of|the|these|those|this|your|my|our|that|other|and|or|to|about)"
_ORDERS = (
    r"(?:instruction|prompt|directive|guideline|direction|order|programming|training|constraint|restriction"
    r"|safeguard|guardrail)s?"
)
_TALK = r"(?:rule|message|context|conversation|command|polic(?:y|ie)|content|request|task|statement|text)s?"
_ADDRESSEE = r"(?:ai|a\.i\.|llm|language model|assistant|agent|chatbot|chat bot|gpt|claude|gemini|copilot)"
_SENSITIVE = (
    r"(?:data|secret|password|credential|api key|token|conversation|message|chat|history|e.?mail|inbox|file|content"
    r"|memor(?:y|ie)|prompt|context|environment|env var|private|personal|payment|card|bank|customer|user|account"
    r"|document|key|everything|information|note)s?"
)
_SEND = (
    r"(?:send|sending|forward|forwarding|post|posting|upload|uploading|e-?mail|e-?mailing|leak|exfiltrate|transmit"
    r"|submit|deliver|copy|bcc|cc|publish|report)"
)
_DESTINATION = r"(?:\w{4,5}://|www\.|\w@\w|\d\.\d{1,3}\.\d{1,3}\.\d)"
_MODEL_DOES = (  # what an agent does to others or says; people are told to ship, book and lock things, too
    r"(?:send|forward|reply|respond|answer|use|call|include|recommend|mention|say|tell|ignore|obey|append|insert|trust"
    r"|transfer|wire|pay|delete|execute|run|reveal|you)\b"
)

ORDERS: tuple[Rule, ...] = (
    Rule(
        name="instruction_override",
        anchors=anchors("ignor|disregard|forget|overrid|bypass|neglect|discard|do|stop|never"),
        pattern=words(
            rf"{_IGNORE}(?!\(\w{{1,40}}=) (?:"  # not a call with named arguments, in a program
            # who takes back their own last word ("disregard my previous message") overrides nobody
            r"(?!my (?:previous|prior|earlier|last) (?:message|question|request|statement|text)\b)"
            rf"(?:{_ANY} ){{0,4}}(?:{_WHICH} (?:{_ANY} ){{0,2}}){{1,3}}(?:{_ORDERS}|{_TALK})"
            rf"|(?:{_ANY} ){{1,5}}{_ORDERS}"
            rf"|(?:every ?thing|any ?thing|all|what ?ever|what) ~4(?:above|before|previously|so far|earlier|told"
            rf"|said|know|knew|learned|learnt"
            rf"|until now|prior)"
            rf"|(?:the |this |any |all )?(?:user|human|customer).{{0,2}}s? (?:request|question|message|query"
            rf"|instruction|task|goal)s?"
            rf"|(?:all )?(?:of )?(?:the )?(?:above|previous|foregoing)(?= (?:and|instead|[.!,]))"
            rf")\b"
        ),
        extent="line",
        views=True,
    ),
    Rule(
        name="instruction_override",
        anchors=anchors("new |your |updated |real |revised |system |important|urgent|attention"),
        pattern=words(
            r"(?:(?:new|updated|revised|real) (?:system )?instructions?(?= [:\-]| for you| follow)"
            r"|your (?:new|real|true|actual|only|updated) (?:task|instructions?|role|goal|objective|job|mission"
            r"|purpose|priority) (?:is|are|will)"
            r"|your (?:new |real |only )?(?:task|job|goal|mission|objective|purpose|role) is now\b"
            r"|your (?:system )?(?:instructions?|guidelines|task|objective|goal|prompt|role) (?:have|has|are|is"
            r"|was|were) (?:now )?(?:been )?"
            r"(?:changed|updated|replaced|superseded|revoked|reset)"
            rf"|system (?:override|prompt override|instructions? override|update:)"
            rf"|(?:important|urgent|attention|critical)(?: (?:message|notice|note|instructions?))? (?:to|for)?"
            rf" (?:the|all|any|every)? (?:{_ADDRESSEE})s?\b(?= [:,!.\-]| (?:you|must|read|reading|processing"
            rf"|please)))"
        ),
        extent="line",
    ),
    Rule(
        name="instruction_override",
        anchors=anchors("previous |prior |earlier |original |supersed|replac|stop what|end of |instead of"),
        pattern=words(
            rf"(?:(?:previous|prior|earlier|original) ~1{_ORDERS} (?:are|is|have been|has been|were|no longer) ~2"
            r"(?:void|cancel|supersed|replac|obsolete|invalid|overrid|suspend|revok|apply|expired)\w{0,6}"
            rf"|(?:supersed|replac)(?:e|es|ing) (?:all|any|your|the)? (?:{_WHICH}) ~1{_ORDERS}"
            r"|stop what you (?:are|re) doing"
            r"|end of (?:the )?(?:document|data|input|context|tool (?:output|result)|user (?:message|input|query))"
            r"(?= (?:new|now|system|begin|start|instruction|you|assistant))"
            rf"|instead of (?:following )?(?:the|your) (?:user|{_WHICH}) {_ORDERS})\b"
        ),
        extent="line",
    ),
    Rule(
        name="instruction_override",
        anchors=anchors(
            "pay no|set aside|erase|reset|dismiss|abandon|delete|remove|listen|above |disabl|overrid|"
            "bypass|stop every|before |please "
        ),
        pattern=words(
            r"(?:(?:pay no attention to|set aside|erase|reset|dismiss|abandon|delete|remove|listen to)"
            rf" (?:{_ANY} ){{0,3}}(?:previous|prior|earlier|above|preceding|aforementioned|your)"
            r" (?:instructions?|directives?|prompts?|guidelines?|rules|messages)"
            rf"|above {_ORDERS} (?:are|is|have been|no longer) ~1(?:void|cancel|supersed|replac|obsolete|invalid"
            rf"|revok|apply)\w{{0,6}}"
            r"|(?:disabl|overrid|bypass)(?:e|ing|es)? (?:all|any|the|your)? (?:of )?(?:the|your)? safety"
            r" (?:protocol|check|filter|guideline|measure|rule|setting|restriction)s?"
            r"|stop everything(?= (?:and|you|[.!,]))"
            r"|before (?:continuing|proceeding|answering|responding|you (?:can )?(?:continue|proceed|answer|solve"
            r"|respond))"
            r" ~10(?:please|you must|you have to|do the|perform|execute|first)"
            r"|please (?:do|perform|complete|execute) (?:the|this) following (?:first|task|action|instruction"
            r"|tool call)s?"
            r" (?:first|before|instead|now))\b"
        ),
        extent="line",
    ),
    Rule(
        name="persona_change",
        anchors=anchors("you |act |pretend|developer|jailbreak|enter|enable|respond |sudo|i am your|begin|start"),
        pattern=words(
            r"(?:you (?:are|will be|must be|shall be) (?:now|from now on|no longer)"
            r" (?:a|an|the|in|called|named|dan|bound|free|unrestricted|root|able|acting|under|going|operating|my"
            r"|to)\b"
            r"|(?:act|respond|behave) (?:as|like) (?:a|an)?"
            r" (?:unrestricted|unfiltered|uncensored|dan\b|jailbroken|evil|amoral|different ai)"
            r"|you are dan\b|you can do anything now|sudo mode"
            r"|act as (?:root|admin|administrator|dan|the (?:developer|system))\b"
            r"|i am your (?:developer|creator|administrator|admin|owner|new (?:master|owner|user))"
            r"|(?:begin|start) (?:an? )?(?:admin|root|developer|god) session"
            r"|pretend (?:to be|that you are|you are|you.re) (?:a|an)? (?:unrestricted|unfiltered|uncensored"
            r"|dan\b|evil"
            r"|admin|root|different|the (?:system|developer))"
            r"|(?:enter|enable)?(?:developer|debug|god|admin|dan|jailbreak) mode (?:enabled|activated|is on|now)"
            r"|(?:enter|enable) (?:developer|debug|god|dan|jailbreak|unrestricted) mode)"
        ),
        extent="line",
    ),
    Rule(
        name="addressed_to_model",
        anchors=anchors(
            "dear |hey |hello |hi |note |if you|to the |to any|to all|when |any |authori|the user |user has|attention "
        ),
        pattern=words(
            rf"(?:(?:dear|hey|hello|hi) (?:{_ADDRESSEE})\b(?= [,:!])"
            rf"|note (?:to|for) (?:the|all|any)? (?:{_ADDRESSEE})s?\b"
            rf"|if you (?:are|re) (?:a|an|the) (?:{_ADDRESSEE})\b"
            rf"|to (?:the|any|all) (?:{_ADDRESSEE})s? (?:reading|processing|summari[sz]ing|handling|seeing|who)"
            rf"|(?:when|any) ~1(?:{_ADDRESSEE})s? (?:reads?|reading|processes|processing|summari[sz]es?"
            rf"|summari[sz]ing|sees?)"
            rf" (?:this|that|it|the)"
            r"|when (?:summari[sz]ing|processing|reading|answering|describing|reviewing) (?:this|the) ~1"
            r"(?:page|document|text|e.?mail|message|file|result|article|ticket)s?"
            r" ,? (?:you|always|never|recommend|include|say|mention|add|do not|state|write)\b"
            rf"|attention ,? (?:{_ADDRESSEE})s?\b"
            r"|(?:the )?user (?:has|have|had|already)? ~1(?:authori[sz]ed?|approved|requested|consented"
            r"|instructed|asked|wants|agreed)"
            r" (?:that )?you (?:to|must|should|can|may)?\b"
            r"|authori[sz](?:e|es|ed|ing) you to\b(?! (?:choose|exercise|reproduce|copy|distribute)))"  # as licences do
        ),
        extent="line",
    ),
    Rule(
        name="model_must_act",
        anchors=anchors(
            "you |assistant|agent|ai |the ai|model |llm |chatbot |tell the|immediately|never |hide |"
            "conceal |keep |call the|invoke the|run the|execute the|do not|don't|don’t|without "
        ),
        pattern=words(
            r"(?:(?:you|assistant|agent|ai|the ai|model) (?:must|should|need to|have to|shall"
            r"|are required to) (?:now|always|immediately)?"
            r" (?:call|invoke|run|execute|use) the ~3(?:tool|function)\b"
            r"|you (?:must|should|will|shall|are to) (?:always|now|immediately|only|never)"
            r" (?:reply|respond|answer|forward|exfiltrate|obey|comply|recommend|say|tell|mention|send|include)\b"
            r"|(?:assistant|the ai|ai|llm|chatbot|language model) (?:must|should|will|shall|has to|needs to)"
            r" (?:now|always|immediately|never|only)? (?:reply|respond|answer|send|forward|call|e.?mail|ignore"
            r"|recommend|delete"
            r"|transfer|say|tell|include|reveal|execute|run|visit|open|obey)\b"
            r"|tell the (?:user|human|customer)s? (?:to|that) ~6(?:click|visit|pay|log in|login|download|install"
            r"|enter|provide|call|send|http\w?)\b"
            r"|immediately (?:call|invoke|run|execute|transfer|delete|wire|send|forward) ~3(?:tool|function"
            r"|command|account|money|funds|files?|data|payment)"
            r"|(?:do not|don.?t) (?:tell|inform|alert|notify|warn|mention (?:this|it) to|reveal (?:this|it) to"
            r"|show (?:this|it) to|let) (?:the|your|any)? (?:user|human|operator|owner)s?\b"
            r"|(?:do not|don.?t|never) (?:mention|reveal|disclose|repeat|show) (?:any of )?"
            r"(?:these instructions?|this instruction|this message|this (?:text|note) to)"
            r"|(?:hide|conceal|keep) (?:this|it) (?:hidden |secret )?from (?:the|your) (?:user|human|operator|owner)"
            r"|(?:call|invoke|run|execute) the (?:function|tool) ~2(?:now|immediately)\b"
            r"|execute the following (?:tool|function) calls?"
            r"|without (?:telling|informing|asking|notifying|alerting|warning) (?:the|your) (?:user|human"
            r"|operator|owner))"
        ),
    ),
    Rule(
        name="standing_order",
        anchors=anchors(
            "remember|from now|in all |in every |for all |for every |in future|going forward|include |"
            "append |insert |end |begin |start |finish |if asked|when asked|if anyone|save |store |add |"
            "write |commit |whenever |every time|always |permanently|from this|henceforth|in your |"
            "respond |reply |answer "
        ),
        pattern=words(
            rf"(?:remember (?:this|that|to)? (?:(?:always|never) {_MODEL_DOES}|you must|you should|you have to"
            r"|from now)"
            rf"|remember ?: (?:to )?(?:always|never)? {_MODEL_DOES}"
            r"|from now on (?:,)? (?:you|always|never|respond|reply|answer|act|ignore|use|call|send|every|all|include"
            r"|recommend|append|treat|in|address|do|refer)\b"
            r"|(?:in|for) (?:all|every|any) (?:future|subsequent|later|new) (?:conversation|session|response"
            r"|answer|repl(?:y|ie)"
            r"|message|chat|interaction|request|turn)s?"
            r"|(?:in future|going forward) (?:conversations|sessions|responses|answers|replies|chats)?,? (?:you"
            r"|always|never)\b"
            r"|(?:save|store|add|write|commit) ~4(?:to|in|into|as) (?:your )(?:long.?term |permanent "
            r"|persistent )?memor(?:y|ies)\b"
            r"|(?:include|append|insert|add|end|begin|start|finish) ~6(?:every|each|all"
            r"|any)(?: of)? (?:your )?(?:future )?"
            r"(?:answer|response|repl(?:y|ie)|message|e.?mail)s?\b(?= (?:with|by|from|[.!,;:]|you|to the user"
            r"|about|it|$))"
            r"|(?:if|when) (?:asked|anyone asks?|someone asks?) ~6(?:you must|say that|answer that|always|never"
            r"|reply with|respond with|recommend)\b"
            r"|(?:from this (?:point|moment|day) (?:on|forward|onward)s?|henceforth) ,? (?:you|always|never"
            r"|respond|reply|answer)\b"
            r"|in your (?:next|final|following) (?:response|reply|answer|message)s?\b"
            r"|always include ~6(?:in|with|at the end of) (?:your|every|all|each) (?:response|answer|repl(?:y|ie)"
            r"|message)s?"
            r"|(?:add|save|store|write) (?:this |it |the following )?(?:to|in|into) (?:your )?"
            r"(?:long.?term |permanent |persistent )?memory ?:"
            r"|(?:respond|reply|answer) (?:only|just) with (?:the )?(?:word|phrase|text|string|sentence)\b"
            r"|permanently (?:remember|memori[sz]e|store)"
            r"|(?:whenever|every time) (?:the user|a user|someone|anyone|anybody|you|asked) ~8(?:you must"
            r"|you should|always|never"
            r"|reply with|respond with|answer with|recommend|forward|exfiltrate)\b"
            rf"|always (?:{_SEND}|recommend|append|reply with|respond with|answer with|insert|mention"
            rf"|obey) ~6(?:to|with|that|in|by|the user)\b"
            r"(?= ~4(?:http|www|every|all|your|attacker|the user|each|[\w.]{1,40}@)))"
        ),
        views=True,
    ),
    Rule(
        name="exfiltration",
        anchors=anchors(
            "send|forward|post|upload|email|e-mail|leak|exfiltrat|transmit|submit|deliver|copy|bcc|cc |publish|report"
        ),
        pattern=words(
            rf"{_SEND}\b (?>(?:{_WORD}{_SEPARATOR}){{0,5}}?{_SENSITIVE}\b)"
            rf"(?=[^\n^]{{0,100}}?{_DESTINATION})[^\n^]{{0,80}}?\b(?:to|at|via|through|with)\b"
            # ... and the address behind that; one in a parenthesis belongs to something else, one in a link does not.
            rf"(?=(?:[^\n^(]|(?<=\])\(){{0,80}}?{_DESTINATION})"
            rf"|exfiltrate ~4{_SENSITIVE}\b"
        ),
        views=True,
    ),
    Rule(
        name="prompt_leak",
        anchors=anchors("reveal|print|show|repeat|output|display|leak|tell me|write out|disclose|dump"),
        pattern=words(
            r"(?:reveal|print|show|repeat|output|display|leak|tell me|write out|disclose|dump) (?:me|out|us)? ~3"
            r"(?:your|the) (?:full|entire|complete|exact|verbatim|whole)?"
            r" (?:(?:system|initial|hidden|secret|original) (?:prompt|instructions?|rules)|system message)\b"
            r"|(?:reveal|print|show|repeat|output|display|write out|disclose|dump) (?:me |out )?(?:all "
            r"|any )?(?:of )?your"
            r" (?:\w{1,12} )?(?:instructions|prompt|directives|guidelines)\b"
            r"|repeat (?:everything|all|the (?:text|words?|content)) (?:of the )?above"
        ),
        views=True,
    ),
)
