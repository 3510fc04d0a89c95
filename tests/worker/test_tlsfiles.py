"""TLS settings and files as contexts for new connections."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from pgshoal.config.load import load
from pgshoal.config.model import DatabaseConfig, Settings
from pgshoal.engine.choose import choose
from pgshoal.engine.contract import Engine
from pgshoal.errors import ConfigError
from pgshoal.worker.tlsfiles import TlsFiles, client_settings, server_settings
from tests.support.certs import Authority
from tests.worker.stub import StubEngine


def files(directory: Path) -> dict[str, str]:
    """Three files whose content is their name."""
    found = {}
    for name in ("ca", "cert", "key"):
        path = directory / name
        path.write_text(name)
        found[name] = str(path)
    return found


def client_side(directory: Path, mode: str, ca: bool = False, **more: Any) -> Settings:
    """The client-side settings of a mode."""
    f = files(directory)
    return Settings(
        client_tls_sslmode=cast(Any, mode),
        client_tls_cert_file=f["cert"],
        client_tls_key_file=f["key"],
        client_tls_ca_file=f["ca"] if ca else "",
        **more,
    )


@pytest.mark.parametrize(
    ("written", "asked"),
    [("auto", ""), ("none", ""), ("P-256", "prime256v1"), ("secp384r1", "secp384r1"), ("x25519", "X25519")],
)
def test_curves_have_several_names(tmp_path: Path, written: str, asked: str) -> None:
    """The engine is asked for a curve by OpenSSL's name, or for none."""
    assert client_settings(client_side(tmp_path, "allow", client_tls_ecdhcurve=written)).curve == asked


def make() -> TlsFiles:
    """TLS files on a stub engine, which gives the settings back as the context."""
    return TlsFiles(cast(Engine, StubEngine()))


@pytest.mark.parametrize(
    ("mode", "offered", "required", "certificate"),
    [
        ("disable", False, False, False),
        ("allow", True, False, False),
        ("prefer", True, False, False),
        ("require", True, True, False),
        ("verify-ca", True, True, True),
        ("verify-full", True, True, True),
    ],
)
def test_the_six_client_modes(tmp_path: Path, mode: str, offered: bool, required: bool, certificate: bool) -> None:
    """Whether TLS is offered, whether it must be used, whether the client must show a certificate."""
    tls = make()
    settings = client_side(tmp_path, mode, ca=True)
    tls.apply(settings)
    assert (tls.client is not None) is offered
    assert tls.client_required is required
    assert client_settings(settings).require_certificate is certificate


def test_a_ca_file_verifies_what_clients_show_in_every_mode(tmp_path: Path) -> None:
    """Below verify-ca a certificate is not needed, but one that is shown must be good."""
    for mode in ("allow", "prefer", "require", "verify-ca", "verify-full"):
        found = client_settings(client_side(tmp_path, mode, ca=True))
        assert (found.request_certificate, found.verify_chain) == (True, True)
    assert not client_settings(client_side(tmp_path, "require")).request_certificate


@pytest.mark.parametrize(
    ("mode", "chain", "name"),
    [
        ("allow", False, False),
        ("prefer", False, False),
        ("require", False, False),
        ("verify-ca", True, False),
        ("verify-full", True, True),
    ],
)
def test_the_server_modes_that_verify(mode: str, chain: bool, name: bool) -> None:
    """verify-ca checks the chain, verify-full also the name."""
    found = server_settings(Settings(server_tls_sslmode=cast(Any, mode)))
    assert (found.verify_chain, found.verify_name) == (chain, name)


def test_protocols_are_spelled_as_the_engine_wants_them() -> None:
    """tlsv1.0 to tlsv1.3."""
    settings = Settings(server_tls_protocols=("tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"))
    assert server_settings(settings).versions == ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")


def test_missing_settings_are_named() -> None:
    """Key and certificate are needed for any mode, the CA for those that verify."""
    tls = make()
    with pytest.raises(ValueError, match="client_tls_key_file and client_tls_cert_file must be set"):
        tls.apply(Settings(client_tls_sslmode="allow"))
    settings = Settings(client_tls_sslmode="verify-ca", client_tls_key_file="k", client_tls_cert_file="c")
    with pytest.raises(ValueError, match="client_tls_sslmode requires client_tls_ca_file"):
        tls.apply(settings)


def test_a_file_that_cannot_be_read_leaves_the_old_material(tmp_path: Path) -> None:
    """The error names setting and file; connections go on as before."""
    tls = make()
    tls.apply(client_side(tmp_path, "require"))
    old = tls.client
    broken = client_side(tmp_path, "allow")
    os.unlink(tmp_path / "key")
    with pytest.raises(ValueError, match=r"client_tls_key_file: .*key: No such file"):
        tls.apply(broken)
    assert tls.client is old
    assert tls.client_required


