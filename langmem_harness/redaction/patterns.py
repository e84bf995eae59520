"""The detectors of this package: what counts as a secret or as personal data. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator

from langmem_harness.redaction.checksums import is_iban_valid, is_luhn_valid, is_mrz_valid
from langmem_harness.redaction.detectors import Detector, FunctionDetector, PatternDetector

# -- searches that are more than a pattern ------------------------------------------------------------------------

_LOCAL_PART_REVERSED = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}")
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])")
_DOMAIN_MAX = 255
_PEM_BEGIN = "-----BEGIN "
_PEM_HEADER = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"(?:[ \t]*(?:[A-Za-z0-9+/=]+|[A-Za-z-]+: [^\r\n]*)?(?:\\r|\\n|\r|\n|$))*")


def _find_emails(text: str) -> Iterator[tuple[int, int]]:
    position = text.find("@")
    while position != -1:
        domain = _DOMAIN.match(text, position + 1, position + 1 + _DOMAIN_MAX)
        if domain is not None:
            local = _LOCAL_PART_REVERSED.match(text[max(0, position - 64) : position][::-1])
            if local is not None:
                part = text[position - local.end() : position].lstrip(".'`{|=/?&#!$*")
                if part:
                    yield position - len(part), domain.end()
        position = text.find("@", position + 1)


def _find_private_keys(text: str) -> Iterator[tuple[int, int]]:
    position = text.find(_PEM_BEGIN)
    while position != -1:
        header = _PEM_HEADER.match(text, position)
        if header is None:
            position = text.find(_PEM_BEGIN, position + 1)
            continue
        # A key cut off before its END line is still a key: then everything that looks like its body goes.
        body = _PEM_BODY.match(text, header.end())
        body_end = body.end() if body is not None else header.end()
        footer = _PEM_END.match(text, body_end)
        end = footer.end() if footer is not None else body_end
        yield position, end
        position = text.find(_PEM_BEGIN, max(end, position + 1))


_IPV6_CANDIDATE = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?:\.\d{1,3}){3})?(?![\w:])")


def _find_ipv6(text: str) -> Iterator[tuple[int, int]]:
    if "::" not in text and text.count(":") < 7:
        return
    for match in _IPV6_CANDIDATE.finditer(text):
        candidate = match.group()
        if not any(character.isdigit() for character in candidate):
            continue  # "::" and C++-like "dead::beef" say nothing about a host
        try:
            ipaddress.IPv6Address(candidate)
        except ValueError:
            continue
        yield match.span()


# -- checks of a match ---------------------------------------------------------------------------------------------

_CARD_PREFIX = re.compile(r"4|5[1-5]|2(?:2[2-9]|[3-6]|7[01]|720)|3[47]|3(?:0[0-5]|[689])|6(?:011|5|4[4-9]|2)|35")
_CARD_LENGTHS = range(13, 20)


def _is_card(match: re.Match[str]) -> bool:
    shown = match.group()
    digits = re.sub(r"[ -]", "", shown)
    if len(digits) not in _CARD_LENGTHS or len(set(digits)) == 1:
        return False
    if digits == shown and len(digits) not in (14, 15, 16):
        return False  # a bare row of 13 or 17 to 19 digits is far more often an id or a time stamp
    return bool(_CARD_PREFIX.match(digits)) and is_luhn_valid(digits)


def _is_iban(match: re.Match[str]) -> bool:
    compact = match.group().replace(" ", "")
    return 15 <= len(compact) <= 34 and is_iban_valid(compact)


def _is_ipv4(match: re.Match[str]) -> bool:
    return all(int(part) <= 255 and (part == "0" or not part.startswith("0")) for part in match.group().split("."))


def _count_digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


def _is_international_phone(match: re.Match[str]) -> bool:
    return 8 <= _count_digits(match.group()) <= 15


def _is_local_phone(match: re.Match[str]) -> bool:
    return 7 <= _count_digits(match.group("secret")) <= 15


_NO_SECRET = frozenset(
    {
        *("none", "null", "nil", "true", "false", "yes", "no", "unknown", "undefined", "default", "empty", "any"),
        *("required", "optional", "missing", "invalid", "valid", "incorrect", "correct", "wrong", "expired", "denied"),
        *("failed", "failure", "accepted", "rejected", "changed", "reset", "hidden", "redacted"),
        *("string", "str", "int", "bool", "bytes", "text", "key", "value", "password", "token", "secret"),
        *("for", "from", "must", "should", "cannot", "not", "the", "your", "and", "has", "was", "is", "are", "will"),
    }
)
_ABOUT_PASSWORDS = frozenset(
    {
        *("password", "passwords", "passwort", "passphrase", "please", "enter", "type", "your", "must", "should"),
        *("required", "invalid", "incorrect", "wrong", "missing", "expired", "again", "characters", "forgot"),
    }
)
_CODE_IN_VALUE = re.compile(r"\$|^[A-Za-z_]+(?:\.[A-Za-z_]+)+$|^[*x•.…_-]+$|^%")


def _is_secret_value(value: str, *, needs_digit: bool) -> bool:
    if _CODE_IN_VALUE.search(value[:256]) or value.strip(".!?:").lower() in _NO_SECRET:
        return False
    return not needs_digit or any(character.isdigit() for character in value)


def _is_password(match: re.Match[str]) -> bool:
    text, start, end = match.string, match.start("secret"), match.end("secret")
    quote = text[start - 1]
    if quote in "\"'`" and text[end : end + 1] == " " and quote in text[end : end + 200].partition("\n")[0]:
        return False  # the first word of several in quotes: a pass phrase or a sentence, see `_is_pass_phrase`
    said_in_words: bool = match.group("link").strip().isalpha()
    return _is_secret_value(match.group("secret"), needs_digit=said_in_words)


def _is_pass_phrase(match: re.Match[str]) -> bool:
    """Several words in quotes are a pass phrase, unless they are a sentence about one."""
    words = {word.strip(".!?:,").lower() for word in match.group("secret").split(" ")}
    return len(match.group("secret")) >= 4 and words.isdisjoint(_ABOUT_PASSWORDS)


def _is_key_value(match: re.Match[str]) -> bool:
    return len(match.group("secret")) >= 8 and _is_secret_value(match.group("secret"), needs_digit=True)


def _has_digit(match: re.Match[str]) -> bool:
    return any(character.isdigit() for character in match.group("secret"))


# -- the table -----------------------------------------------------------------------------------------------------

_START = r"(?<![A-Za-z0-9_])"
_STOP = r"(?![A-Za-z0-9_])"
_TOKEN = r"[A-Za-z0-9_-]"
_LINK = r"""["'`\])]{0,2}(?P<link>[ \t]{0,4}(?:=>|:=|[:=])[ \t]{0,4}|[ \t]{1,4}(?:is|are|ist|est|es)[ \t]{1,4}|[ \t]{0,4}:[ \t]{0,4})["'`]{0,2}"""
# A value goes on to the next space, quote, comma or opening bracket; a closing bracket belongs to it when more follows.
_VALUE = r"""(?:[^\s"'`,;&()\[\]{}<>]|[)\]}>](?=[^\s"'`,;&()\[\]{}<>.]))"""
_VALUE_START = r"""(?![\["'`•])"""
_PASSWORD = r"(?:pass(?:word|wd|phrase|code)|pwd|passwort|mot[ ]de[ ]passe|contrase[nñ]a)"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DATE = (
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2})"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?[ ](?:of[ ])?{_MONTH},?[ ]\d{{4}}|{_MONTH}[ ]\d{{1,2}}(?:st|nd|rd|th)?,?[ ]\d{{4}}"
)


