"""Exact match of lines that need another file, with retrieval on and off, on the product's own path.

A cut is a place whose line uses a name that one other file of the repository defines. Two kinds: `next_line`, the cursor behind
the line's indentation, and `rest_of_line`, the cursor right before that name. The rest of the line is taken out of the
document; everything else stays. Both arms ask the same gateway at the same cut, so they are compared in pairs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_client.adaptive.model import AdaptiveModel
from foretype_context.finish.post_processing import strip_healed
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Stop
from foretype_context.prompt.segments import Kind, Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.languages import language_of
from foretype_context.text.document import Document, Snapshot
from foretype_eval.gateway import Connected, GatewayOptions, connected
from foretype_eval.statistics import cluster_bootstrap, mcnemar, paired_difference
from foretype_retrieval.embedder import Embedder
from foretype_retrieval.index import Index
from foretype_retrieval.search import query_at, search
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Complete, Delta

from foretype_lab.errors import CrossfileRowsError, RepositorySourceError
from foretype_lab.retrieval.repositories import Repository, index_of, load_repositories
from foretype_lab.retrieval.sites import Site, sites

__all__ = ["Arm", "CrossfileOptions", "CrossfileRow", "Cut", "CutKind", "run_crossfile"]

Progress = Callable[[str, int, int], None]

_DEADLINE_MS: Final = 60_000.0


class CutKind(StrEnum):
    NEXT_LINE = "next_line"
    REST_OF_LINE = "rest_of_line"


class Arm(StrEnum):
    OFF = "off"
    ON = "on"
    DEFINITION = "definition"


class CrossfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask.

    Attributes:
        limit: cuts at most.
        out: rows, one JSON object a line behind one of settings; what stands there already is not asked again.
        with_definition: a third arm whose only snippet is the wanted definition.
        snippets: what retrieval offers; the prompt's budget decides how many are shown.
    """

    limit: int = 300
    seed: int = 1
    out: Path | None = None
    with_definition: bool = False
    snippets: int = 8
    max_tokens: int = 48
    parallel: int = 2
    gateway: GatewayOptions = GatewayOptions()


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A cursor in a document whose line ends there, and what stood behind it."""

    id: str
    repository: str
    kind: CutKind
    site: Site
    prefix: str
    suffix: str
    wanted: str


class CrossfileRow(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    Attributes:
        exact: the line is the one that was there, blanks at its end aside.
        named: it holds the name that the other file defines.
        definition_shown: the wanted definition stood in the prompt.
        local_exact: the adaptive candidate, having seen the same snippets, was right.
    """

    id: str
    repository: str
    kind: CutKind
    arm: Arm
    exact: bool = False
    named: bool = False
    definition_shown: bool = False
    snippets_shown: int = 0
    prompt_tokens: int = 0
    local_exact: bool = False
    error: str = ""


async def run_crossfile(
    sources: Iterable[Path],
    embedder: Embedder | None,
    options: CrossfileOptions,
    *,
    progress: Progress = lambda _step, _done, _total: None,
) -> dict[str, Any]:
    """Ask, and return the report.

    Raises:
        RepositorySourceError: nothing here to cut.
        CrossfileRowsError: `out` holds the rows of another run.
        GatewayGoneError: the gateway cannot be reached or started.
    """
    repositories = {one.name: one for one in load_repositories(sources)}
    cuts = choose_cuts(list(repositories.values()), options.limit, options.seed)
    if not cuts:
        raise RepositorySourceError(
            "no line here needs a definition of another file; name repositories with several files"
        )
    async with connected(options.gateway) as gateway:
        settings = {
            "model": gateway.profile.model,
            "grammar": gateway.profile.grammar,
            "layout": gateway.profile.layout,
            "embedder": embedder.digest if embedder is not None else None,
            "limit": options.limit,
            "seed": options.seed,
            "snippets": options.snippets,
            "max_tokens": options.max_tokens,
        }
        rows = _resumed(options.out, settings)
        arms = [Arm.OFF, Arm.ON, *([Arm.DEFINITION] if options.with_definition else [])]
        asked = 0
        for name, repository in repositories.items():
            own = [(cut, arm) for cut in cuts if cut.repository == name for arm in arms if (cut.id, arm) not in rows]
            if own:
                index = await asyncio.to_thread(index_of, repository, embedder)
                for row in await _ask_all(gateway, index, embedder, own, options):
                    rows[row.id, row.arm] = row
            asked += sum(cut.repository == name for cut in cuts)
            progress("cuts", asked, len(cuts))
    known = {cut.id for cut in cuts}
    return settings | summarise([row for row in rows.values() if row.id in known])


