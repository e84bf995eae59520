"""Terms: every script, every hostile text, the same on both sides."""

from __future__ import annotations

import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import ConfigurationError
from langmem_harness.store.tokenizer import MAX_TERM_CHARACTERS, Tokenizer

english = Tokenizer()
plain = Tokenizer(None)
ANY_TEXT = st.text(st.characters(), max_size=60)  # surrogates included


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \t\r\n\u3000", []),
        ("\0", []),
        ("\ud800", []),
        ('"', []),
        ("*", []),
        ("❤️ 👨‍👩‍👧 🏳️‍🌈", []),
        ("BENCH-100821", ["bench", "100821"]),
        ("(x", ["x"]),
        ("-tea", ["tea"]),
        ("NOT tea", ["tea"]),
        ("ubuntu 20.04", ["ubuntu", "20", "04"]),
        ("ada@example.org", ["ada", "exampl", "org"]),
        ("/etc/nginx/nginx.conf", ["etc", "nginx", "nginx", "conf"]),
        ("user_id", ["user", "id"]),
        ("C++ and C# and F#", ["c++", "c#", "f#"]),
        ("flights flight", ["flight", "flight"]),
        ("O\u2019Brien's", ["brien"]),
        ("nul\0byte\ud800half", ["nul", "byte", "half"]),
        ("1\ufe0f\u20e3 first", ["1", "first"]),
    ],
)
def test_english_terms(text: str, terms: list[str]) -> None:
    assert english.terms(text) == terms
    assert english.query_terms(text) == terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café", "cafe"),
        ("résumé", "RESUME"),
        ("Straße", "STRASSE"),
        ("ﬁne", "fine"),
        ("Ｆｌｉｇｈｔ", "flight"),
        ("łódź", "lodz"),
        ("Σίσυφος", "ΣΙΣΥΦΟΣ"),
        ("ёлка", "елка"),
        ("ｶﾞ", "ガ"),
        ("مُحَمَّد", "محمد"),
        ("co\u00adoperate", "cooperate"),
        ("葛\U000e0100城", "葛城"),
    ],
)
def test_ways_of_writing_one_word_are_one_term(one: str, other: str) -> None:
    assert english.terms(one) == english.terms(other) != []
    assert plain.terms(unicodedata.normalize("NFD", one)) == plain.terms(other)


def test_letters_that_only_look_accented_stay() -> None:
    assert plain.terms("йод иод") == ["йод", "иод"]
    assert plain.terms("がか") != plain.terms("かか")


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ("東京都に住んでいます", "東京"),
        ("東京都に住んでいます", "都"),
        ("我喜欢喝绿茶", "绿茶"),
        ("我喜欢喝绿茶", "茶"),
        ("저는 서울에서 살아요", "서울"),
        ("ฉันชอบกาแฟเย็น", "กาแฟ"),
        ("ຂ້ອຍມັກກາເຟ", "ກາເຟ"),
        ("ខ្ញុំចូលចិត្តកាហ្វេ", "កាហ្វេ"),
        ("iPhone手机壳", "手机"),
        ("iPhone手机壳", "iphone"),
    ],
)
def test_a_part_of_an_unspaced_run_is_found(document: str, query: str) -> None:
    terms = english.query_terms(query)
    assert terms
    assert set(terms) <= set(english.terms(document))


def test_a_pair_does_not_match_by_one_character() -> None:
    assert not set(english.query_terms("東京")) & set(english.terms("京都"))


def test_vowel_signs_belong_to_their_word() -> None:
    assert plain.terms("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert plain.terms("தமிழ் மொழி") == [unicodedata.normalize("NFC", word) for word in ("தமிழ்", "மொழி")]


def test_stop_words_are_kept_when_there_is_nothing_else() -> None:
    assert english.terms("the flight") == ["flight"]
    assert english.terms("The Who") == ["the", "who"]
    assert english.query_terms("who?") == ["who"]
    assert english.terms("the 東京") == ["東京", "東", "京"]


def test_none_means_neither_stop_words_nor_stemming() -> None:
    assert plain.terms("The running flights") == ["the", "running", "flights"]


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("german", "die Häuser", "Haus"),
        ("french", "les chevaux mangés", "chevaux manger"),
        ("spanish", "canciones", "canción"),
        ("russian", "книги", "книга"),
    ],
)
def test_other_languages(language: str, one: str, other: str) -> None:
    assert Tokenizer(language).terms(one) == Tokenizer(language).terms(other)


def test_every_stemmer_works_and_unknown_ones_are_refused() -> None:
    import Stemmer

    for language in Stemmer.algorithms():
        assert Tokenizer(language).terms("2026 naïve 東京 \ud800") != []
    with pytest.raises(ConfigurationError, match="'klingon'"):
        Tokenizer("klingon")


def test_the_fingerprint_tells_tokenizers_apart() -> None:
    assert len({Tokenizer(language).fingerprint for language in (None, "english", "german")}) == 3


def test_a_long_word_is_one_bounded_term() -> None:
    (term,) = english.terms("x" * 10_000_000)
    assert len(term) <= MAX_TERM_CHARACTERS
    assert english.terms("x" * 9_999_999) != [term]


@pytest.mark.parametrize("text", ["a" + "\u0301\u0323" * 200_000, "ก" + "\u0e38\u0e48" * 200_000, "क" + "़्" * 200_000])
def test_a_flood_of_marks_takes_linear_time(text: str) -> None:
    start = time.perf_counter()
    assert len(english.terms(text)) == 1
    assert time.perf_counter() - start < 2


@given(ANY_TEXT)
@settings(max_examples=100)
def test_any_text_gives_bounded_terms_without_white_space(text: str) -> None:
    for tokenizer in (english, plain):
        terms = tokenizer.terms(text)
        assert terms == tokenizer.terms(text)
        assert all(term and len(term) <= MAX_TERM_CHARACTERS and not any(map(str.isspace, term)) for term in terms)
        assert set(tokenizer.query_terms(text)) <= set(terms)


@given(ANY_TEXT)
@settings(max_examples=100)
def test_equivalent_unicode_gives_equal_terms(text: str) -> None:
    assert plain.terms(unicodedata.normalize("NFD", text)) == plain.terms(unicodedata.normalize("NFC", text))


def test_words_met_before_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langmem_harness.store.tokenizer._MAX_KNOWN_WORDS", 50)
    tokenizer = Tokenizer()
    texts = [f"the running of {number} flights x{'y' * (number % 90)}" for number in range(300)]
    assert [tokenizer.terms(text) for text in texts * 2] == [english.terms(text) for text in texts * 2]
    assert len(tokenizer._known) <= 50
    assert max(map(len, tokenizer._known)) <= MAX_TERM_CHARACTERS


def test_threads_share_one_tokenizer() -> None:
    texts = [f"running flights {number} towards Lisbon" for number in range(200)]
    expected = [english.terms(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(english.terms, texts * 5)) == expected * 5
