"""`foretype privacy`: what is kept about suggestions, where, for how long; and its removal.

The gateway's side is found by the entry-point group `foretype.privacy`; a machine with the client alone has only the spool.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from foretype_context.terminal import console, say, say_json
from rich.table import Table

from foretype_client.adaptive.habits_file import HABITS_NAME, forget
from foretype_client.commands.shared import StateDirOption, errors_told
from foretype_client.errors import InputError
from foretype_client.private_gateway.finding import default_state_dir
from foretype_client.telemetry.spool import Spool, user_in

_GROUP: Final = "foretype.privacy"

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What is kept about suggestions, where, for how long; and its removal.",
)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="The gateway's telemetry.url. Default: the file in the state directory."
    ),
]
TextsOption = Annotated[
    str | None,
    typer.Option("--texts", metavar="URL", help="The gateway's telemetry.text_url. Default: beside the store."),
]
KeyOption = Annotated[Path | None, typer.Option("--key-file", metavar="FILE", help="The gateway's telemetry.key_file.")]
ProfileOption = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        envvar="FORETYPE_PROFILE",
        help="The gateway's TOML file: says its stores, key and audit log.",
    ),
]
TenantOption = Annotated[str, typer.Option("--tenant", help="Whose.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("show")
def show(
    as_json: JsonOption = False,
    store: StoreOption = None,
    texts: TextsOption = None,
    key_file: KeyOption = None,
    profile: ProfileOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Places, retention and flags."""
    with errors_told():
        folder = _folder(state_dir)
        spool = Spool(folder / "spool")
        place = {
            "what": "spool",
            "place": str(spool.directory),
            "holds": "events on their way to the gateway; never source text",
            "retention": "until acknowledged, at most 16 MiB",
        }
        places = [place]
        if (habits := _habits(state_dir)).exists():
            told = "how many suggestions were looked at and taken, by language; read by editors on this machine alone"
            until = "until `privacy delete --user me`; older looks count less and less"
            places.append({"what": "habits", "place": str(habits), "holds": told, "retention": until})
        result: dict[str, Any] = {"user": user_in(folder), "spooled_batches": len(spool.names()), "places": places}
        gateway = _gateway(folder, store, texts, key_file, profile, needed=False, named=False)
        if gateway is None:
            result["tenants"] = []
        else:
            shown = _told(gateway.show)
            result["places"] += shown["places"]
            result["tenants"] = shown["tenants"]
        if as_json:
            _print_json(result)
        else:
            _print(result)


