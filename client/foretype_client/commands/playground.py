"""`foretype playground`: the gateway's playground in a browser, by an address that works once, for a minute.

Every user of a machine can list what its processes were started with, and a browser keeps where it was: no address holds a token.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import Annotated, Final

import httpx
import msgspec
import typer
from foretype_context.terminal import say
from foretype_wire.credentials import without_credentials
from foretype_wire.errors import GatewayGoneError, TokenInClearError

from foretype_client.client import open_client
from foretype_client.commands.shared import (
    GatewayOption,
    ModelOption,
    StateDirOption,
    TokenFileOption,
    client_options,
    errors_told,
)
from foretype_client.ports import Endpoint
from foretype_client.session.connecting import http_base, http_client

_TIMEOUT_S: Final = 10.0


class _Code(msgspec.Struct):
    code: str


def playground(
    browser: Annotated[
        bool | None, typer.Option("--browser/--no-browser", help="Open it. Default: in a terminal with a display.")
    ] = None,
    gateway: GatewayOption = None,
    token_file: TokenFileOption = None,
    model: ModelOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Print an address of the gateway's playground that logs a browser in once, within a minute, and open it."""
    with errors_told():
        options = client_options("playground", gateway, token_file, model, state_dir)

        async def address() -> str:
            async with open_client(options) as client:
                await client.session.ready(options.start_timeout_s)
                return await page_address(client.session.endpoint)

        page = asyncio.run(address())
        say(page)
        if browser or (browser is None and sys.stdout.isatty()):
            asyncio.run(open_page(page, anywhere=bool(browser)))


async def page_address(endpoint: Endpoint) -> str:
    """The playground's address, with a code where the gateway asks for a token.

    Raises:
        GatewayGoneError: it cannot be reached, or gives no code.
    """
    base = without_credentials(http_base(endpoint.url))
    if endpoint.token is None:
        return f"{base}/playground"
    try:
        async with http_client(endpoint.url, _TIMEOUT_S) as http:
            answer = await http.post(f"{http_base(endpoint.url)}/playground/code", headers=endpoint.headers())
        if answer.status_code != 200:
            raise GatewayGoneError(
                f"{base} answered {answer.status_code} instead of a code for its playground: does it run this version?"
            )
        code = msgspec.json.decode(answer.content, type=_Code).code
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, TokenInClearError) as error:
        raise GatewayGoneError(f"the playground of {base} cannot be opened: {error or type(error).__name__}") from error
    return f"{base}/playground#code={code}"


async def open_page(page: str, *, anywhere: bool = False) -> None:
    """Open it in a browser, where that would have a screen or `anywhere`."""
    shown = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if anywhere or shown or sys.platform in ("win32", "darwin"):
        await asyncio.to_thread(webbrowser.open, page)
