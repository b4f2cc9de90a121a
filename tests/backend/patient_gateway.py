"""`python -m foretype_backend` that gives nobody up whom a busy machine keeps from answering: for tests of what comes long before that."""

import sys
from pathlib import Path
from typing import Final

from foretype_backend.__main__ import main
from foretype_backend.admission import redis_leases
from foretype_backend.doors import stream_completions

__all__ = ["SERVE"]

SERVE: Final = (sys.executable, str(Path(__file__)), "serve")

if __name__ == "__main__":
    for module, name in (
        (redis_leases, "_ANSWER_S"),
        (redis_leases, "_REACH_S"),
        (stream_completions, "_ON_ITS_WAY_S"),
    ):
        assert hasattr(module, name)
        setattr(module, name, 60.0)
    main()
