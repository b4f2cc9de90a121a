"""`python -m foretype_backend.operations.ready_check`: whether the gateway of this container is ready, as its file says where it listens.

What the image's HEALTHCHECK runs every ten seconds, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import ssl
import sys
import tomllib
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

_PORT: Final = 7878
_ANSWER_S: Final = 2.0


def readiness_url(file: Path) -> str:
    """Where a gateway with this file is asked from its own host. Raises OSError, tomllib.TOMLDecodeError."""
    gateway: dict[str, Any] = tomllib.loads(file.read_text("utf-8")).get("gateway", {})
    scheme = "https" if gateway.get("tls_cert_file") else "http"
    return f"{scheme}://127.0.0.1:{gateway.get('port', _PORT)}/readyz"


def main() -> str | None:
    """None where it is ready, else why it is not."""
    try:
        url = readiness_url(Path(os.environ.get("FORETYPE_PROFILE", "/etc/foretype/team.toml")))
        context = None
        if url.startswith(
            "https:"
        ):  # its certificate need not be for 127.0.0.1: nothing is sent, and the answer is yes or no
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with urlopen(url, timeout=_ANSWER_S, context=context):
            return None
    except (URLError, OSError, ValueError) as error:
        return f"not ready: {error}"


if __name__ == "__main__":
    sys.exit(main())
