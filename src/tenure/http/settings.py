"""Settings of a server: from flags, the environment and a file, in this order of precedence.

A setting has one name. As a flag it is ``--set name=value`` (the common ones have flags of their own), in the
environment ``TENURE_NAME``, in a TOML file ``name = value``; those of a group are ``limits.name``,
``TENURE_LIMITS_NAME`` and a table ``[limits]``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from tenure.address import parse_address
from tenure.chain.settings import ChainSettings
from tenure.contract.names import describe_value
from tenure.endpoint import KEY_VARIABLE, URL_VARIABLE
from tenure.errors import Invalid
from tenure.export.settings import ExportSettings
from tenure.extras import needs_extra
from tenure.http.api.hosts import host_of, is_loopback
from tenure.http.wire.limits import WireLimits
from tenure.settings import Settings

__all__ = ["ServerSettings", "check_start", "load_settings", "setting_names"]

GROUPS: dict[str, type[msgspec.Struct]] = {
    "limits": WireLimits,
    "engine": Settings,
    "export": ExportSettings,
    "chain": ChainSettings,
}
_PREFIX = "TENURE_"
# What the server reads by itself, and what clients, commands and workers read.
_NOT_SETTINGS = {"TENURE_API_KEYS", "TENURE_DEBUG", "TENURE_SETTINGS", URL_VARIABLE, KEY_VARIABLE, "TENURE_NODE"}


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server. Limits that say so are turned off by 0."""

    data: str = "tenure-data"
    """The data directory."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 4000
    """0 picks a free one."""
    keys_file: str = ""
    """Keys, one a line, read again on SIGHUP."""
    insecure_no_auth: bool = False
    """Listen beyond loopback without keys."""
    host_names: tuple[str, ...] = ()
    """Further names that Host and Origin may have."""
    tls_cert: str = ""
    tls_key: str = ""
    """Certificate chain and key, as PEM files; both or neither."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """At debug every request is a line."""
    test_clock: bool = False
    """Serve POST /v0/_test/advance; loopback only."""
    heartbeat_ms: int = 15_000
    """An event stream that has nothing to send says so this often."""
    drain_ms: int = 10_000
    """How long a stop waits for requests in flight."""
    memory_spare_bytes_max: int = 33_554_432
    memory_look_ms: int = 5_000
    """Memory that is kept though nothing needs it, and how often it is looked for; 0 bytes: it is never given back."""
    metrics_topics_max: int = 1_000
    """Topics with numbers of their own in /v0/metrics."""
    requests_per_key_max: int = 1_000
    """Requests in flight, per key; 0: no limit."""
    streams_per_key_max: int = 1_000
    """SSE connections, per key; 0: no limit."""
    streams_max: int = 10_000
    """SSE connections; 0: no limit."""
    watch_sessions_max: int = 10_000
    """Watch sessions; 0: no limit."""
    key_share_percent: int = 25
    """What one of several keys may hold of all topics, routers, idempotency keys, watch sessions and bytes that wait
    for a sync; 0: no limit.
    """
    watch_ttl_ms: int = 300_000
    """A watch session that nobody reads is forgotten after this."""
    events: str = ""
    """The buffer that lifecycle events are exported to, as a URL; none if empty."""
    home: str = ""
    """The store in which the log lives, as a URL; the data directory is then a cache of it. None if empty."""
    advertise: str = ""
    """The URL under which others reach this server. With it, servers share a home; without it, one leads it alone."""
    limits: WireLimits = WireLimits()
    engine: Settings = Settings()
    export: ExportSettings = ExportSettings()
    chain: ChainSettings = ChainSettings()

    def share_of(self, limit: int) -> int:
        """Return how much of a limit one of several keys may use up; 0 for all of it."""
        return max(1, limit * self.key_share_percent // 100) if limit and self.key_share_percent else 0


def setting_names() -> Iterator[tuple[str, Any]]:
    """Return every setting by its full name, with its default."""
    for field in msgspec.structs.fields(ServerSettings):
        if field.name not in GROUPS:
            yield field.name, field.default
    for group, kind in GROUPS.items():
        for field in msgspec.structs.fields(kind):
            yield f"{group}.{field.name}", field.default


def load_settings(
    flags: Mapping[str, Any], *, environment: Mapping[str, str], file: Path | None = None
) -> tuple[ServerSettings, list[str]]:
    """Return the settings of a server, and the TENURE_ variables that are none. Raises Invalid, which names the source.

    ``flags`` are full names with values, as text or already of their type.
    """
    known = {name: None for name, _ in setting_names()}
    by_variable = {_PREFIX + name.upper().replace(".", "_"): name for name in known}
    strangers = sorted(name for name in environment if name.startswith(_PREFIX) and name not in by_variable)
    sources: list[tuple[str, Mapping[str, Any]]] = [
        (f"the file {file}", _read_file(file) if file is not None else {}),
        ("the environment", {by_variable[name]: value for name, value in environment.items() if name in by_variable}),
        ("the command line", flags),
    ]
    values: dict[str, Any] = {}
    for where, source in sources:
        for name, value in source.items():
            if name not in known:
                raise Invalid(
                    f"{where} sets {describe_value(name)}, which is no setting: see the table of server settings"
                )
            values[name] = _convert(name, value, where)
    nested: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for group, kind in GROUPS.items():
        own = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{group}.")}
        nested[group] = kind(**own)
    return ServerSettings(**nested), [name for name in strangers if name not in _NOT_SETTINGS]


def _read_file(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file by their full names. Raises Invalid."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise Invalid(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the settings file {path} is not TOML: {error}") from error
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name in GROUPS and isinstance(value, dict):
            flat |= {f"{name}.{inner}": found for inner, found in value.items()}
        else:
            flat[name] = value
    return flat


def _convert(name: str, value: Any, where: str) -> Any:
    group, _, inner = name.rpartition(".")
    kind = GROUPS[group] if group else ServerSettings
    wanted = next(field.type for field in msgspec.structs.fields(kind) if field.name == inner)
    if isinstance(value, str) and wanted == tuple[str, ...]:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if wanted is bool and isinstance(value, str):
        value = {"yes": "true", "on": "true", "no": "false", "off": "false", "": "false"}.get(value.lower(), value)
    try:
        converted = msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"{where} sets {name} to what it cannot be: {error}") from None
    least = 1 if group in ("limits", "export") else 0
    if isinstance(converted, int) and not isinstance(converted, bool) and not least <= converted < 2**63:
        raise Invalid(f"{where} sets {name} to what it cannot be: a number from {least} on")
    return converted


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``name=value`` texts into a mapping. Raises Invalid."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Invalid(f"--set wants name=value; got {describe_value(text)}")
        found[name.strip()] = value.strip()
    return found


def check_start(settings: ServerSettings, *, has_keys: bool) -> None:
    """Raise Invalid where the server would be unsafe or cannot work; the message says what to change."""
    loopback = is_loopback(settings.host)
    if not loopback and not has_keys and not settings.insecure_no_auth:
        raise Invalid(
            f"{settings.host} is reachable from elsewhere and there are no keys: set TENURE_API_KEYS or --keys-file, "
            "listen on 127.0.0.1, or say --insecure-no-auth"
        )
    if settings.test_clock and not loopback:
        raise Invalid("--test-clock lets callers move time: it is for loopback addresses only")
    if settings.port > 65_535:
        raise Invalid("port must lie in 0..65535")
    if settings.heartbeat_ms < 100:
        raise Invalid("heartbeat_ms must be at least 100")
    if settings.memory_look_ms < 100:
        raise Invalid("memory_look_ms must be at least 100")
    if settings.key_share_percent > 100:
        raise Invalid("key_share_percent must lie in 0..100")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise Invalid("TLS needs a certificate and its key: give --tls-cert and --tls-key")
    if settings.events:
        _check_events(settings.events)
    if settings.advertise:
        _check_advertise(settings)
    for name in settings.host_names:
        if host_of(name) != name.lower():
            raise Invalid(f"{describe_value(name)} is no host name: write it without scheme and port")


def _check_advertise(settings: ServerSettings) -> None:
    """Raise Invalid unless others can reach this server there, and share its home."""
    if not settings.home:
        raise Invalid("--advertise is for servers that share a home: give --home too", field="advertise")
    try:
        parse_address(settings.advertise)
    except Invalid as error:
        raise Invalid(f"--advertise: {error.message}", field="advertise") from None
    if settings.advertise.endswith("/"):
        raise Invalid(f"--advertise: write {settings.advertise!r} without the slash at its end", field="advertise")


def _check_events(url: str) -> None:
    """Raise Invalid unless another process can open this buffer."""
    if find_spec("pyarrow") is None or find_spec("obstore") is None:
        raise needs_extra("--events needs the buffer", "buffer")
    from tenure.objects.store import open_store

    open_store(url)
    if url.startswith("memory:"):
        raise Invalid("--events needs a store that another process can reach: file://, s3://, gs:// or az://")
