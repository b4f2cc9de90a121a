"""`docs/measurements/peers.md` from result files: nothing in its tables is typed in by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from foretype_lab.errors import PeerResultError

_NAMES: Final = {
    "llama_vim": "llama.vim + llama.cpp",
    "llama_vscode": "as llama.vscode asks + llama.cpp",
    "continue": "as Continue asks + llama.cpp",
    "foretype_network": "Foretype, model alone",
    "foretype": "Foretype",
}


_SPENT: Final = (
    ("processor_s_per_1000_keys", "processor seconds for 1,000 keys, client and server"),
    ("client_s", "… of it the client, s"),
    ("share_of_a_core", "share of one core while it was typed"),
)


def table_of(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Rows of one run: a label, and a cell per system."""
    systems: dict[str, dict[str, Any]] = result["systems"]

    def row(label: str, cell: Callable[[dict[str, Any]], str]) -> tuple[str, list[str]]:
        return label, [cell(one) for one in systems.values()]

    return [
        row("first token, warm prefix, ms: p50 / p95", lambda one: _spread(one["ttft_warm_ms"])),
        row("… measured on requests", lambda one: f"{one['ttft_warm_ms']['n']:,}"),
        row("first token, cold prefix, ms: p50 / p95", lambda one: _spread(one["ttft_cold_ms"])),
        row("… measured on requests", lambda one: f"{one['ttft_cold_ms']['n']:,}"),
        row("whole answer, ms: p50 / p95", lambda one: _spread(one["answer_ms"])),
        row("key to something on the screen, ms: p50 / p95", lambda one: _spread(one["shown_ms"])),
        row("requests sent", lambda one: f"{one['requests']:,}"),
        row("… by kind", lambda one: ", ".join(f"{kind} {n:,}" for kind, n in one["requests_by_kind"].items())),
        row("… while another was being answered", lambda one: f"{one['overlapping_requests']:,}"),
        row("prompt tokens", lambda one: f"{one['prompt_tokens']:,}"),
        row("prompt tokens evaluated, as the server reports them", lambda one: f"{one['evaluated_tokens']:,}"),
        row("… per key typed", lambda one: f"{one['evaluated_per_key']:.1f}"),
        row("tokens generated", lambda one: f"{one['generated_tokens']:,}"),
        row("engine busy, s", lambda one: f"{one['engine_busy_s']:,.0f}"),
        row("keystrokes saved", lambda one: "–" if one["ksr"] is None else f"{one['ksr']:.2%}"),
        row(
            "questions at which something was seen, right ones", lambda one: f"{one['shown']:,}, {one['shown_right']:,}"
        ),
        row("… right of seen", lambda one: f"{one['shown_right'] / one['shown']:.1%}" if one["shown"] else "–"),
        row("accepted, characters", lambda one: f"{one['accepts']:,}, {one['accepted_chars']:,}"),
        *(
            row(label, lambda one, name=name: f"{one[name]:g}" if name in one else "–")
            for name, label in _SPENT
            if any(name in one for one in systems.values())
        ),
    ]


def write_page(out: Path, results: Sequence[Path]) -> None:
    """Write the page.

    Raises:
        PeerResultError: a file is not what it should be.
        OSError: a file cannot be read or written.
    """
    parts = [_INTRODUCTION, *(_run(path, _read(path, "systems")) for path in results), _METHOD]
    out.write_text("\n".join(parts), "utf-8")


def _read(path: Path, key: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise PeerResultError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict) or key not in value:
        raise PeerResultError(f"{path}: no field `{key}`; run the command of this page again")
    return cast("dict[str, Any]", value)


