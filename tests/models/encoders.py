"""Encoders that are not ours, run with the Python of `.venv-vocabularies`: requests on stdin, ids on stdout, both JSON.

{"encoder": "llama.cpp", "model": FILE, "texts": [...]}             -> {"version": ..., "ids": [[...], ...]}
{"encoder": "mistral-common", "model": FILE, "pairs": [[P, S]...]}  -> the same, of Mistral's own `encode_fim`
{"encoder": "pieces", "model": FILE}                                -> {"tokens": [...], "scores": [...], "types": [...]}
"""

import json
import sys
import urllib.request
from importlib.metadata import version
from typing import Any


def llama_cpp(request: dict[str, Any]) -> dict[str, Any]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.port = request["model"], 0  # a free port of loopback
    params.n_ctx, params.n_parallel, params.warmup = 64, 1, False
    server = xllamacpp.Server(params)

    def ids(text: str) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{server.listening_address}/tokenize", body, headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)["tokens"]

    return {"version": f"llama.cpp (xllamacpp {version('xllamacpp')})", "ids": [ids(text) for text in request["texts"]]}


def mistral(request: dict[str, Any]) -> dict[str, Any]:
    from mistral_common.protocol.fim.request import FIMRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    tokenizer = MistralTokenizer.from_file(request["model"])
    found = [
        tokenizer.encode_fim(FIMRequest(prompt=prompt, suffix=suffix)).tokens for prompt, suffix in request["pairs"]
    ]
    return {"version": f"mistral-common {version('mistral-common')}", "ids": found}


def pieces(request: dict[str, Any]) -> dict[str, Any]:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=request["model"])
    every = range(model.vocab_size())
    types = [
        2
        if model.is_unknown(at)
        else 3
        if model.is_control(at)
        else 6
        if model.is_byte(at)
        else 5
        if model.is_unused(at)
        else 1
        for at in every
    ]
    return {
        "tokens": [model.id_to_piece(at) for at in every],
        "scores": [model.get_score(at) for at in every],
        "types": types,
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    answer = {"llama.cpp": llama_cpp, "mistral-common": mistral, "pieces": pieces}[asked["encoder"]](asked)
    # A server's log may have gone to stdout before.
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
