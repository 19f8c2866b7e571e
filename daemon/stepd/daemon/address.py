"""Where the daemon listens: a Unix socket that one daemon owns, and TCP that strangers cannot use."""

from __future__ import annotations

import fcntl
import os
import ssl
from pathlib import Path
from typing import IO

import grpc

from stepd.daemon.config import Settings
from stepd.daemon.errors import AddressInUseError, ConfigError

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class SocketOwner:
    """Holds a lock beside the socket for as long as the daemon lives; the kernel frees it whatever ends the
    process.
    """

    def __init__(self, socket: Path) -> None:
        """Take the socket's path, over a stale socket of a daemon that is gone. Raises AddressInUseError,
        ConfigError.
        """
        self.socket = socket
        if socket.exists() and not socket.is_socket():
            raise ConfigError(f"socket: {socket} is there and is no socket: move it away, or set STEPD_SOCKET or --socket")
        if len(os.fsencode(socket)) > 107:
            raise ConfigError(f"socket: {socket} is longer than the 107 bytes that Unix allows; set a shorter path")
        try:
            socket.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            self._lock: IO[str] = Path(f"{socket}.lock").open("a+")  # noqa: SIM115 (held until close)
        except OSError as error:
            raise ConfigError(f"socket: cannot use {socket}: {error.strerror}; set STEPD_SOCKET or --socket") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise AddressInUseError(f"another stepd (pid {owner}) serves {socket}: stop it, or choose another --socket") from error
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        socket.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the socket and let go of the lock."""
        self.socket.unlink(missing_ok=True)
        self._lock.close()


def tcp_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """TLS of the TCP port; None: plain. Raises ConfigError when the port would be open to strangers."""
    host = settings.listen.rpartition(":")[0]
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("tls_cert and tls_key are needed together")
    if settings.tls_cert and settings.tls_key:
        authority = _pem("tls_client_ca", settings.tls_client_ca) if settings.tls_client_ca else None
        if authority is None and not settings.token.get_secret_value() and host not in LOOPBACK:
            raise ConfigError(f"listen {settings.listen}: TLS alone lets anybody in; set tls_client_ca or token")
        pair = (_pem("tls_key", settings.tls_key), _pem("tls_cert", settings.tls_cert))
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password="")
        except ssl.SSLError as error:  # gRPC would say that it cannot bind
            raise ConfigError(
                f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} are no pair of PEM files: {error.reason or error}"
            ) from error
        return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
    if host not in LOOPBACK and not settings.token.get_secret_value():
        raise ConfigError(
            f"listen {settings.listen}: beyond loopback the port needs tls_cert, tls_key and tls_client_ca, or a token"
        )
    return None


def _pem(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {file}: {error.strerror}") from error
