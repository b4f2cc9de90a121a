"""Fits the row of the end token anew: ``python -m foretype_lab.adapter.ends ADAPTER --base FILE.gguf --store DIR --out FILE``.

An end is one of twenty-five targets, and a training at small rates leaves it shy of being the first choice. With all else as it is, the
row's logit is a logistic regression over the last states, which takes the time to compute these: twenty minutes of two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import torch
from foretype_context.terminal import say
from foretype_models.artifacts import digest_file
from torch import Tensor
from torch.nn import functional

from foretype_lab.adapter import adapter_file, base
from foretype_lab.adapter.base import CONTROL
from foretype_lab.adapter.network import Network
from foretype_lab.adapter.rows import END, Row, Sampler
from foretype_lab.adapter.train import batch, shape_of
from foretype_lab.corpus.store import Store

_ROW = list(CONTROL.values()).index(END)
_RANK = 32  # of the configurations in lab/configs
_TOKENS = 320
_AT_ONCE = 8


class States(NamedTuple):
    """Positions before an answer's tokens, (targets, …).

    Attributes:
        last: states behind the last norm, (targets, width).
        others: log of the sum over every other token's exponential.
        best: the largest of the other tokens' logits; ``right`` where that token is the target.
        end: where the end is the target.
        row: number of the row.
    """

    last: Tensor
    others: Tensor
    best: Tensor
    right: Tensor
    end: Tensor
    row: Tensor


class Exact(NamedTuple):
    """Shares: rows whose every token is the first choice, ends that are, and other targets at which the end is."""

    rows: float
    ends: float
    early: float


@torch.no_grad()
def states(network: Network, rows: list[Row], first: int = 0) -> States:
    """What :func:`fit` and :func:`exact` need of some rows."""
    longest = max(row.end for row in rows)
    ids, wanted, targets, *_ = batch([Row(row.ids[:longest], row.begin, row.end) for row in rows])
    last, table = network(ids, wanted)
    logits = functional.linear(last, table).float()
    logits[:, END] = -1e9
    best, choice = logits.max(-1)
    numbers = torch.cat([torch.full((row.end - row.begin,), first + at) for at, row in enumerate(rows)])
    return States(last.float(), logits.logsumexp(-1), best, choice == targets, targets == END, numbers)


def together(parts: list[States]) -> States:
    """One for all of them."""
    return States(*(torch.cat(values) for values in zip(*parts, strict=True)))


def fit(of: States, row: Tensor, *, weight: float, pull: float) -> Tensor:
    """The row, (width,), at which the loss is least.

    Args:
        row: from which it is pulled away.
        weight: of an end; another target has 1.
        pull: nats a squared length of the difference.
    """
    moved = torch.zeros_like(row, requires_grad=True)
    weights = torch.where(of.end, weight, 1.0)
    search = torch.optim.LBFGS([moved], max_iter=80, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        logits = of.last @ (row + moved) - of.others
        each = functional.binary_cross_entropy_with_logits(logits, of.end.float(), reduction="none")
        value = (each * weights).mean() + pull * moved.square().sum()
        value.backward()
        return value

    search.step(loss)
    return (row + moved).detach()


def exact(of: States, row: Tensor) -> Exact:
    """How exact the rows are with this row for the end, each token behind the right ones before it."""
    ends = of.last @ row > of.best
    wrong = torch.where(ends, ~of.end, of.end | ~of.right)
    _, at = of.row.unique(return_inverse=True)
    bad = torch.zeros(int(at.max()) + 1).index_add_(0, at, wrong.float())
    return Exact(*(float(values.float().mean()) for values in (bad == 0, ends[of.end], ends[~of.end])))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Fit the row of the end token anew.")
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="the base's GGUF file")
    parser.add_argument("--store", type=Path, required=True, help="folder with the text stores train/ and validation/")
    parser.add_argument("--out", type=Path, required=True, help="the adapter that is written")
    parser.add_argument("--rows", type=int, default=1200, help="of the training store, to fit with")
    parser.add_argument(
        "--held-out", type=int, default=400, help="rows of the other, half of them Python's, to look at"
    )
    parser.add_argument("--weight", type=float, default=3.5, help="of an end beside another token")
    parser.add_argument("--pull", type=float, default=0.01, help="towards the row as it was")
    parser.add_argument("--adapter-version", required=True)
    options = parser.parse_args()
    network = Network(base.weights(options.base), shape_of(options.base), _RANK)
    trained = adapter_file.read_into(network, options.adapter)
    tokenizer = base.tokenizer(options.base)

    def drawn(store: str, python: float, rows: int) -> States:
        sampler = Sampler(Store(options.store / store), tokenizer, {"spm": 1.0}, "end-fit", 0.0, python)
        starts = range(0, rows, _AT_ONCE)
        return together([states(network, [sampler.row(at + n, _TOKENS) for n in range(_AT_ONCE)], at) for at in starts])

    before = network.rows[_ROW].detach().clone()
    after = fit(drawn("train", 0.6, options.rows), before, weight=options.weight, pull=options.pull)
    for name, share in (("Python", 1.0), ("others", 0.0)):
        held = drawn("validation", share, options.held_out // 2)
        for when, row in (("before", before), ("after", after)):
            found = exact(held, row)
            say(f"{name}, {when}: rows {found.rows:.1%}, ends {found.ends:.1%}, too early {found.early:.2%}")
    with torch.no_grad():
        network.rows[_ROW] = after
    adapter_file.write(
        network,
        options.out,
        layout="spm",
        base_sha256=digest_file(options.base),
        trained_tokens=trained,
        version=options.adapter_version,
    )


if __name__ == "__main__":
    main()
