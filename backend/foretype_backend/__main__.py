"""`python -m foretype_backend serve …`, as the client starts its private gateway."""

from __future__ import annotations

from foretype_wire.garbage_collection import spare_start_and_end

spare_start_and_end()

import typer

from foretype_backend.start.cli import serve

main = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
main.command()(serve)


@main.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction] - typer keeps `serve` a sub-command because of it
    """The Foretype gateway."""


if __name__ == "__main__":
    main()
