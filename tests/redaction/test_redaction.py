"""Every kind is found, in sentences and in logs; ordinary text is left alone; time is linear."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_harness.errors import ConfigurationError, MissingExtraError, RefusedError
from langmem_harness.redaction import DEFAULT_DETECTORS, PresidioDetector, RedactionPolicy, Redactor

A40 = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6jK9m"  # letters and digits that are nobody's key

SAMPLES: dict[str, list[str]] = {
    "email": ["ada@example.org", "Ada.Lovelace+tag@mail.example.co.uk", "müller@beispiel.de", "x_1@a-b.io"],
    "phone": [
        "+49 30 1234567",
        "+1 (415) 555-2671",
        "+44 20 7946 0958",
        "+14155552671",
        "0049 30 1234567",
        "(415) 555-2671",
        "415-555-2671",
        "415.555.2671",
    ],
    "card": ["4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009", "6011000000000004", "4242424242424242"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "FR1420041010050500013M02606"],
    "us_ssn": ["123-45-6789", "078-05-1120"],
    "ip_address": [
        "192.168.17.4",
        "8.8.8.8",
        "2001:db8::8a2e:370:7334",
        "fe80::1",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
    ],
    "mac_address": ["00:1B:44:11:3A:B7", "00-1b-44-11-3a-b7"],
    "url_credentials": ["ada:hunter2"],
    "jwt": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"],
    "private_key": [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\nAbCd0123==\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B",  # cut off
    ],
    "ssh_key": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"],
    "aws_key": ["AKIAIOSFODNN7EXAMPLE", "ASIAY34FZKBOKMUTVV7A"],
    "gcp_key": ["AIzaSyA" + A40[:32], "ya29." + A40],
    "azure_key": ["abC8Q~" + A40[:34]],
    "github_token": ["ghp_" + A40[:36], "github_pat_" + A40, "gho_" + A40[:36]],
    "gitlab_token": ["glpat-" + A40[:20]],
    "slack_token": ["xoxb-123456789012-123456789012-" + A40[:24], "xapp-1-A0123-" + A40[:30]],
    "stripe_key": ["sk_live_" + A40[:24], "rk_test_" + A40[:24]],
    "openai_key": ["sk-proj-" + A40, "sk-" + A40, "sk-test-1234567890abcdef"],
    "anthropic_key": ["sk-ant-api03-" + A40],
    "huggingface_token": ["hf_" + A40[:34]],
    "package_registry_token": ["npm_" + A40[:36]],
    "connection_string": [
        "postgres://ada:s3cret@db.example.org:5432/app",
        "mongodb+srv://u:p4ss@cluster0.example.net/x",
        "redis://:p4ssw0rd@localhost:6379/0",
        "postgresql+psycopg://ada:s3cret@db/app",
    ],
}
IN_CONTEXT: dict[str, list[tuple[str, str]]] = {
    "password": [
        ("my password is hunter2!", "hunter2"),
        ("(password=abc123xyz)", "abc123xyz"),
        ("password: correcthorse", "correcthorse"),
        ('{"password": "s3cr3t-value"}', "s3cr3t-value"),
        ("PASSWD=abc123xyz", "abc123xyz"),
        ('{"password": "open sesame now"}', "sesame"),
        ("password='correct horse battery staple'", "battery"),
        ('my pass phrase: "x"; my password is "a b c"', "a b c"),
        ("Server=db;User Id=sa;Password=Pa55w0rd;", "Pa55w0rd"),
    ],
    "api_key": [
        ("api_key=9f8e7d6c5b4a3210", "9f8e7d6c5b4a3210"),
        ("API-KEY: abcd1234efgh5678", "abcd1234efgh5678"),
        ('"client_secret": "Zx9-kLm2_pQr7"', "Zx9-kLm2_pQr7"),
        ("STRIPE_WEBHOOK_SECRET_KEY=abc123def456", "abc123def456"),
        ("access token is 1a2b3c4d5e6f7a8b", "1a2b3c4d5e6f7a8b"),
    ],
    "bearer_token": [
        ("Authorization: Bearer abc123DEF456ghi789", "abc123DEF456ghi789"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZDE=", "dXNlcjpwYXNzd29yZDE="),
    ],
    "aws_key": [(f"aws_secret_access_key = {A40}", A40)],
    "azure_key": [("https://x.blob.example.net/c?sv=1&sig=" + A40 + "%3D", A40)],
    "connection_string": [("AccountName=a;AccountKey=" + A40 + A40 + "abcdef==;", A40)],
    "date_of_birth": [
        ("I was born on 3 May 1990 in Kyiv", "3 May 1990"),
        ("DOB: 1990-05-03", "1990-05-03"),
        ("date of birth 03/05/1990", "03/05/1990"),
        ("My birthday is May 3rd, 1990", "May 3rd, 1990"),
        ("geboren am 03.05.1990", "03.05.1990"),
    ],
    "phone": [("tel: 030 1234567", "030 1234567"), ("my phone number is 555 012 3456", "555 012 3456")],
    "us_ssn": [("SSN 123456789", "123456789")],
    "passport": [("L898902C36UTO7408122F1204159ZE184226B<<<<<10", "L898902C36UTO")],
}

HARMLESS = [
    "The meeting is at 12:34:56 on 2024-05-03, room 4.2.1.",
    "081109 204005 35 INFO dfs.FSNamesystem: BLOCK* addStoredBlock: blk_7128370237687728475 size 67108864",
    "081109 204005 35 INFO dfs.FSNamesystem: BLOCK* NameSystem.addStoredBlock: blk_7128370237687728475 size 67108864",
    "Jun 14 15:16:01 combo sshd(pam_unix)[19939]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser=",
    "password: required",
    "The password is incorrect, please try again.",
    "password = get_password(user)",
    "password: 'Enter a new password'",
    'errors = {"password": "This field is required."}',
    "token: str | None = None",
    "secret=os.environ.SECRET_KEY",
    "def authenticate(self, api_key: str) -> bool:",
    "std::vector<int> v; a::b::c();",
    "version 1.2.3-rc.4 of numpy 2.4.6",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "total 1234567890123456 bytes in 17179869184 blocks",
    "order W2378156, 4 items, 1,234.56 EUR",
    "see https://example.org/a/b?c=d#e and git@ or @ada",
    "He was born in 1990 and moved in 2001.",
    "call me maybe, 5 times",
    "bearer of good news and basic arithmetic",
    "sk-learn is scikit-learn; disk-based-storage-engine-comparison",
    "2016-09-28 04:30:30, Info CBS Loaded Servicing Stack v6.1.7601.23505 with Core: C:\\Windows\\winsxs",
    "1131566461 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 crond(pam_unix)[2915]: session closed for user root",
]


def redact(text: str) -> str:
    return Redactor().redact(text).text


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in SAMPLES.items() for value in values])
def test_values_are_found_wherever_they_stand(kind: str, value: str) -> None:
    wrap = "https://{}@example.org/x" if kind == "url_credentials" else "{}"
    for frame in ("{}", "before {} after", "({})", '"{}"', "x: {}, y", "{}.", "…{}…\n", "key\t{}\nnext"):
        text = frame.format(wrap.format(value))
        redaction = Redactor().redact(text)
        assert f"[REDACTED_{kind.upper()}]" in redaction.text, (text, redaction.text)
        assert value not in redaction.text
        assert redaction.findings == {kind: 1}


@pytest.mark.parametrize(
    ("kind", "text", "secret"),
    [(kind, text, secret) for kind, pairs in IN_CONTEXT.items() for text, secret in pairs],
)
def test_values_are_found_by_the_words_in_front(kind: str, text: str, secret: str) -> None:
    redaction = Redactor().redact(text)
    assert secret not in redaction.text
    assert kind in redaction.findings


@pytest.mark.parametrize("line", HARMLESS)
def test_ordinary_lines_are_left_alone(line: str) -> None:
    assert redact(line) == line


def test_there_are_at_least_twenty_kinds() -> None:
    assert len(Redactor().kinds) >= 20


def test_every_kind_has_a_sample() -> None:
    assert Redactor().kinds - SAMPLES.keys() - IN_CONTEXT.keys() == {"service_token"}
    assert Redactor().redact("SG." + A40[:22] + "." + A40 + "abc").findings == {"service_token": 1}


ALL_VALUES = [value for values in SAMPLES.values() for value in values] + [
    text for pairs in IN_CONTEXT.values() for text, _ in pairs
]
ACTIONS = [
    RedactionPolicy(),
    RedactionPolicy(default="mask"),
    RedactionPolicy(default="hash", hash_key=b"0123456789abcdef"),
]


@pytest.mark.parametrize("policy", ACTIONS, ids=lambda policy: policy.default)
@given(
    parts=st.lists(st.one_of(st.sampled_from(ALL_VALUES), st.text(max_size=12)), max_size=6),
    joint=st.sampled_from(["", " ", "\n", "="]),
)
def test_redacting_again_changes_nothing(policy: RedactionPolicy, parts: list[str], joint: str) -> None:
    redactor = Redactor(policy)
    once = redactor.redact(joint.join(parts)).text
    assert redactor.redact(once).text == once


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    redact(text)


def test_strange_text_is_taken() -> None:
    assert redact("") == ""
    assert redact("\ud800 ada@example.org \x00") == "\ud800 [REDACTED_EMAIL] \x00"


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "@",
        "a@",
        "1",
        "1 ",
        "1-",
        ":",
        "::",
        "a:",
        "eyJ",
        "eyJ.",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "sk-",
        "password: ",
        "password is ",
        "api_key=",
        "token ",
        "A",
        "AB12 ",
        "://",
        "x://a:",
        "+1",
        "(4",
        "bearer ",
        "aws",
        "a-b.",
        "\n",
        " ",
        "ghp_",
        "xoxb-",
        "xoxb-a-",
        "born on ",
        "ssn ",
        "hello world 42 ",
        "é",
        "[REDACTED_EMAIL]",
        "•",
        "sig=",
        "4111 ",
        "PuTTY-User-Key-File-2:\n",
        "api_",
        "secret_",
        "00:",
        "1.1.",
        # rows of values without a gap, each of which hides the next
        "+4930123456789",
        "(415) 555-2671",
        "+4930123456789(415) 555-2671",
        "+4930123456789::1",
        "340000000000009+",
        "AIza" + A40[:35],
        "SG." + A40[:22] + "." + A40 + "abc",
        "12345678:AA" + A40[:33] + "dop_v1_" + "0a" * 32,
    ],
)
@pytest.mark.parametrize("size", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_megabyte_of_anything_takes_about_a_second(unit: str, size: int) -> None:
    text = unit * (size // len(unit))
    started = time.process_time()
    Redactor().redact(text)
    # a megabyte takes well under one second on an idle machine; a quadratic search takes minutes
    assert time.process_time() - started < 4.0 * size / 1_000_000


def test_policy_per_kind() -> None:
    text = "ada@example.org, card 4111 1111 1111 1111, host 8.8.8.8"
    policy = RedactionPolicy(
        actions={"email": "hash", "card": "mask", "ip_address": "allow"}, hash_key=b"0123456789abcdef"
    )
    redaction = Redactor(policy).redact(text)
    assert redaction.findings == {"email": 1, "card": 1}
    assert redaction.text.endswith("card ••••1111, host 8.8.8.8")
    assert redaction.text.startswith("[EMAIL#")
    again = Redactor(policy).redact("ada@example.org").text
    assert redaction.text.startswith(again)  # the same person is the same pseudonym
    other = RedactionPolicy(actions={"email": "hash"}, hash_key=b"another key 4321")
    assert Redactor(other).redact("ada@example.org").text != again


def test_block_refuses_without_showing_the_value() -> None:
    redactor = Redactor(RedactionPolicy(actions={"us_ssn": "block"}))
    with pytest.raises(RefusedError) as caught:
        redactor.redact("mine is 123-45-6789")
    assert caught.value.reason == "contains_us_ssn"
    assert "123-45-6789" not in str(caught.value)


def test_wrong_policies_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="'shred'"):
        RedactionPolicy(default="shred")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="hash_key"):
        RedactionPolicy(actions={"email": "hash"})
    with pytest.raises(ConfigurationError, match="shoe_size"):
        Redactor(RedactionPolicy(actions={"shoe_size": "mask"}))
    assert "0123456789abcdef" not in repr(RedactionPolicy(hash_key=b"0123456789abcdef"))


def test_messages_keep_their_shape() -> None:
    key = "sk-ant-api03-" + A40
    image = {"type": "image", "base64": "QUJD" * 400, "mime_type": "image/png"}
    message = AIMessage(
        content=[{"type": "text", "text": f"key {key}"}, image, {"type": "unknown", "note": "ada@example.org"}],
        tool_calls=[{"id": "c1", "name": "mail", "args": {"to": ["ada@example.org"], "password": "open sesame"}}],
        id="m1",
    )
    before = message.model_copy(deep=True)
    redacted, findings = Redactor().redact_message(message)
    assert message == before
    assert redacted.id == "m1"
    assert redacted.content == [
        {"type": "text", "text": "key [REDACTED_ANTHROPIC_KEY]"},
        image,
        {"type": "unknown", "note": "[REDACTED_EMAIL]"},
    ]
    assert redacted.tool_calls[0]["args"] == {"to": ["[REDACTED_EMAIL]"], "password": "[REDACTED_PASSWORD]"}
    assert findings == {"anthropic_key": 1, "email": 2, "password": 1}
    again, nothing = Redactor().redact_message(redacted)
    assert again == redacted
    assert nothing == {}


@pytest.mark.parametrize("value", ["+4930123456789", "340000000000009+", "AIza" + A40[:35], "(415) 555-2671"])
def test_nothing_of_a_row_without_gaps_is_left(value: str) -> None:
    once = redact(f"before {value * 50}\nafter 4111 1111 1111 1111\n")
    assert not re.search(r"\d", once)
    assert once.startswith("before [REDACTED_")
    assert "\nafter [REDACTED_CARD]\n" in once
    assert redact(once) == once


MAIL = "ada@example.org"


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(MAIL),
        HumanMessage([{"type": "text", "text": MAIL}, MAIL], name=MAIL),
        SystemMessage(MAIL),
        AIMessage("", response_metadata={"headers": {"from": MAIL}}, additional_kwargs={"x": [(MAIL,)]}),
        AIMessage([{"type": "reasoning", "reasoning": MAIL}, {"type": "tool_use", "id": "1", "input": {"to": MAIL}}]),
        AIMessage("", tool_calls=[{"id": "1", "name": "mail", "args": {"to": {"deep": [MAIL]}}}]),
        AIMessage("", tool_calls=[{"id": "1", "name": "mail", "args": {MAIL: 1, f"x{MAIL}": 2}}]),
        AIMessage("", invalid_tool_calls=[{"id": "1", "name": "mail", "args": f'{{"to": "{MAIL}"', "error": MAIL}]),
        AIMessageChunk(
            content="", tool_call_chunks=[{"id": "1", "name": "mail", "args": f'{{"to": "{MAIL}"}}', "index": 0}]
        ),
        AIMessage("", additional_kwargs={"function_call": {"name": "mail", "arguments": f'{{"to": "{MAIL}"}}'}}),
        ToolMessage(MAIL, tool_call_id="1", artifact={"rows": [{"mail": MAIL}]}),
        ToolMessage([{"type": "json", "data": f"{MAIL} " * 100}], tool_call_id="1"),
        ToolMessage([{"type": "image_url", "image_url": f"data:text/plain,{MAIL}"}], tool_call_id="1"),
        FunctionMessage(name="mail", content=MAIL),
        ChatMessage(role="user", content=MAIL),
    ],
    ids=lambda message: message.type,
)
def test_every_shape_of_a_message_is_walked(message: BaseMessage) -> None:
    before = message.model_copy(deep=True)
    redacted, findings = Redactor().redact_message(message)
    assert message == before
    assert MAIL not in repr(redacted)
    assert findings["email"] >= 1
    assert type(redacted) is type(message)
    assert _shape(redacted.model_dump()) == _shape(message.model_dump())
    assert Redactor().redact_message(redacted) == (redacted, {})


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return [_shape(inner) for inner in value.values()]
    if isinstance(value, list | tuple):
        return [_shape(inner) for inner in value]
    return type(value)


def test_media_is_not_text_and_text_is_not_media() -> None:
    picture = "QUJD" * 400
    blocks = [
        {"type": "image", "base64": picture},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
    ]
    assert Redactor().redact_value({"content": blocks}) == ({"content": blocks}, {})
    rows = f"name,mail\n{'Ada,' + MAIL!s}\n" * 100
    assert MAIL not in Redactor().redact_value({"data": rows})[0]["data"]


def test_results_and_plain_messages() -> None:
    result = ToolMessage("from 8.8.8.8", tool_call_id="c1", artifact={"raw": "to 8.8.4.4"}, status="error")
    redacted, _ = Redactor().redact_message(result)
    assert (redacted.content, redacted.artifact, redacted.status) == (
        "from [REDACTED_IP_ADDRESS]",
        {"raw": "to [REDACTED_IP_ADDRESS]"},
        "error",
    )
    plain = HumanMessage("good morning")
    assert Redactor().redact_message(plain)[0] is plain


def test_overlaps_give_one_finding_the_earlier_detector_wins() -> None:
    assert redact("token=ghp_" + A40[:36]) == "token=[REDACTED_GITHUB_TOKEN]"
    assert redact("url postgres://ada:pw@ada.example.org/x") == "url [REDACTED_CONNECTION_STRING]"


def test_presidio_comes_in_through_the_same_door() -> None:
    analyzer = SimpleNamespace(
        analyze=lambda text, entities, language, score_threshold: [
            SimpleNamespace(entity_type="PERSON", start=found.start(), end=found.end())
            for found in re.finditer("Ada", text)
        ]
    )
    redactor = Redactor(detectors=[*DEFAULT_DETECTORS, PresidioDetector(analyzer)])
    assert redactor.redact("Ada, ada@example.org").text == "[REDACTED_PERSON], [REDACTED_EMAIL]"


def test_presidio_missing_names_the_extra() -> None:
    pytest.importorskip("pytest")
    try:
        import presidio_analyzer  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match="presidio"):
            PresidioDetector()
