"""`foretype doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import httpx
import msgspec
import platformdirs
import typer
from foretype_context.errors import ProfileError, TokenizerError, UnknownControlError, UnknownGrammarError
from foretype_context.grammars.families import families
from foretype_context.syntax.languages import LANGUAGES, missing_syntaxes
from foretype_context.terminal import console, say_json
from foretype_context.text.pasted import shell_line
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from rich.table import Table
from rich.text import Text

from foretype_client.client import Client, ClientOptions, open_client
from foretype_client.commands.doctor_probe import probe
from foretype_client.commands.shared import (
    GatewayOption,
    ModelOption,
    StateDirOption,
    TokenFileOption,
    client_options,
    errors_told,
    release,
)
from foretype_client.errors import TokenizerFetchError
from foretype_client.private_gateway.finding import default_state_dir
from foretype_client.private_gateway.starting import LOG_NAME
from foretype_client.session.connecting import http_base, http_client, without_credentials
from foretype_client.session.nearest import Standing

_PACKAGES: Final = ("websockets", "msgspec", "tiktoken", "tokenizers", "tree-sitter")
_EXTRAS: Final = {
    "lsp": (("pygls",), "no language server, so no editor can be attached"),
    "gateway": (("starlette",), "no gateway can be started on this machine"),
    "embedded": (("openvino_genai", "xllamacpp"), "no model can run on this machine"),
    "retrieval": (("faiss",), "no folder is indexed, so suggestions know little of other files"),
}
"""Each extra: the modules of which it brings one at least, and what is without it."""
_CHECKS: Final = "foretype.checks"
_LEAST_PYTHON: Final = (3, 11)


class FindingVerdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at; `remedy` is empty when it is ok."""

    name: str
    status: FindingVerdict
    detail: str
    remedy: str = ""


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    gateway: GatewayOption = None,
    token_file: TokenFileOption = None,
    model: ModelOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Check versions, extras, languages, gateway, engine, tokenizer and grammar; exit with 1 if something fails."""
    with errors_told():
        options = client_options("doctor", gateway, token_file, model, state_dir)
        findings = [*_versions(), *_extras(own_gateway=gateway is None), _languages(), *_directories(options)]
        findings += [*_registered_checks(), *asyncio.run(_gateway(options))]
    worst = max((list(FindingVerdict).index(finding.status) for finding in findings), default=0)
    if json:
        report = {"status": list(FindingVerdict)[worst], "findings": findings}
        say_json(report)
    else:
        _print(findings)
    if worst == list(FindingVerdict).index(FindingVerdict.FAIL):
        raise typer.Exit(1)


def _versions() -> Generator[Finding]:
    versions = [
        f"foretype {release()}",
        f"Python {platform.python_version()}",
        f"{platform.system()} {platform.machine()}",
    ]
    missing: list[str] = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    detail = ", ".join(versions)
    if sys.version_info < _LEAST_PYTHON:
        yield Finding("versions", FindingVerdict.FAIL, detail, "install Python 3.11 or newer")
    elif missing:
        detail += f"; {', '.join(missing)} missing"
        remedy = "pip install --force-reinstall foretype"
        yield Finding("versions", FindingVerdict.FAIL, detail, remedy)
    else:
        yield Finding("versions", FindingVerdict.OK, detail)


def _extras(*, own_gateway: bool) -> Generator[Finding]:
    for extra, (modules, consequence) in _EXTRAS.items():
        name = f"extra {extra}"
        if any(find_spec(module) is not None for module in modules):
            yield Finding(name, FindingVerdict.OK, "installed")
            continue
        needed = own_gateway and extra in ("gateway", "embedded")
        yield Finding(
            name,
            FindingVerdict.FAIL if needed else FindingVerdict.WARN,
            f"not installed: {consequence}",
            f"pip install 'foretype[{extra}]'" + (", or name a gateway with --gateway URL" if needed else ""),
        )


def _languages() -> Finding:
    missing = missing_syntaxes()
    known = [language for language, spec in LANGUAGES.items() if spec.wheel and language not in missing]
    if not missing:
        return Finding("languages", FindingVerdict.OK, f"syntax is known for {', '.join(known)}")
    return Finding(
        "languages",
        FindingVerdict.WARN,
        f"no grammar for {', '.join(missing)}: blocks are found by indentation alone (missing: {', '.join(sorted(set(missing.values())))})",
        "pip install 'foretype[languages]'",
    )


def _directories(options: ClientOptions) -> Generator[Finding]:
    places = {
        "state directory": options.state_dir or default_state_dir(),
        "cache directory": options.cache_dir or platformdirs.user_cache_path("foretype"),
    }
    for name, path in places.items():
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe_file = path / ".doctor"
            probe_file.write_text("")
            probe_file.unlink()
        except OSError as error:
            yield Finding(name, FindingVerdict.FAIL, f"{path}: {error}", f"make {path} writable for you")
        else:
            yield from _privacy(name, path)


def _registered_checks() -> Generator[Finding]:
    """What other packages check: functions under `foretype.checks` that yield name, whether it is well, detail and remedy."""
    for point in sorted(entry_points(group=_CHECKS), key=lambda point: point.name):
        try:
            checks: Callable[[], Iterable[tuple[str, bool, str, str]]] = point.load()
            for name, good, detail, remedy in checks():
                status = FindingVerdict.OK if good else FindingVerdict.WARN
                yield Finding(name, status, detail, remedy)
        except Exception as error:  # noqa: BLE001 - whatever a package raises is what is to be told
            reason = f"cannot be checked ({type(error).__name__}: {error})"
            yield Finding(point.name, FindingVerdict.WARN, reason, f"pip install 'foretype[{point.name}]'")


def _privacy(name: str, path: Path) -> Generator[Finding]:
    if sys.platform != "win32" and path.stat().st_mode & 0o022:
        yield Finding(
            name,
            FindingVerdict.WARN,
            f"other users can write to {path} and could replace your gateway",
            shell_line("chmod", "go-w", path),
        )
    else:
        yield Finding(name, FindingVerdict.OK, str(path))


def _standing(grammar: str) -> str:
    """What to say of a grammar whose prompts nobody compared with another encoder's; our own has none beside ours."""
    known = [one for one in families() if one.grammar == grammar]
    return "" if grammar.startswith("foretype-") or any(one.proven for one in known) else " (unproven)"


