"""Text that pretends to be part of the conversation: roles, templates of chat models, calls and results of tools.

Pure; see `rules` for how a rule works.
"""

from __future__ import annotations

import re

from langmem_harness.screening.rules import Rule, anchors

IMITATIONS: tuple[Rule, ...] = (
    Rule(
        name="role_imitation",
        anchors=(
            "<|",
            *anchors(
                "[inst]|[/inst]|<<sys|<</sys|<start_of_turn|<end_of_turn|<system|</system|<assistant|"
                "</assistant|<user|</user|<human|</human|<instructions|</instructions|<developer|</developer|"
                '<admin>|</admin>|<important>|</important>|[system|[assistant|[developer|### |"role"|'
                "to=functions|<s>[|begin |end "
            ),
        ),
        pattern=re.compile(
            r"(?:<\|[a-z_/]{2,30}\|>|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>"
            r"|</?(?:system|assistant|developer|admin|important|instructions)(?:[ _-](?:prompt|message|reminder"
            r"|instructions?|note))?>"
            r"|</?(?:user|human)[ _-](?:prompt|message|query|input)>"
            r"|\[(?:system|assistant|developer)(?: (?:message|prompt|note|override|instructions?|update)\]|\]\(#)"
            r'|"role" ?: ?"(?:system|developer)"|to=functions\.\w{1,40}'
            r"|### ?(?:system|assistant|instructions?|human|user)(?: (?:message|prompt))?:"
            r"|(?:begin|end) (?:of )?(?:system|new|developer|admin|hidden) (?:message|prompt|instructions?)\b)"
        ),
        extent="match",
    ),
    Rule(
        name="role_imitation",
        anchors=anchors("system|assistant|developer|human|user|[system]|**system"),
        pattern=re.compile(
            r"(?<![^\n>*# ])(?:\*\*)?\[?(?:system|assistant|developer|human|user)(?: (?:message|prompt|note"
            r"|instructions?))?\]?(?:\*\*)?"
            r" ?:[ \n*]{1,4}"
            r"(?=(?:you (?:are|must|will|should)|ignore|disregard|forget|from now on|new instructions?"
            r"|the user (?:has|is|wants)"
            r"|always|never|please (?:ignore|send|call|run)|override|execute|call the|send|sure, (?:i|here)"
            r"|i will now))"
        ),
        extent="line",
    ),
    Rule(
        name="tool_call_imitation",
        anchors=anchors(
            "<tool_call|</tool_call|<function_call|</function_call|<function=|<invoke|</invoke|<antml|"
            '[tool_calls]|"tool_calls"|"function_call"|<tool_result|</tool_result|<tool_response|'
            "</tool_response|<function_result|</function_result|action:|<tool_use|</tool_use|"
            "<parameter name"
        ),
        pattern=re.compile(
            r"(?:</?(?:antml:)?(?:tool_calls?|function_calls?|tool_results?|function_results?|tool_responses?"
            r"|tool_use)>"
            r"|<function=[\w.-]{1,60}|</?(?:antml:)?invoke(?: name=|>)|<(?:antml:)?parameter name="
            r"|\[tool_calls\]|\"tool_calls\" ?: ?\[ ?\n? {0,20}\{|\"function_call\" ?: ?\n? {0,20}\{"
            r"|(?<![^\n ])action: ?[\w.-]{1,60} ?\n ?action input:)"
        ),
        extent="match",
    ),
)