def _run(path: Path, result: dict[str, Any]) -> str:
    names = [_NAMES.get(name) or str(name) for name in result["systems"]]
    try:
        rows = table_of(result)
    except (KeyError, TypeError) as error:
        raise PeerResultError(f"{path}: a system lacks {error}; run `foretype bench peer --json` again") from error
    lines = [
        f"## {result['recording']}",
        "",
        (
            f"{result['minutes']:,} minutes from minute {result['from_minute']:g} on, {result['keys']:,} keys, "
            f"{'on the clock on the wall' if result['live'] else 'on a virtual clock'}; `{result['model']}` {result['model_sha256'][:12]}, "
            f"{result['threads']} thread{'s' if result['threads'] != 1 else ''}, greedy sampling, rule "
            f"{result['accept_rule']}, read for {result['decide_ms']:g} ms, our debounce {result['debounce_ms']:g} ms; llama.cpp from "
            f"{result['peer']} with `{' '.join(result['peer_arguments'])}`. `{path.name}`"
        ),
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'--:|' * len(names)}",
        *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows),
        "",
    ]
    return "\n".join(lines)


def _spread(value: dict[str, Any]) -> str:
    return "–" if not value["n"] else f"{value['p50']:.1f} / {value['p95']:.1f}"


_INTRODUCTION: Final = """# Beside a peer

`make peer-env && foretype bench peer RECORDING --json` types the same sessions through one system after the other, with the same weights, machine and number of
threads. [llama.vim](https://github.com/ggml-org/llama.vim) drives llama.cpp's own server, built for this processor; so do clients that ask as
[llama.vscode](https://github.com/ggml-org/llama.vscode) and [Continue](https://github.com/continuedev/continue) ask. Our client drives our gateway with the
embedded engine, as an editor with a plugin of ours has it. `foretype bench peer-page` writes this page from the files in `docs/measurements/peers/`.

**The weights suit us better than the peers.** The network that ships was trained to see the suffix first, or some lines behind the middle token; llama.cpp's `/infill` puts
everything above the cursor in front of the suffix, heals no token that the cursor cuts, and adds names of a project and a file. Of 150 lines of HumanEval-Infilling 12 come out exact that way
(12 greedily, too; none with its `--spm-infill`), where our prompts give 30.9 % of 1,033. `nox-psm_classic.json` is our client, model alone, with that
order of the prompt (`--layout psm_classic`), so that what the client gives can be told from what the prompt gives.

`nox.json` had the machine to itself, as [the rows of a recorded session](index.md) had; beside the other two other work ran at the lowest priority.
"""

_METHOD: Final = """## How it is measured

- **llama.vim's requests** come from a re-implementation with its default settings (`lab/foretype_lab/peer/llama_vim.py`), which
  `tests/lab/test_peer_llama_vim.py` compares with requests that the real plugin sent in a real Neovim. Two things differ on the wire: which
  fields are asked back, and, for greedy decoding, a last sampling step that takes the likeliest of what its own samplers leave. **As llama.vscode asks** is the same with that
  extension's numbers (500 ms to predict, looking again after 150), one answer for its three. **As Continue asks** (`single_asks.py`): 350 ms after the last
  key, 307 tokens above the cursor and 204 below, the file's name as a comment, ended at the next line after 375 ms, or after 64 tokens where no line ends; without its snippets of other
  files.
- **On a virtual clock** time is virtual between requests and real within them: keys come as recorded, an answer takes as long as it took. llama.vim's requests
  wait while the server is busy. Ours are measured one by one: if two overlap on the recorded clock, neither slows the other, which favours
  us; the table says how often. Text of a cancelled request does not count as generated, since an engine stops at its next token; its processor time
  does count, for nothing is cancelled there. **On the clock on the wall** (`--live`) all of it is as it is, but the prompt tokens of a request that was given up before its first token are
  not known, and not counted.
- **Processor seconds**: of the process that types and has the client in it, and of all that it started. llama.vim's own client is not in it: `curl` and Vim's script.
- **First token**: ours from sending on the socket to the first delta in the client; llama.cpp's is the server's own `prompt_ms`, without
  transport and without starting `curl`. llama.vim does not stream and sees nothing before the whole answer. Warm: at most half of the prompt
  was evaluated.
- **Accepting**: the same rule for all, which knows the line as the recording left it: an upper bound, good for comparing.
  `keystrokes saved` counts recorded changes that were not needed, less one key per accept.
- **How much each sees**: llama.vim 256 lines above and 64 below, cut by its server to three quarters and one quarter of a batch (1,024
  tokens), plus its ring of other chunks; ours the profile's budget.
"""
