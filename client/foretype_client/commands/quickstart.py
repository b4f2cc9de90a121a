"""`foretype quickstart`: the private gateway with the shipped model, shown at work, and how to attach an editor to it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from foretype_context.terminal import console as plain_console
from foretype_context.text.pasted import elisp_string, lua_string, shell_line, toml_string
from foretype_wire.errors import GatewayGoneError
from rich.console import Console

import foretype_client
from foretype_client.client import ClientOptions, open_client
from foretype_client.commands.demo import demo
from foretype_client.commands.playground import open_page, page_address
from foretype_client.commands.shared import ModelOption, StateDirOption, client_options, errors_told
from foretype_client.private_gateway.finding import FETCH_REMEDY, chosen_profile, default_state_dir
from foretype_client.session.connecting import http_base

_KEYS: Final = 140
_SPEED: Final = 14.0
_EDITORS: Final = Path(foretype_client.__file__).parents[2] / "editors"


def editor_lines(command: str, editors: Path) -> list[tuple[str, str]]:
    """Editor with where to write it, and the lines that attach it, as they are pasted.

    Args:
        command: how the language server is started.
        editors: the folder `editors/` of a checkout; without it, what works from an installed package.
    """
    helix = f"""[language-server.foretype]
command = {toml_string(command)}
args = ["lsp", "--popup"]

[[language]]
name = "python"
language-servers = ["pylsp", "foretype"]"""
    if not (nvim := editors / "nvim").is_dir():
        neovim = f"""vim.lsp.config('foretype', {{
  cmd = {{ {lua_string(command)}, 'lsp' }}, filetypes = {{ 'python' }}
}})
vim.lsp.enable('foretype')
vim.lsp.inline_completion.enable()"""
        return [
            ("Neovim 0.12 (init.lua)", neovim),
            ("VS Code and Vim (llama.vscode and llama.vim ask there)", shell_line(command, "serve", "--port", "8012")),
            ("Helix (languages.toml)", helix),
        ]
    neovim = f"""vim.opt.runtimepath:prepend({lua_string(nvim)})
require('foretype').setup({{ cmd = {{ {lua_string(command)}, 'lsp' }} }})"""
    vscode = f"""{shell_line("make", "-C", editors.parent, "vsix")}
{shell_line("code", "--install-extension", editors / "vscode/foretype.vsix")}"""
    emacs = f"""(add-to-list 'load-path {elisp_string(editors / "emacs")})
(require 'foretype)
(setq foretype-command '({elisp_string(command)} "lsp"))
(foretype-setup)"""
    return [
        ("Neovim (init.lua)", neovim),
        ("VS Code (a shell; node 20 or newer)", vscode),
        ("Emacs (init.el)", emacs),
        ("Helix (languages.toml)", helix),
    ]


def quickstart(
    keys: Annotated[int, typer.Option("--keys", min=1, metavar="N", help="Length of the demo.")] = _KEYS,
    stay: Annotated[
        bool | None, typer.Option("--stay/--no-stay", help="Keep the gateway until Ctrl-C. Default: in a terminal.")
    ] = None,
    model: ModelOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Start the gateway with the shipped model, show it at work, say how to attach an editor."""
    console = plain_console()
    terminal = console.is_terminal
    if model is None:
        _fetch_network(state_dir)
    demo(keys=keys, speed=_SPEED if terminal else 0.0, model=model, state_dir=state_dir)
    command = str(Path(sys.argv[0]).absolute()) if Path(sys.argv[0]).name == "foretype" else "foretype"
    if shutil.which("foretype") == command:
        command = "foretype"
    console.print(
        "\nThis file repeats itself, as some do. Over whole commits fewer keys are saved: docs/measurements/shipped-model.md says how many."
    )
    console.print(
        "\nAttach an editor; the language server finds this gateway by itself. docs/editors.md has the details."
    )
    for editor, lines in editor_lines(command, _EDITORS):
        console.print(f"\n{editor}", style="bold")
        console.print(lines, soft_wrap=True)
    with errors_told():
        options = client_options("quickstart", None, None, model, state_dir)
        asyncio.run(_report(options, console, terminal if stay is None else stay))


def _fetch_network(state_dir: Path | None) -> None:
    """Make the model that ships where it is not made yet; size and seconds are shown. Whatever comes of it, go on."""
    if chosen_profile(state_dir or default_state_dir()) is not None:
        return
    from foretype_client.commands.cli import app

    with suppress(typer.Exit, SystemExit):
        app(["models", "fetch"], standalone_mode=False)


async def _report(options: ClientOptions, console: Console, stay: bool) -> None:
    async with open_client(options) as client:
        try:
            await client.ready(options.start_timeout_s)
        except GatewayGoneError as error:
            if FETCH_REMEDY not in str(error):
                raise
            console.print(f"\n{error}. Until then an editor shows only what your files say.", markup=False)
            return
        profile = client.session.profile
        if profile is not None and profile.min_mean_logprob.shows_nothing:
            console.print(
                f"\nIn an editor {profile.model} answers only when you ask (Alt+\\), because it is right too seldom; by itself an editor shows "
                "what your files say, as above. `foretype use` proposes a good model for this machine; `foretype demo --unsure` and "
                "`foretype lsp --unsure` show all that this one says.",
                markup=False,
            )
        endpoint = client.session.endpoint
        where = f" at {http_base(endpoint.url)}"
        page = await page_address(endpoint)
        console.print(f"\nPlayground in a browser: {page}", soft_wrap=True)
        console.print("  (this address works once, for a minute; `foretype playground` makes another)")
        if stay:
            await open_page(page)
        if not stay:
            console.print(f"\nThe gateway{where} ends by itself a minute after the last editor has left.")
            return
        console.print(
            f"\nThe gateway runs{where}. Ctrl-C ends this command; the gateway ends a minute after the last editor has left."
        )
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            console.print()
            raise
