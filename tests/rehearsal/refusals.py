"""What is wrong on an operator's machine, and whether one sentence says so."""

from __future__ import annotations

import socket

from rehearsal.engine import Engine
from rehearsal.steps import Failed, check, step, told, until
from rehearsal.stories import started
from rehearsal.team import Team, team

__all__ = ["refusals"]


def refusals(engine: Engine) -> None:
    with team(engine) as one:
        with step("a variable that is not set"):
            password = one.environment.pop("POSTGRES_PASSWORD")
            done = one.compose("up", "-d", "--no-deps", "--no-build", "postgres")
            wanted = "required variable POSTGRES_PASSWORD is missing a value: write deploy/.env"
            said(done.stderr.splitlines()[-1], wanted)
            check(done.returncode != 0, "it was started without a password")
            one.environment["POSTGRES_PASSWORD"] = password
        with step("a gateway with its stores"):
            started(one)
            one.key("acme")
        with step("a port that is taken"), socket.socket() as taken:
            engine("rm", "-f", one.container("gateway"))
            taken.bind(("127.0.0.1", one.ports["gateway"]))
            taken.listen()
            try:
                one.start("gateway")
            except Failed as failure:
                said(str(failure), "already in use")
            else:
                raise Failed("started, though another has the port")
        with step("a volume of another user"):
            owned(one, "0:0")
            refused(one, "/var/lib/foretype")
            owned(one, "10001:10001")
        with step("a wrong secret"):
            one.environment["POSTGRES_PASSWORD"] = "wrong"
            refused(one, "password authentication failed")
            one.environment["POSTGRES_PASSWORD"] = password
        with step("an engine that the gateway has no network to"):
            engine("network", "disconnect", "-f", one.volume("engines"), one.container("vllm"))
            refused(one, "http://vllm:8000/v1")
            engine("network", "connect", "--alias", "vllm", one.volume("engines"), one.container("vllm"))
        with step("all that is mended, the gateway is ready"):
            one.start("gateway")
            one.ready()


def owned(one: Team, owner: str) -> None:
    mounted = f"{one.volume('state')}:/state"
    one.engine("run", "--rm", "--user", "0", "--entrypoint", "chown", "-v", mounted, "foretype", "-R", owner, "/state")


def refused(one: Team, words: str) -> None:
    """The gateway ends with code 2 and says why in one line, which has these words."""
    one.start("gateway")
    container = one.container("gateway")
    until("the gateway says why it does not start", lambda: words in one.said("gateway"))
    said(one.said("gateway"), words)
    one.engine("stop", "-t", "5", container)
    check(not one.serving(), "it serves all the same")


def said(text: str, words: str) -> None:
    """One line has these words, whoever started it how often, and no traceback is around it."""
    lines = {line for line in text.splitlines() if words in line}
    check(len(lines) >= 1, f"nothing of {words}: {text[-800:]}")
    check("Traceback" not in text, f"a traceback: {text[-1500:]}")
    told(f"     {min(lines, key=len)[:300]}")
