"""Times of the editor's process between a key and its request.

The file is this project's own source, joined until it has the lines that were asked for: real code, the same on every machine that
has this version. A typist writes lines of it again, here and there; each key is applied, parsed, and planned for with a warm set of
snippets as an index gives them.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final

from foretype_context.grammars.grammar import grammar
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Document, Edit
from foretype_context.syntax.outline import outline
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import locate

_PACKAGES: Final = ("foretype_context", "foretype_client", "foretype_eval", "foretype_backend", "foretype_models")
_SOURCES: Final = ("imports", "recent", "retrieval", "dependencies", "open")
_KEYS_PER_PLACE: Final = 40


def source_text(lines: int) -> str:
    """Python source of that many lines. Raises OSError where the packages have no source files."""
    whole: list[str] = []
    files = [path for name in _PACKAGES for path in sorted(_folder(name).rglob("*.py"))]
    while len(whole) < lines:
        before = len(whole)
        for path in files:
            whole += path.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(whole) == before:
            raise OSError("no source files to type in")
    return "".join(whole[:lines])


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise OSError(f"{package} has no source files here")
    return Path(spec.origin).parent


def _snippets(count: int) -> list[Snippet]:
    paths = sorted(_folder("foretype_context").rglob("*.py")) + sorted(_folder("foretype_client").glob("*.py"))
    found = [
        Snippet(
            path=f"{path.parent.name}/{path.name}",
            text=outline(path.read_text(encoding="utf-8"), "python"),
            source_name=_SOURCES[at % len(_SOURCES)],
            score=1.0 / (1 + at),
            scope=Scope.REPOSITORY if at % 3 else Scope.SESSION,
        )
        for at, path in enumerate(paths)
    ]
    return [snippet for snippet in found if snippet.text][:count]


def _keys(document: Document, rng: random.Random) -> Iterator[Edit]:
    """Types lines of the file again, one character at a time, at places all over it; what was typed goes away again."""
    while True:
        snapshot = document.snapshot()
        line = snapshot.line_text(rng.randrange(snapshot.line_count))
        if len(line.strip()) < 8:
            continue
        at = snapshot.line_start(rng.randrange(snapshot.line_count))
        for character in ("\n" + line)[:_KEYS_PER_PLACE]:
            yield Edit(at, at, character)
            at += 1
        first = at - len(("\n" + line)[:_KEYS_PER_PLACE])
        document.apply([Edit(first, at, "")], document.version + 1)


def measure_context(*, lines: int, keys: int, snippets: int, seed: int) -> dict[str, Any]:
    """The report of `foretype bench context`, in milliseconds; prompts are in the shipped model's layout.

    Args:
        lines: of the file that is typed in.
        keys: typed characters; each is one measurement.
        snippets: candidates from other files per request.

    Raises:
        ArtifactError, TokenizerError, UnknownGrammarError, UnknownLayoutError: the shipped model cannot be read.
        OSError: there is no source to type in.
    """
    model = locate()
    tokenizer, family = load_tokenizer(model.tokenizer_path), grammar(model.grammar)
    layout = family.layout(own=model.profile.get("layout"))
    text = source_text(lines)
    profile = Profile(model="context", grammar=family.id, tokenizer_digest=tokenizer.digest, layout=layout)
    assembler = Assembler(tokenizer, profile)
    candidates = _snippets(snippets)
    opening = time.perf_counter()
    document = Document("file:///bench.py", text, path="bench.py")
    document.snapshot().syntax_at(len(text) // 2)
    opened_ms = (time.perf_counter() - opening) * 1e3
    times: dict[str, list[float]] = {"didchange": [], "syntax": [], "assembly": []}
    cpu: dict[str, list[float]] = {name: [] for name in times}
    state, untreed, over = PlanState.empty(), 0, 0
    tokens = 0
    for done, edit in enumerate(islice(_keys(document, random.Random(seed)), keys)):
        began = _now()
        document.apply([edit], document.version + 1)
        snapshot = document.snapshot()
        changed = _now()
        region = snapshot.syntax_at(edit.start + 1)
        parsed = _now()
        plan, state = assembler.plan(state, snapshot, edit.start + 1, snippets=candidates, now=done * 0.2)
        planned = _now()
        for name, start, end in (
            ("didchange", began, changed),
            ("syntax", changed, parsed),
            ("assembly", changed, planned),
        ):
            times[name].append((end[0] - start[0]) * 1e3)
            cpu[name].append((end[1] - start[1]) * 1e3)
        untreed += region is None
        over += any(drop.reason == "assembly ran out of time" for drop in plan.dropped)
        tokens += plan.prompt_tokens
    return {
        "lines": lines,
        "bytes": len(text.encode()),
        "keys": keys,
        "snippets": len(candidates),
        "grammar": family.id,
        "layout": layout,
        "strategy": assembler.strategy.id,
        "prompt_tokens_mean": round(tokens / max(keys, 1)),
        "open_ms": round(opened_ms, 3),
        **{f"{name}_ms": _quantiles(values) for name, values in times.items()},
        # The same on the thread's own clock: what other processes took of the machine is not in it.
        **{f"{name}_cpu_ms": _quantiles(values) for name, values in cpu.items()},
        "keys_without_tree": untreed,
        "assemblies_out_of_time": over,
    }


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def _quantiles(values: list[float]) -> dict[str, float]:
    # The first keys fill the token caches; an editor has them filled before the user types.
    warm = values[len(values) // 20 :]
    found = sorted(warm)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(found[max(math.ceil(share * len(found)) - 1, 0)], 4) for name, share in shares.items()}
