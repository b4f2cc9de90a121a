"""`python -m foretype_backend.start.openapi FILE` writes the OpenAPI document of a gateway with every door, as docs/openapi.json has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import msgspec
from foretype_context.prompt.profile import Profile
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_models.artifacts import FOLDER

from foretype_backend.config.config import Config
from foretype_backend.doors.prefix import PurgeDoor
from foretype_backend.engines.scripted import ScriptedEngine
from foretype_backend.fleet.doors import PrefixDoor
from foretype_backend.start.app import create_app


def document(tokenizer: Tokenizer) -> dict[str, Any]:
    """The whole document; the doors to the prefix cache are among it, which not every gateway has."""
    engine = ScriptedEngine(lambda _ids: [], context_limit_tokens=2048, vocabulary_tokens=tokenizer.vocabulary_tokens)
    profile = Profile(
        model="scripted", grammar="foretype-1", tokenizer_digest=tokenizer.digest, context_limit_tokens=2048
    )
    app = create_app(Config(), engine, tokenizer, profile).app
    PrefixDoor(cast(Any, None)).register(app)  # nobody asks these doors anything
    PurgeDoor(cast(Any, None)).register(app)
    return app.openapi()


def main() -> None:
    text = msgspec.json.format(msgspec.json.encode(document(load_tokenizer(FOLDER / "tokenizer.json"))), indent=2)
    Path(sys.argv[1]).write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
