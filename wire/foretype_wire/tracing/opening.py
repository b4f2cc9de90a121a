"""Whether to trace, and where to: the standard `OTEL_*` variables, or what the gateway's file says. Both ends of the wire use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from foretype_wire.errors import TracingError

if TYPE_CHECKING:
    from foretype_wire.tracing.spans import Tracing

_PROTOCOL: Final = "http/protobuf"
_PROTOCOL_NAMES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SIGNAL_PATH: Final = "/v1/traces"


def open_tracing(
    service: str,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    endpoint: str | None = None,
    sample_share: float | None = None,
) -> Tracing | None:
    """Spans on their way to a collector, or None where nobody asked for them.

    A program that inherits only the address of somebody's collector does not send to it: `OTEL_TRACES_EXPORTER` must say `otlp`.

    Args:
        service: `service.name`, where `OTEL_SERVICE_NAME` gives no other.
        environ: the process's; the SDK reads addresses, headers, certificates and limits out of it by itself.
        clock: seconds, the one that spans are timed by.
        endpoint: base URL of a collector, for `OTEL_EXPORTER_OTLP_ENDPOINT`; naming it asks for traces.
        sample_share: of the traces that begin here; 1 by default, or as `OTEL_TRACES_SAMPLER` says.

    Raises:
        TracingError: asked for, and not possible.
    """
    if not check_tracing(environ, endpoint):
        return None
    from foretype_wire.tracing.exporting import exporting_tracing

    endpoint = None if endpoint is None else check_endpoint(endpoint)
    return exporting_tracing(
        service, clock=clock, named=bool(environ.get("OTEL_SERVICE_NAME")), endpoint=endpoint, sample_share=sample_share
    )


def check_tracing(environ: Mapping[str, str], endpoint: str | None = None) -> bool:
    """Whether traces are asked for and everything they need is installed. Raises TracingError where something is missing."""
    asked = {name.strip().lower() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")}
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or (endpoint is None and "otlp" not in asked):
        return False
    for name in _PROTOCOL_NAMES:
        if (protocol := environ.get(name, "").strip() or _PROTOCOL) != _PROTOCOL:
            raise TracingError(name, f"{protocol!r} is not spoken; set {_PROTOCOL}, which collectors take at port 4318")
    if endpoint is not None:
        check_endpoint(endpoint)
    try:
        import_module("foretype_wire.tracing.exporting")
    except ImportError as error:
        field = "OTEL_TRACES_EXPORTER" if endpoint is None else "tracing.endpoint"
        raise TracingError(field, f"needs `pip install 'foretype[otel]'` ({error.name} is missing)") from None
    return True


def check_endpoint(endpoint: str) -> str:
    """The URL that spans are posted to, for the base URL of a collector or for that URL itself. Raises TracingError."""
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        good = False
    if not good:
        raise TracingError("tracing.endpoint", f"{endpoint!r} is no HTTP URL; it looks like http://collector:4318")
    base = endpoint.rstrip("/")
    return base if base.endswith(_SIGNAL_PATH) else base + _SIGNAL_PATH