def _pattern(
    kind: str,
    expression: str,
    *hints: str,
    is_valid: Callable[[re.Match[str]], bool] | None = None,
    flags: int = 0,
) -> PatternDetector:
    return PatternDetector(kind, re.compile(expression, flags), hints, is_valid)


DEFAULT_DETECTORS: tuple[Detector, ...] = (
    # keys in blocks, and whole connection strings, first: they contain what later detectors would take apart
    FunctionDetector("private_key", _find_private_keys),
    _pattern("private_key", r"PuTTY-User-Key-File-\d:[^\n]*(?:\n(?!\n)[^\n]*){0,80}", "putty-user-key-file"),
    _pattern(
        "ssh_key",
        rf"{_START}(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{{3}}) AAAA[A-Za-z0-9+/]{{40,}}={{0,3}}",
        "ssh-",
        "ecdsa-",
    ),
    _pattern(
        "connection_string",
        r"(?<![A-Za-z0-9+.-])(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql|oracle|clickhouse|cockroachdb|snowflake|jdbc:[a-z0-9]{2,16})(?:\+[a-z0-9]{1,16})?://[^\s/@:'\"<>]{0,128}:[^\s@'\"<>]{1,256}@[^\s'\"<>]{1,512}",
        "://",
        flags=re.IGNORECASE,
    ),
    _pattern(
        "connection_string",
        r"(?<![A-Za-z])(?:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{20,128}={0,2})",
        "accountkey=",
        "sharedaccesskey=",
    ),
    _pattern(
        "url_credentials",
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}://(?P<secret>[^\s/@:'\"<>?#]{0,128}:[^\s/@'\"<>?#]{1,256})@",
        "://",
    ),
    # issuers' prefixes
    _pattern("jwt", rf"(?<!{_TOKEN})eyJ{_TOKEN}{{8,}}\.eyJ{_TOKEN}{{4,}}\.{_TOKEN}*", "eyj"),
    _pattern("aws_key", rf"{_START}(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA|ABIA|ACCA)[A-Z0-9]{{16}}{_STOP}"),
    _pattern(
        "aws_key",
        rf"(?<![A-Za-z])aws[ _.-]?(?:secret[ _.-]?)?(?:access[ _.-]?)?key(?:[ _.-]?id)?{_LINK}(?P<secret>[A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+=])",
        "aws",
        flags=re.IGNORECASE,
    ),
    _pattern(
        "gcp_key",
        rf"{_START}(?:AIza{_TOKEN}{{35,}}|GOCSPX-{_TOKEN}{{28,}}|ya29\.{_TOKEN}{{20,}})",
        "aiza",
        "gocspx-",
        "ya29.",
    ),
    _pattern(
        "azure_key",
        r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{30,33}[A-Za-z0-9_~-](?![A-Za-z0-9_~-])",
        "q~",
    ),
    _pattern("azure_key", r"[?&]sig=(?P<secret>[A-Za-z0-9%+/=]{40,128})", "sig="),
    _pattern(
        "github_token",
        rf"{_START}(?:gh[pousr]_[A-Za-z0-9]{{30,255}}|github_pat_[A-Za-z0-9_]{{22,255}}){_STOP}",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
    ),
    _pattern("gitlab_token", rf"{_START}gl(?:pat|oas|dt|rt|cbt|ptt|ft|soat|imt|agent)-{_TOKEN}{{20,}}", "gl"),
    _pattern(
        "slack_token",
        rf"{_START}(?:xox[abceoprs]-(?:[A-Za-z0-9]+-){{0,6}}[A-Za-z0-9]{{10,}}|xapp-\d-[A-Za-z0-9-]{{20,}})",
        "xox",
        "xapp-",
    ),
    _pattern(
        "slack_token", r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,})", "hooks.slack.com"
    ),
    _pattern(
        "stripe_key",
        rf"{_START}(?:(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{{10,}}|whsec_[A-Za-z0-9]{{20,}}){_STOP}",
        "_live_",
        "_test_",
        "whsec_",
    ),
    _pattern("anthropic_key", rf"(?<!{_TOKEN})sk-ant-{_TOKEN}{{16,}}", "sk-ant-"),
    _pattern("openai_key", rf"(?<!{_TOKEN})(?P<secret>sk-(?!ant-){_TOKEN}{{16,}})", "sk-", is_valid=_has_digit),
    _pattern("huggingface_token", rf"{_START}(?:hf_|api_org_)[A-Za-z0-9]{{30,}}{_STOP}", "hf_", "api_org_"),
    _pattern(
        "package_registry_token", rf"{_START}(?:npm_[A-Za-z0-9]{{36}}{_STOP}|pypi-AgEI{_TOKEN}{{50,}})", "npm_", "pypi-"
    ),
    _pattern(
        "service_token",
        rf"{_START}(?:SG\.{_TOKEN}{{22}}\.{_TOKEN}{{43,}}|SK[0-9a-f]{{32}}{_STOP}|dop_v1_[0-9a-f]{{64,}}|\d{{8,10}}:AA{_TOKEN}{{33,}})",
    ),
    _pattern(
        "bearer_token",
        r"(?<![A-Za-z])(?:bearer|authorization:[ ]{0,2}basic)[ ]{1,2}(?P<secret>[A-Za-z0-9._~+/-]{16,}={0,2})",
        "bearer",
        "basic",
        is_valid=_has_digit,
        flags=re.IGNORECASE,
    ),
    # a word in front says what it is
    _pattern(
        "password",
        rf"(?<![A-Za-z]){_PASSWORD}[\"'`]?(?:[ \t]{{0,4}}(?:=>|:=|[:=])[ \t]{{0,4}}|[ \t]{{1,4}}is[ \t]{{1,4}})(?P<quote>[\"'`])(?P<secret>[^\"'`\s]{{1,64}}(?:[ ][^\"'`\s]{{1,64}}){{1,7}})(?P=quote)",
        "pass",
        "pwd",
        "contrase",
        is_valid=_is_pass_phrase,
        flags=re.IGNORECASE,
    ),
    _pattern(
        "password",
        rf"(?<![A-Za-z]){_PASSWORD}{_LINK}{_VALUE_START}(?P<secret>{_VALUE}{{4,256}}+)(?![(\[{{<])",
        "pass",
        "pwd",
        "contrase",
        is_valid=_is_password,
        flags=re.IGNORECASE,
    ),
    _pattern(
        "api_key",
        rf"(?<![A-Za-z])(?:(?:[a-z0-9]{{1,32}}[_-]){{0,3}}(?:api|secret|access|auth|client|private|encryption|signing)[ _-]?(?:key|token|secret)(?:[_-]id)?|secret|token){_LINK}{_VALUE_START}(?P<secret>{_VALUE}{{8,512}}+)(?![(\[{{<])",
        "key",
        "token",
        "secret",
        is_valid=_is_key_value,
        flags=re.IGNORECASE,
    ),
    _pattern(
        "date_of_birth",
        rf"(?<![A-Za-z])(?:date[ ]of[ ]birth|d\.?o\.?b\.?|birth[ ]?da(?:te|y)|born(?:[ ]on)?|geboren(?:[ ]am)?|n[ée]e?[ ]le)\W{{0,4}}(?:is|was|on|am)?\W{{0,3}}(?P<secret>{_DATE})(?!\d)",
        "birth",
        "dob",
        "d.o.b",
        "born",
        "geboren",
        "le ",
        flags=re.IGNORECASE,
    ),
    # structure and check digits
    _pattern(
        "passport",
        r"(?<![A-Z0-9<])[A-Z0-9<]{9}\d[A-Z<]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{14}[\d<]\d(?![A-Z0-9<])",
        is_valid=lambda match: is_mrz_valid(match.group()),
    ),
    FunctionDetector("email", _find_emails),
    _pattern(
        "iban",
        r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
        is_valid=_is_iban,
    ),
    _pattern(
        "mac_address",
        r"(?<![\w:-])[0-9A-Fa-f]{2}(?P<separator>[:-])(?:[0-9A-Fa-f]{2}(?P=separator)){4}[0-9A-Fa-f]{2}(?![\w:-])",
        ":",
        "-",
    ),
    FunctionDetector("ip_address", _find_ipv6),
    _pattern("ip_address", r"(?<![\w.+-])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d|-\d)", ".", is_valid=_is_ipv4),
    _pattern("card", r"(?<![\w.+-])\d{4}(?:[ -]?\d{2,6}){2,5}(?![\w]|[.-]\d)", is_valid=_is_card),
    _pattern("us_ssn", r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])", "-"),
    _pattern(
        "us_ssn",
        r"(?<![A-Za-z])(?:ssn|social security(?: number)?)\W{0,4}(?:is)?\W{0,3}(?P<secret>(?!000|666|9)\d{3}[ -]?(?!00)\d{2}[ -]?(?!0000)\d{4})(?!\d)",
        "ssn",
        "social",
        flags=re.IGNORECASE,
    ),
    _pattern(
        "phone",
        r"(?<![\w+])(?:\+|00)[1-9](?:[ ./-]?\(?\d\)?){6,13}\d(?![\w])",
        "+",
        "00",
        is_valid=_is_international_phone,
    ),
    _pattern(
        "phone",
        r"(?:\([2-9]\d{2}\)[ ]?|(?<![\w.-])[2-9]\d{2}(?P<separator>[.-]))[2-9]\d{2}(?(separator)(?P=separator)|[ .-])\d{4}(?![\w]|[.-]\d)",
    ),
    _pattern(
        "phone",
        r"(?<![A-Za-z])(?:phone|tel|telephone|mobile|cell|fax|whatsapp|telefon|handy)(?:[ ](?:number|no))?[.:]?[ ]{0,2}(?:is[ ])?[:#]?[ ]{0,2}(?P<secret>\(?\d(?:[ ./-]?[()]?\d){6,13})(?![\w])",
        "phone",
        "tel",
        "mobile",
        "cell",
        "fax",
        "whatsapp",
        "handy",
        is_valid=_is_local_phone,
        flags=re.IGNORECASE,
    ),
)
"""Every detector of this package; earlier ones win where findings overlap."""
