"""The product's tokenizer (tiktoken), Hugging Face's and the reader of the GGUF file give the same ids.

In CI on a sample; the environment variable FORETYPE_AGREE_MEGABYTES=10 takes the whole ten megabytes (a minute).
"""

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from foretype_context.tokens.tokenizer import Tokenizer as Served
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models import artifacts
from foretype_models.gguf_tokenizer import tokenizer_of
from tokenizers import Tokenizer

MEGABYTES = float(os.environ.get("FORETYPE_AGREE_MEGABYTES", "1"))
AWKWARD = (
    "naïve = '漢字かな한글'  # 🙂👩‍👩‍👧 🇩🇪 é\u0301 ﬁ ſ\n",
    "\tif x:\r\n\t\treturn  1\r\n\r\n",
    "a\t\tb \t c\n\n\n    \n\t \n",
    "x = 123456789 + 0x_ff\u00a0# no-break\u2028line\n",
    "\ufeffdef f(): pass\x00\x01\x7f\n",
    "print('it''s', \"we'll\", don't)\n",
    "מזל טוב، مرحبا 𝒳𝒴 \U0001f9d1🏽‍💻\n",
)


def texts(budget: float) -> Iterator[str]:
    """Source files of the standard library and of what is installed; every seventh with CRLF, every fifth with tabs."""
    folders = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    files = sorted(
        {path for folder in folders for path in folder.rglob("*.py")}, key=lambda path: path.as_posix()[::-1]
    )
    for number, path in enumerate(files):
        try:
            text = path.read_bytes()[:100_000].decode("utf-8", "ignore")
        except OSError:
            continue
        # Text that spells a control token is another test: Hugging Face's tokenizer would obey it.
        if "<|" in text:
            continue
        if number % 7 == 0:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        if number % 5 == 0:
            text = text.replace("    ", "\t")
        text = AWKWARD[number % len(AWKWARD)] + text
        yield text
        budget -= len(text.encode())
        if budget <= 0:
            return


@pytest.fixture(scope="module")
def tokenizer_path() -> Path:
    return artifacts.locate().tokenizer_path


@pytest.fixture(scope="module")
def served(tokenizer_path: Path) -> Served:
    return load_tokenizer(tokenizer_path)


@pytest.mark.slow
def test_three_readers_give_the_same_ids(served: Served, tokenizer_path: Path) -> None:
    whole = Tokenizer.from_file(str(tokenizer_path))
    from_gguf = Tokenizer.from_str(tokenizer_of(artifacts.locate().path).decode())
    seen = 0
    for text in texts(MEGABYTES * 1e6):
        ids = served.encode(text)
        assert whole.encode(text, add_special_tokens=False).ids == ids, text[:200]
        assert from_gguf.encode(text, add_special_tokens=False).ids == ids, text[:200]
        assert served.decode(ids) == text.encode()
        seen += len(text.encode())
    assert seen >= 0.9 * MEGABYTES * 1e6


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_alone(served: Served, tokenizer_path: Path, text: str) -> None:
    from_gguf = Tokenizer.from_str(tokenizer_of(artifacts.locate().path).decode())
    assert from_gguf.encode(text, add_special_tokens=False).ids == served.encode(text)
    assert Tokenizer.from_file(str(tokenizer_path)).encode(text, add_special_tokens=False).ids == served.encode(text)