@pytest.mark.parametrize(("side", "verb"), [("client", "server_context"), ("server", "client_context")])
def test_material_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, verb: str
) -> None:
    """Whatever the engine finds wrong, the settings and files it was given stand beside it."""

    def fail(engine: StubEngine, found: object) -> None:
        raise ValueError("no certificate in it")

    monkeypatch.setattr(StubEngine, verb, fail)
    f = files(tmp_path)
    given = {f"{side}_tls_cert_file": f["cert"], f"{side}_tls_key_file": f["key"], f"{side}_tls_sslmode": "require"}
    with pytest.raises(ValueError, match=rf"{side}_tls_cert_file = {f['cert']}, .*_tls_key_file = .*: no certificate"):
        make().apply(Settings(**cast(Any, given)))


def test_applying_again_reads_the_files_again(tmp_path: Path) -> None:
    """A renewed certificate is used after a reload."""
    tls = make()
    settings = client_side(tmp_path, "require")
    tls.apply(settings)
    (tmp_path / "cert").write_text("renewed")
    tls.apply(settings)
    assert cast(Any, tls.client)[1].certificate_pem == b"renewed"


def test_server_side_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    """Without a reload: the next connection to a server uses what is there; unchanged files are not read."""
    f = files(tmp_path)
    tls = make()
    tls.apply(Settings(server_tls_ca_file=f["ca"]))
    first = tls.server_side()
    assert tls.server_side() is first
    (tmp_path / "new").write_text("other")
    os.replace(tmp_path / "new", f["ca"])
    assert cast(Any, tls.server_side())[1].ca_pem == b"other"


def test_entries_with_settings_of_their_own(tmp_path: Path) -> None:
    """Each entry has its context; equal ones share one, and a changed file is read again for all."""
    f = files(tmp_path)
    own = {"server_tls_sslmode": "verify-full", "server_tls_ca_file": f["ca"]}
    first, second = (DatabaseConfig(name, **cast(Any, own)) for name in ("first", "second"))
    other = DatabaseConfig("other", server_tls_sslmode="require", server_tls_cert_file=f["cert"])
    tls = make()
    tls.apply(Settings(server_tls_sslmode="disable"), (first, second, other, DatabaseConfig("plain")))
    assert tls.server_side(first) is tls.server_side(second)
    found, differs = (cast(Any, tls.server_side(entry))[1] for entry in (first, other))
    assert (found.ca_pem, found.verify_name, found.certificate_pem) == (b"ca", True, b"")
    assert (differs.ca_pem, differs.verify_name, differs.certificate_pem) == (b"", False, b"cert")
    (tmp_path / "ca").write_text("another one")
    assert cast(Any, tls.server_side(second))[1].ca_pem == b"another one"


def test_an_entry_with_files_that_cannot_be_read(tmp_path: Path) -> None:
    """The error names the entry, and nothing changes; what is off is not read."""
    tls = make()
    entry = DatabaseConfig("app", server_tls_ca_file=str(tmp_path / "nothing"))
    tls.apply(Settings(server_tls_sslmode="disable"), (entry,))
    with pytest.raises(ValueError, match=r"^app: server_tls_ca_file: .*nothing: No such file"):
        tls.apply(Settings(), (entry,))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Certificates that can be used."""
    return Authority(tmp_path_factory.mktemp("ca"))


BLAMED = [
    ("tls13_ciphers", "TLS_FOO"), ("tls_ciphers", "FOO:!BAR"), ("tls_ecdhcurve", "P-999"), ("tls_cert_file", "{ca}"),
    ("tls_key_file", "{other}"), ("tls_ca_file", "{key}"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "value"), BLAMED)
@pytest.mark.parametrize("runs", ["auto", "python"])
def test_the_setting_to_blame_is_named(tmp_path: Path, authority: Authority, what: str, value: str, runs: str) -> None:
    """With file and line, on every engine, and no other one: certificate and key are one matter."""
    good, other = authority.server, authority.issue("other", "other.test")
    value = value.format(ca=authority.ca_file, key=good.key, other=other.key)
    given = {
        "tls_sslmode": "require",
        "tls_cert_file": good.cert,
        "tls_key_file": good.key,
        "tls_ca_file": authority.ca_file,
    }
    lines = [f"client_{name} = {text}" for name, text in {**given, what: value}.items()]
    file = tmp_path / "p.ini"
    file.write_text("\n".join(["[pgbouncer]", *lines]))
    config = load(str(file))
    blamed = "client_" + ("tls_cert_file" if what == "tls_key_file" else what)
    made = choose(runs, lambda line: None)
    try:
        with pytest.raises(ConfigError) as failed:
            TlsFiles(made).read(config)
    finally:
        made.shutdown()
    assert failed.value.key == blamed
    assert failed.value.line == config.origins["pgbouncer", blamed].line
    assert value in str(failed.value)


def test_the_place_of_an_entry(tmp_path: Path) -> None:
    """What the entry says itself is to be found there, what it has from all others where that is written."""
    file = tmp_path / "p.ini"
    for more in ("server_tls_ca_file=/nowhere", ""):
        file.write_text(
            f"[databases]\napp = server_tls_sslmode=require {more}\n"
            "[pgbouncer]\nserver_tls_sslmode = disable\nserver_tls_ca_file = /nowhere\n"
        )
        line = 2 if more else 5
        with pytest.raises(ConfigError) as failed:
            make().read(load(str(file)))
        assert str(failed.value).startswith(f"{file}:{line}: app: server_tls_ca_file = /nowhere: No such file")