def choose_cuts(repositories: Sequence[Repository], limit: int, seed: int) -> list[Cut]:
    """Cuts of both kinds at the same places, as many of each repository as the smaller ones leave room for."""
    rng = random.Random(seed)
    drawn: list[tuple[Repository, list[Site]]] = []
    for repository in repositories:
        every = list(sites(repository.files))
        rng.shuffle(every)
        drawn.append((repository, every))
    chosen: list[Cut] = []
    for turn in range(max((len(every) for _, every in drawn), default=0)):
        for repository, every in drawn:
            if turn < len(every):
                chosen += _cuts(repository, every[turn])
            if len(chosen) >= limit:
                return chosen[:limit]
    return chosen


def _cuts(repository: Repository, site: Site) -> list[Cut]:
    file = next(file for file in repository.files if file.path == site.path)
    lines = file.text.splitlines(keepends=True)
    line = lines[site.line]
    whole = line.rstrip("\r\n")
    indent = len(whole) - len(whole.lstrip())
    above, below = "".join(lines[: site.line]), line[len(whole) :] + "".join(lines[site.line + 1 :])
    columns = {CutKind.NEXT_LINE: indent, CutKind.REST_OF_LINE: site.column}
    return [
        Cut(
            id=f"{repository.name}/{site.path}:{site.line + 1}:{column + 1} {kind}",
            repository=repository.name,
            kind=kind,
            site=site,
            prefix=above + whole[:column],
            suffix=below,
            wanted=whole[column:],
        )
        for kind, column in columns.items()
    ]


async def _ask_all(
    gateway: Connected,
    index: Index,
    embedder: Embedder | None,
    asked: Sequence[tuple[Cut, Arm]],
    options: CrossfileOptions,
) -> list[CrossfileRow]:
    assembler, gate = gateway.assembler(), asyncio.Semaphore(options.parallel)

    async def one(number: int, cut: Cut, arm: Arm) -> CrossfileRow:
        async with gate:
            row = await _ask(gateway, assembler, index, embedder, f"cut-{number}-{arm}", cut, arm, options)
        _append(options.out, row)
        return row

    return await asyncio.gather(*(one(number, *pair) for number, pair in enumerate(asked)))


async def _ask(
    gateway: Connected,
    assembler: Assembler,
    index: Index,
    embedder: Embedder | None,
    id_: str,
    cut: Cut,
    arm: Arm,
    options: CrossfileOptions,
) -> CrossfileRow:
    site = cut.site
    language = language_of(site.path)
    document = Document(
        f"file:///{cut.repository}/{site.path}", cut.prefix + cut.suffix, language=language, path=site.path
    )
    snapshot, offset = document.snapshot(), len(cut.prefix)
    snippets = _snippets(index, embedder, cut, arm, options.snippets)
    plan, _ = assembler.plan(PlanState.empty(), snapshot, offset, snippets=snippets, block=False, now=0.0)
    shown = [placed.segment.source for placed in plan.segments if placed.segment.kind is Kind.FILE]
    call = Complete(
        id=id_,
        document=snapshot.uri,
        version=snapshot.version,
        language=language,
        segments=[placed.segment for placed in plan.segments],
        prompt_tokens=plan.prompt_tokens,
        max_tokens=options.max_tokens,
        stop=Stop(max_lines=1),
        deadline_ms=_DEADLINE_MS,
    )
    row = CrossfileRow(
        id=cut.id,
        repository=cut.repository,
        kind=cut.kind,
        arm=arm,
        definition_shown=any((one.path, one.start) == (site.target_path, site.target.start) for one in shown),
        snippets_shown=len(shown),
        prompt_tokens=plan.prompt_tokens,
        local_exact=_local(snapshot, offset, snippets) == cut.wanted.rstrip(),
    )
    try:
        parts = [event.text async for event in gateway.session.complete(call) if isinstance(event, Delta)]
    except RequestRefusedError as error:
        return msgspec.structs.replace(row, error=str(error.code))
    text = "".join(parts)
    line = (strip_healed(text, plan.healed) or "").split("\n", 1)[0].rstrip()
    return msgspec.structs.replace(row, exact=line == cut.wanted.rstrip(), named=site.name in line)


