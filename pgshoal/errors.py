"""The two error roots: ConfigError for the operator, Refused for the client, with every client-visible text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["FATAL", "ERROR"]

#: How surrogateescape keeps a byte that is no UTF-8.
_BYTE: Final = re.compile("[\udc80-\udcff]")

PROTOCOL_VIOLATION = "08P01"
"""The SQLSTATE of nearly every refusal, as PgBouncer sends it."""


class ConfigError(Exception):
    """A configuration that cannot be used: where it stands, what it says, and what is allowed."""

    def __init__(self, file: str, line: int, key: str, value: str | None, reason: str) -> None:
        """Line 0 means the file as a whole; value None means no value, or one that must not be shown."""
        super().__init__(file, line, key, value, reason)
        self.file = file
        self.line = line
        self.key = key
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        """One line: ``file:line: key = value: what is allowed``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = self.key if self.value is None else f"{self.key} = {self.value}"
        text = ": ".join(part for part in (place, subject, self.reason) if part)
        return printable(text.replace("\n", " "))


def printable(text: str) -> str:
    """Text that any terminal or log can take: bytes that were not UTF-8, and control characters, are escaped."""
    shown = escape_bytes(text)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)


def escape_bytes(text: str) -> str:
    r"""Bytes that were not UTF-8 as \xff; what is left can be encoded."""
    if text.isascii():
        return text
    shown = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row of REFUSALS; `silent` rows are logged but never sent."""

    text: str
    setting: str = ""
    severity: Severity = "FATAL"
    sqlstate: str = PROTOCOL_VIOLATION
    silent: bool = False


class Refused(Exception):
    """A refusal as the client sees it; `setting` names the knob behind it, or is empty."""

    def __init__(self, key: str, text: str, sqlstate: str, severity: Severity, setting: str, silent: bool) -> None:
        super().__init__(key, text, sqlstate, severity, setting, silent)
        self.key = key
        self.text = text
        self.sqlstate = sqlstate
        self.severity = severity
        self.setting = setting
        self.silent = silent

    def __str__(self) -> str:
        """The text the client sees."""
        return self.text


def refuse(key: str, *, sqlstate: str | None = None, **facts: object) -> Refused:
    """Build the refusal `key`; an unknown key or a missing fact is a KeyError at once."""
    row = REFUSALS[key]
    # Facts may hold braces sent by a client: they are substituted, never read as a template.
    text = row.text.format_map(facts)
    return Refused(key, text, sqlstate or row.sqlstate, row.severity, row.setting, row.silent)


def _silent(text: str) -> Refusal:
    return Refusal(text, silent=True)


def _console(text: str, sqlstate: str = PROTOCOL_VIOLATION) -> Refusal:
    return Refusal(text, severity="ERROR", sqlstate=sqlstate)


_LOGIN: dict[str, Refusal] = {
    "no_such_database": Refusal("no such database: {db}"),
    "database_disabled": Refusal('database "{db}" is disabled'),
    "pooler_shutting_down": Refusal("pooler is shutting down"),
    "not_allowed": Refusal("not allowed", "admin_users"),
    "max_client_conn": Refusal("no more connections allowed (max_client_conn)", "max_client_conn"),
    "max_db_client_connections": Refusal(
        "client connections exceeded (max_db_client_connections)", "max_db_client_connections"
    ),
    "max_user_client_connections": Refusal(
        "client connections exceeded (max_user_client_connections)", "max_user_client_connections"
    ),
    "no_username": Refusal("no username supplied"),
    "username_too_long": Refusal("username too long"),
    "password_too_long": Refusal("password too long"),
    "unsupported_parameter": Refusal("unsupported startup parameter: {name}", "ignore_startup_parameters"),
    "unsupported_parameter_in_options": Refusal(
        "unsupported startup parameter in options: {name}", "ignore_startup_parameters"
    ),
    "unsupported_options": Refusal(
        "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"
    ),
    "bad_startup_layout": Refusal("invalid startup packet layout: expected terminator as last byte"),
    "old_protocol": Refusal("old V2 protocol not supported"),
    "bad_packet_header": Refusal("bad packet header: '{hex}'", "max_packet_size"),
    "ssl_required": Refusal("SSL required", "client_tls_sslmode"),
    "data_after_ssl_request": Refusal("received unencrypted data after SSL request"),
    "data_after_gss_request": Refusal("received unencrypted data after GSSAPI encryption request"),
    "resent_startup": Refusal("client re-sent startup pkt"),
    "password_before_startup": Refusal("client password pkt before startup packet"),
    "password_failed": Refusal("password authentication failed"),
    "empty_password": Refusal("empty password returned by client"),
    "sasl_failed": Refusal("SASL authentication failed"),
    "sasl_bad_mechanism": Refusal("client selected an invalid SASL authentication mechanism"),
    "trust_failed": Refusal('"trust" authentication failed'),
    "cert_failed": Refusal("certificate authentication failed"),
    "peer_failed": Refusal("unix socket login rejected"),
    "login_rejected": Refusal("login rejected", "auth_hba_file"),
    "no_auth_method": Refusal("no authentication method is found", "auth_hba_file"),
    "pam_failed": Refusal("PAM authentication failed"),
    "ldap_failed": Refusal("LDAP authentication failed"),
    "ldap_options_missing": Refusal("auth_ldap_options is null", "auth_ldap_options"),
    "ldap_unsupported": Refusal("ldap is not supported by this build"),
    "no_such_user": Refusal("no such user", "auth_query"),
    "bouncer_config_error": Refusal("bouncer config error"),
    "auth_database_disabled": Refusal('authentication database "{db}" is disabled', "auth_dbname"),
    "no_memory_auth_pool": Refusal("no memory for authentication pool"),
    "no_memory_pool": Refusal("no memory for pool"),
    "resources_exhausted": Refusal("bouncer resources exhaustion"),
    "out_of_memory": Refusal("out of memory"),
    "client_login_timeout": Refusal("client_login_timeout", "client_login_timeout"),
    "client_login_timeout_server": Refusal("client_login_timeout (server down)", "client_login_timeout"),
    "welcome_not_prepared": Refusal("failed to prepare welcome message"),
    "welcome_not_sent": Refusal("failed to send welcome message"),
    "pause_failed": Refusal("pause failed"),
    # The server's own words; pass its SQLSTATE too.
    "server_login_error": Refusal("{text}"),
    "server_wrong_password_type": Refusal("server login failed: wrong password type"),
    "server_invalid_signature": Refusal("server login failed: invalid server signature"),
    "server_signature_unverified": Refusal("server login failed: failed to verify server signature"),
    "server_sasl_unsupported": Refusal(
        "server login failed: none of the server's SASL authentication mechanisms are supported"
    ),
    "server_login_failing": Refusal(
        "server login has been failing, cached error: {reason} (server_login_retry)", "server_login_retry"
    ),
    "login_failed": Refusal("login failed"),
}

_LOGIN_SILENT: dict[str, Refusal] = {
    "bad_packet": _silent("bad packet"),
    "bad_cancel_request": _silent("bad cancel request"),
    "ssl_ack_failed": _silent("failed to ack SSL"),
    "ssl_nak_failed": _silent("failed to nak SSL"),
    "gss_nak_failed": _silent("failed to nak GSS enc"),
    "ssl_accept_failed": _silent("failed to accept SSL"),
    "second_ssl": _silent("SSL req inside SSL"),
    "auth_request_not_sent": _silent("failed to send auth req"),
    "negotiation_not_sent": _silent("unable to send protocol negotiation packet"),
    "client_close_request": _silent("client close request"),
    "client_unexpected_eof": _silent("client unexpected eof"),
    "unexpected_eof": _silent("unexpected eof"),
    "cancel_wait_timeout": Refusal("cancel_wait_timeout", "cancel_wait_timeout", silent=True),
}

_SESSION: dict[str, Refusal] = {
    "query_wait_timeout": Refusal("query_wait_timeout", "query_wait_timeout"),
    "query_timeout_queued": Refusal("query_timeout", "query_timeout"),
    "query_timeout": Refusal("query timeout", "query_timeout"),
    "idle_transaction_timeout": Refusal("idle transaction timeout", "idle_transaction_timeout"),
    "transaction_timeout": Refusal("transaction timeout", "transaction_timeout"),
    "client_idle_timeout": Refusal("client_idle_timeout", "client_idle_timeout"),
    "server_shutting_down": Refusal("server shutting down"),
    "statement_mode_transaction": Refusal("transaction blocks not allowed in statement pooling mode", "pool_mode"),
    "invalid_server_parameter": Refusal("invalid server parameter"),
    "database_configuration_changed": Refusal("database configuration changed", "server_fast_close"),
    "connect_string_changed": Refusal("connect string changed"),
    "admin_disconnect": Refusal("admin forced disconnect"),
    "database_removed": Refusal("database removed"),
    "server_crashed": Refusal("server conn crashed?"),
    "server_closed": Refusal("server connection closed"),
    "unknown_pkt": Refusal("unknown pkt"),
    "pqexec_disallowed": Refusal("PQexec disallowed", "disable_pqexec"),
    "prepared_duplicate": Refusal("prepared statement name is already in use", "max_prepared_statements"),
    "prepared_unknown": Refusal("prepared statement did not exist", "max_prepared_statements"),
    "broken_parse": Refusal("broken Parse packet"),
    "broken_bind": Refusal("broken Bind packet"),
    "broken_describe": Refusal("broken Describe packet"),
    "broken_close": Refusal("broken Close packet"),
    "failed_to_parse_packet": Refusal("failed to parse packet"),
    "replication_client_closed": Refusal("replication client was closed"),
    # Any reason for which a linked client's server was closed reaches the client as it is.
    "server_reason": Refusal("{reason}"),
}

_CONSOLE: dict[str, Refusal] = {
    "invalid_command": _console("invalid command '{query}', use SHOW HELP;"),
    "bad_arguments": _console("bad arguments"),
    "admin_access_needed": _console("admin access needed"),
    "set_failed": _console("SET failed"),
    "reload_failed": _console("RELOAD failed, see logs for additional details", "F0000"),
    "already_paused": _console("already paused"),
    "not_paused": _console("pooler is not paused"),
    "console_shutting_down": _console("pooler is shutting down"),
    "database_not_paused": _console("database {db} is not paused"),
    "console_no_such_database": _console("no such database: {db}"),
    "cannot_touch_admin_db": _console("cannot {action} admin db: {db}"),
    "database_required": _console("a database is required"),
    "invalid_client_pointer": _console("invalid client pointer supplied"),
    "client_not_found": _console("client not found"),
    # What PostgreSQL says of statements and portals, in its words, so that drivers know it.
    "console_parameters": _console("parameters are not supported by admin console", "0A000"),
    "console_bind_parameters": _console(
        'bind message supplies {count} parameters, but prepared statement "{name}" requires 0'
    ),
    "console_bind_formats": _console("bind message has {count} result formats but query has {columns} columns"),
    "console_format_code": _console("unsupported format code: {code}", "22023"),
    "console_no_statement": _console('prepared statement "{name}" does not exist', "26000"),
    "console_no_unnamed_statement": _console("unnamed prepared statement does not exist", "26000"),
    "console_statement_exists": _console('prepared statement "{name}" already exists', "42P05"),
    "console_no_portal": _console('portal "{name}" does not exist', "34000"),
    "console_portal_exists": _console('cursor "{name}" already exists', "42P03"),
    "console_portal_spent": _console('portal "{name}" cannot be run', "55000"),
    "console_too_many_statements": _console("too many prepared statements in admin console", "54000"),
    "console_too_many_portals": _console("too many portals in admin console", "54000"),
    "console_broken_message": _console("{text}"),
    "console_packet_type": _console("unsupported packet type for admin console: {byte}"),
    "console_bad_packet": Refusal("bad packet"),
    "console_incomplete_pkt": Refusal("incomplete pkt", "pkt_buf"),
    "console_incomplete_query": Refusal("incomplete query"),
    "console_interrupted": _console("{verb} was interrupted", "57014"),
    "console_no_memory": _console("no mem"),
    "internal_error": _console("internal error, see logs for additional details", "XX000"),
    "invalid_seconds": _console("invalid number of seconds"),
    "supervisor_silent": _console("the supervisor does not answer"),
    "supervisor_refused": _console("{command} failed: {text}"),
}

REFUSALS: Mapping[str, Refusal] = {**_LOGIN, **_LOGIN_SILENT, **_SESSION, **_CONSOLE}
"""Every text a client can be refused with: key -> text, setting, severity, SQLSTATE."""
