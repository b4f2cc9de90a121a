"""The certificate of a gateway that speaks TLS itself: read at the start, read again with every reload, its end in the metrics."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path

from foretype_backend.config.config import Config
from foretype_backend.errors import ConfigError

_log = logging.getLogger("foretype.gateway")
_FIELD = "gateway.tls_cert_file"
_KEY_FIELD = "gateway.tls_key_file"


class Certificate:
    """Connections that are open keep the certificate that they began with; later ones get what :meth:`renew` read.

    Attributes:
        context: for the server's socket; the same one for ever.
        expires: when clients begin to refuse it.

    Raises:
        ConfigError: a file cannot be read, or key and certificate do not belong together.
    """

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._files = cert_file, key_file
        self.context = _context()
        self.expires = datetime.max.replace(tzinfo=UTC)
        self.renew()

    @classmethod
    def of(cls, config: Config) -> Certificate | None:
        """None where the gateway speaks no TLS."""
        cert_file, key_file = config.gateway.tls_cert_file, config.gateway.tls_key_file
        return None if cert_file is None or key_file is None else cls(cert_file, key_file)

    def expires_s(self) -> float:
        """Seconds since 1970."""
        return self.expires.timestamp()

    def expired(self, now: datetime) -> bool:
        return now >= self.expires

    def renew(self) -> None:
        """Read the files again. Raises ConfigError, with the former certificate in place."""
        cert_file, key_file = self._files
        from cryptography import x509

        for field, name in ((_FIELD, cert_file), (_KEY_FIELD, key_file)):
            try:
                Path(name).read_bytes()
            except OSError as error:
                raise ConfigError(
                    field, f"{name}: {error.strerror}; name a PEM file that this user can read"
                ) from error
        try:
            _context().load_cert_chain(cert_file, key_file)  # a pair that does not fit must not be half in place
            expires = x509.load_pem_x509_certificates(Path(cert_file).read_bytes())[0].not_valid_after_utc
            self.context.load_cert_chain(cert_file, key_file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            told = f"{cert_file} with {key_file} cannot be used ({error}); both are PEM files, and belong together"
            raise ConfigError(_FIELD, told) from error
        self.expires = expires
        if self.expired(datetime.now(UTC)):
            _log.error("the certificate in %s has expired: clients refuse it. Renew it, then send SIGHUP", cert_file)


def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