@app.command("set")
def set_(
    tenant: TenantOption = "default",
    store_text: Annotated[
        bool | None, typer.Option("--store-text/--no-store-text", help="Keep samples of text, encrypted.")
    ] = None,
    train: Annotated[bool | None, typer.Option("--train/--no-train", help="Exports may contain this tenant.")] = None,
    user_reports: Annotated[
        bool | None, typer.Option("--user-reports/--no-user-reports", help="Reports may show single users.")
    ] = None,
    events_days: Annotated[int | None, typer.Option(help="Days that events are kept.")] = None,
    text_days: Annotated[int | None, typer.Option(help="Days that texts are kept.")] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    texts: TextsOption = None,
    key_file: KeyOption = None,
    profile: ProfileOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Change what a tenant agrees to. A running gateway follows within half a minute."""
    with errors_told():
        given = {
            "store_text": store_text,
            "train": train,
            "user_reports": user_reports,
            "events_days": events_days,
            "text_days": text_days,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            raise InputError(
                "nothing to change: give --store-text, --train, --user-reports, --events-days or --text-days"
            )
        gateway = _gateway(_folder(state_dir), store, texts, key_file, profile)
        _done(_told(lambda: gateway.set(tenant, **changes)), as_json=as_json)


@app.command("delete")
def delete(
    user: Annotated[str | None, typer.Option("--user", help="Pseudonym, as `show` prints your own; or `me`.")] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="With --user: its tenant. Alone: all of a tenant.")
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    texts: TextsOption = None,
    key_file: KeyOption = None,
    profile: ProfileOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Remove everything of a user, or of a whole tenant, from the store, the texts, this machine's spool, and its habits."""
    with errors_told():
        if user is None and tenant is None:
            raise InputError("whose? give --user ID (or `--user me`), or --tenant NAME")
        folder = _folder(state_dir)
        own = user_in(folder)
        forgot = {"habits": 1} if user in (None, own, "me") and forget(_habits(state_dir)) else {}
        if user == "me":
            if not own and forgot:
                _done({"events": 0, "texts": 0, "spooled_batches": 0, **forgot}, as_json=as_json)
                return
            if not own:
                raise InputError(f"nothing was ever recorded under {folder}; give --user ID")
            user = own
        spool = Spool(folder / "spool")
        spooled = spool.names() if user in (None, own) else []
        for name in spooled:  # before the store: what is removed there must not come back from here
            spool.remove(name)
        gateway = _gateway(folder, store, texts, key_file, profile, needed=False)
        removed = {"events": 0, "texts": 0}
        if gateway is not None:
            removed = _told(lambda: gateway.delete(tenant or "default", user, ours=user == own))
        if user is not None and user == own:
            (folder / "user").unlink(missing_ok=True)  # a new pseudonym from the next start on
        _done({**removed, "spooled_batches": len(spooled), **forgot}, as_json=as_json)


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="JSON lines are written here, mode 0600.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
    texts: TextsOption = None,
    key_file: KeyOption = None,
    profile: ProfileOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Events and texts of the tenants that agreed to `train`, and of nobody else."""
    with errors_told():
        gateway = _gateway(_folder(state_dir), store, texts, key_file, profile)
        _done(_told(lambda: gateway.export(file)), as_json=as_json)


@app.command("rotate-key")
def rotate_key(
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Another telemetry.key_file that is to open the texts too; gateways get it next.",
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Make no new key: seal again what former keys still seal.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    texts: TextsOption = None,
    key_file: KeyOption = None,
    profile: ProfileOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Seal kept texts with a new key. Gateways follow by themselves, and remove the former ones ten minutes later."""
    with errors_told():
        if to is not None and go_on:
            raise InputError("--to and --continue exclude each other: a new key file needs a new key")
        gateway = _gateway(_folder(state_dir), store, texts, key_file, profile)
        _done(_told(lambda: gateway.rotate_key(to=to, go_on=go_on)), as_json=as_json)


def _folder(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()) / "telemetry"


def _habits(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()) / HABITS_NAME


def _gateway(
    folder: Path,
    store: str | None,
    texts: str | None,
    key_file: Path | None,
    profile: Path | None,
    *,
    needed: bool = True,
    named: bool = True,
) -> Any:
    """The gateway's side; None where it is not installed. A store that nobody chose is named, where the answer does not."""
    for point in entry_points(group=_GROUP):
        try:
            make = point.load()
        except ImportError as error:
            if not needed and store is None:
                return None
            raise InputError(f"the gateway is not installed here ({error}); pip install 'foretype[gateway]'") from error
        try:
            found = make(folder, url=store, text_url=texts, key_file=key_file, profile=profile)
        except ValueError as error:  # of the profile
            raise InputError(str(error)) from error
        if named and store is None and profile is None:
            say(f"foretype: in {found.url}; a gateway with another is meant by --profile or --store", err=True)
        return found
    if needed or store is not None:
        raise InputError("the gateway is not installed here; pip install 'foretype[gateway]'")
    return None


def _told(work: Any) -> Any:
    try:
        return work()
    except ValueError as error:
        raise InputError(str(error)) from error


def _done(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print_json(result)
    else:
        say(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in result.items()))


def _print_json(value: dict[str, Any]) -> None:
    say_json(value, indent=2)


def _print(result: dict[str, Any]) -> None:
    screen = console()
    for place in result["places"]:  # unwrapped: a path that is cut in two cannot be copied
        screen.print(f"{place['what'] + ':':<8}{place['place']}", soft_wrap=True)
        screen.print(f"{'':<8}{place['holds']}; kept: {place['retention']}", soft_wrap=True)
    flags_of, counts_of = ("store_text", "train", "user_reports"), ("events_days", "text_days", "events", "texts")
    oldest_of = ("oldest_event", "oldest_text")
    heads = [name.replace("_", " ") for name in (*flags_of, *counts_of, *oldest_of)]
    tenants = Table("tenant", *heads, box=None, padding=(0, 1, 0, 0))
    for tenant in result["tenants"]:
        flags = ["yes" if tenant[name] else "no" for name in flags_of]
        numbers = [str(tenant[name]) for name in counts_of]
        tenants.add_row(tenant["tenant"], *flags, *numbers, *(tenant[name] or "" for name in oldest_of))
    screen.print(tenants)
    screen.print(
        f"you: {result['user'] or 'nothing recorded here yet'}; {result['spooled_batches']} batches in the spool"
    )