def _snippets(index: Index, embedder: Embedder | None, cut: Cut, arm: Arm, limit: int) -> list[Snippet]:
    site = cut.site
    if arm is Arm.OFF:
        return []
    if arm is Arm.DEFINITION:
        target = site.target
        return [Snippet(path=site.target_path, text=target.shown, start=target.start, end=target.end, score=1.0)]
    lines = cut.prefix.split("\n")
    hits = search(index, query_at(lines[:-1], lines[-1], site.path), embedder, limit=limit)
    return [
        Snippet(
            path=hit.found.path,
            text=hit.found.text,
            start=hit.found.start,
            end=hit.found.end,
            source_name=hit.source_name,
            score=hit.found.score,
            scope=Scope.SESSION,
        )
        for hit in hits
    ]


def _local(snapshot: Snapshot, offset: int, snippets: Sequence[Snippet]) -> str | None:
    model = AdaptiveModel()
    # The best last: what was seen latest counts most.
    for snippet in reversed(snippets):
        model.learn(f"{snippet.path}:{snippet.start}", snippet.text)
    found = model.candidate(snapshot, offset)
    return found.text.rstrip() if found is not None else None


def _resumed(out: Path | None, settings: dict[str, Any]) -> dict[tuple[str, Arm], CrossfileRow]:
    if out is None:
        return {}
    if not out.exists() or not out.stat().st_size:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(msgspec.json.encode(settings) + b"\n")
        return {}
    # A line that was cut short by an interruption is asked for again.
    head, *lines = out.read_bytes().split(b"\n")
    try:
        before = msgspec.json.decode(head, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise CrossfileRowsError(f"--out {out} is no file of rows; name another one") from error
    different = sorted(name for name, value in settings.items() if before.get(name) != value)
    if different:
        raise CrossfileRowsError(
            f"--out {out} holds a run with another {', '.join(different)}; name another file or delete it"
        )
    rows: list[CrossfileRow] = []
    for line in lines[:-1]:
        try:
            rows.append(msgspec.json.decode(line, type=CrossfileRow))
        except msgspec.DecodeError as error:
            raise CrossfileRowsError(f"--out {out} has a row that cannot be read ({error}); delete the file") from error
    if lines and lines[-1]:
        out.write_bytes(b"\n".join([head, *lines[:-1]]) + b"\n")
    return {(row.id, row.arm): row for row in rows if not row.error}


def _append(out: Path | None, row: CrossfileRow) -> None:
    if out is not None:
        with out.open("ab") as stream:
            stream.write(msgspec.json.encode(row) + b"\n")


def summarise(rows: Sequence[CrossfileRow]) -> dict[str, Any]:
    """Measures per arm with intervals over repositories, and their paired differences."""
    by_arm = {arm: {row.id: row for row in rows if row.arm is arm and not row.error} for arm in Arm}
    both = sorted(by_arm[Arm.OFF].keys() & by_arm[Arm.ON].keys())
    if not both:
        raise RepositorySourceError("the gateway answered no cut in both arms; run `foretype doctor`")
    measures: dict[str, Any] = {}
    for kind in (None, *CutKind):
        ids = [id_ for id_ in both if kind is None or by_arm[Arm.OFF][id_].kind is kind]
        for field in ("exact", "named", "local_exact"):
            if ids:
                measures[f"{kind or 'all'}_{field}"] = _measured(ids, by_arm, field)
    on = [by_arm[Arm.ON][id_] for id_ in both]
    return {
        "cuts": len(both),
        "repositories": len({row.repository for row in on}),
        "errors": sum(bool(row.error) for row in rows),
        "definition_shown": round(sum(row.definition_shown for row in on) / len(on), 4),
        "snippets_shown_mean": round(sum(row.snippets_shown for row in on) / len(on), 2),
        "measures": measures,
    }


def _measured(ids: Sequence[str], by_arm: dict[Arm, dict[str, CrossfileRow]], field: str) -> dict[str, Any]:
    owners = [by_arm[Arm.OFF][id_].repository for id_ in ids]
    values = {
        arm: [bool(getattr(rows[id_], field)) for id_ in ids]
        for arm, rows in by_arm.items()
        if all(id_ in rows for id_ in ids)
    }
    measured: dict[str, Any] = {"n": len(ids)}
    for arm, found in values.items():
        measured[arm.value] = cluster_bootstrap(found, owners, proportion=True).rounded()
    measured["on_minus_off"] = paired_difference(values[Arm.ON], values[Arm.OFF], owners).rounded()
    test = mcnemar(values[Arm.ON], values[Arm.OFF])
    measured["only_on"], measured["only_off"], measured["p"] = test.only_first, test.only_second, round(test.p_value, 5)
    return measured
