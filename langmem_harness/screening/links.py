"""Links that carry data away or pretend to lead elsewhere.

Pure. Clients fetch images of Markdown and HTML on their own, so an image address with a place for data is a way out for
whatever the model writes into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\(\s{0,3}<?([^)\s<>]{1,2000})")
_IMAGE = re.compile(
    r"<(?:img|iframe|script|link|video|audio|embed|object)\b[^<>]{0,300}?\b(?:src|href|data)\s{0,3}=\s{0,3}[\"']?([^\s\"'<>]{1,2000})",
    re.I,
)
_PLACEHOLDER = re.compile(
    r"\{\{?[\w .]{1,60}\}|\$\{|<[\w ]{1,40}>|\[[A-Za-z_ ]{2,40}\]|%7B|\bINSERT_|\b(?:YOUR|THE|USER)_[A-Z_]{2,}"
)
_TELLING = re.compile(
    r"[?&;](?:data|secrets?|passwords?|creds?|credentials|conversation|history|chat|prompt|payload|leak|exfil\w*|stolen"
    r"|memory|memories|apikey|api_key|private|context|messages?)=",
    re.I,
)
_BLOB = re.compile(r"[?&;][\w.-]{1,40}=[A-Za-z0-9+/_-]{60,}")
_ACTIVE = re.compile(r"(?:javascript|vbscript|data:text/html|data:application/javascript)", re.I)
_HOST = re.compile(r"^(?:https?://|www\.)[\w.-]{3,200}", re.I)


def find_data_links(text: str) -> Iterator[tuple[str, int, int]]:
    """Rule name and span of links that would carry data away, run code, or show another host than they lead to."""
    if "](" in text:
        for match in _LINK.finditer(text):
            rule = _judge(match.group(2), shown=match.group(1))
            if rule:
                end = match.end() + 1 if text[match.end() : match.end() + 1] == ")" else match.end()
                yield rule, match.start(), end
    if "<" in text:
        for match in _IMAGE.finditer(text):
            rule = _judge(match.group(1), shown="")
            if rule:
                yield rule, match.start(), match.end()


def _judge(address: str, *, shown: str) -> str | None:
    if _ACTIVE.match(address):
        return "active_link"
    if not address.lower().startswith(("http://", "https://", "//", "ftp://")):
        return None
    _, _, query = address.partition("?")
    if _TELLING.search(address) or _BLOB.search(address) or (query and _PLACEHOLDER.search(query)):
        return "data_link"
    named = _HOST.match(shown.strip())
    if named and _host(named.group()) != _host(address):
        return "deceptive_link"
    return None


def _host(address: str) -> str:
    try:
        host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    except ValueError:  # a broken IPv6 address
        return address
    return host.removeprefix("www.").rstrip(".")