async def _gateway(options: ClientOptions) -> list[Finding]:
    findings: list[Finding] = []
    if options.gateway is None:
        remedy = f"read {(options.state_dir or default_state_dir()) / LOG_NAME}"
    else:
        where = without_credentials(options.gateway)
        remedy = f"it is {where}; `foretype serve` starts one there, and without --gateway you have a private one"
    async with open_client(options) as client:
        with _failing(findings, "gateway", remedy):
            profile = await client.session.ready(options.start_timeout_s)
            asked_only = (
                ", shown only when asked for (--unsure: always)" if profile.min_mean_logprob.shows_nothing else ""
            )
            detail = f"{without_credentials(client.session.endpoint.url)}, model {profile.model}{asked_only}, grammar {profile.grammar}{_standing(profile.grammar)}"
            findings.append(Finding("gateway", FindingVerdict.OK, detail))
            if client.regions is not None:
                findings.append(_regions(await client.regions.measure()))
            findings.append(await _engine(client))
            with _failing(findings, "tokenizer", "restart the gateway; if that does not help, choose another model"):
                assembler = await client.ready(options.start_timeout_s)
                findings.append(Finding("tokenizer", FindingVerdict.OK, profile.tokenizer_digest))
                with _failing(findings, "grammar", "look into the gateway's log"):
                    result = await probe(client.session, assembler)
                    status = FindingVerdict.FAIL if result.broken else FindingVerdict.WARN
                    status = FindingVerdict.OK if result.good else status
                    findings.append(Finding("grammar", status, result.detail, result.remedy))
    return findings


def _regions(standings: list[Standing]) -> Finding:
    """Of several gateways which is used, and how far each is."""
    told: list[str] = []
    for one in standings:
        state = f"{one.rtt_ms:.0f} ms" if one.healthy and one.rtt_ms is not None else one.why or "not asked yet"
        told.append(f"{without_credentials(one.url)} {state}{', in use' if one.chosen else ''}")
    if all(one.healthy for one in standings):
        return Finding("gateways", FindingVerdict.OK, "; ".join(told))
    remedy = "suggestions come from the gateways that answer; check the others, or remove them from --gateway"
    return Finding("gateways", FindingVerdict.WARN, "; ".join(told), remedy)


async def _engine(client: Client) -> Finding:
    """What the gateway says about its engine."""
    url = f"{http_base(client.session.endpoint.url)}/healthz"
    try:
        async with http_client(url, 10.0) as http:
            response = await http.get(url, headers=client.session.endpoint.headers())
        response.raise_for_status()
        health = msgspec.json.decode(response.content, type=_Health)
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        status = f"answers {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else ""
        detail = f"{without_credentials(url)}: {status or error or type(error).__name__}"  # httpx quotes the whole URL
        return Finding("engine", FindingVerdict.WARN, detail, "look into the gateway's log")
    engine = health.engine
    detail = (
        f"gateway {health.version}, {engine.running} running, {engine.waiting} waiting, {engine.restarts} restarts, "
        f"{engine.cached_tokens} of {engine.prompt_tokens} prompt tokens cached so far"
    )
    if engine.restarts:
        return Finding("engine", FindingVerdict.WARN, detail, "it died before: read the gateway's log")
    return Finding("engine", FindingVerdict.OK, detail)


class _Engine(msgspec.Struct):
    running: int = 0
    waiting: int = 0
    restarts: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class _Health(msgspec.Struct):
    version: str = "unknown"
    engine: _Engine = msgspec.field(default_factory=_Engine)


@contextmanager
def _failing(findings: list[Finding], name: str, remedy: str) -> Generator[None]:
    """An expected failure becomes a finding."""
    try:
        yield
    except (
        GatewayGoneError,
        RequestRefusedError,
        TokenizerFetchError,
        TokenizerError,
        UnknownGrammarError,
        ProfileError,
        UnknownControlError,
    ) as error:
        findings.append(Finding(name, FindingVerdict.FAIL, str(error), remedy))


def _print(findings: list[Finding]) -> None:
    """In a terminal a long finding is folded beside its name; elsewhere each is one line. A remedy, which may be pasted, always is."""
    screen = console()
    colours = {FindingVerdict.OK: "green", FindingVerdict.WARN: "yellow", FindingVerdict.FAIL: "bold red"}
    for finding in findings:
        status = Text(f"{finding.status:<4}", colours[finding.status])
        remedy = Text(f"→ {finding.remedy}", style="bold")
        if screen.is_terminal:
            table = Table.grid(padding=(0, 1))
            table.add_column(no_wrap=True)
            table.add_column(no_wrap=True, min_width=16)
            table.add_column(overflow="fold")
            table.add_row(status, finding.name, Text(finding.detail))
            screen.print(table)
        else:
            screen.print(Text.assemble(status, f" {finding.name:<16} {finding.detail}"), soft_wrap=True)
        if finding.remedy:
            screen.print(Text.assemble(f"{'':<21} ", remedy), soft_wrap=True)
