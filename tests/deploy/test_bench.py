"""What deploy/bench lays out is valid as far as programs here can tell, and keeps what its README promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pytest

from pgshoal.config.load import load

BENCH = Path(__file__).resolve().parents[2] / "deploy" / "bench"
TERRAFORM = BENCH / "cloud" / "terraform"
ANSIBLE = BENCH / "cloud" / "ansible"
COMPOSES = (("docker", "compose"), ("docker-compose",))
#: Where Terraform itself looks for providers that somebody has put there, and where images of machines put them.
MIRRORS = (Path.home() / ".terraform.d/plugins", Path("/usr/local/share/terraform/plugins"), *Path("/opt").glob("*"))
PROVIDER = "registry.terraform.io/hashicorp/aws"
INVENTORY = "".join(f"[{name}]\n{name}-1 address=10.0.0.{n}\n" for n, name in enumerate(("load", "pooler", "database")))


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that must end well; what it said is the failure's text."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done


def program(name: str) -> str:
    """A program beside this interpreter or in PATH; without it the test is skipped."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def compose() -> Sequence[str]:
    """A Compose that answers."""
    for command in COMPOSES:
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    pytest.skip("neither docker compose nor docker-compose is installed")


def services() -> Mapping[str, str]:
    """The text of each service of compose.yaml."""
    whole = re.search(r"^services:\n((?: .*\n|\n)+)", (BENCH / "compose.yaml").read_text(), re.MULTILINE)
    assert whole
    parts = re.split(r"^  (\w+):\n", whole[1], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_compose_accepts_its_file(tmp_path: Path) -> None:
    """By its schema; without a password it refuses."""
    command = [*compose(), "--file", str(BENCH / "compose.yaml"), "config"]
    shown = run(command, tmp_path, POSTGRES_PASSWORD="x").stdout
    assert all(name in shown for name in services())
    without = {name: value for name, value in os.environ.items() if name != "POSTGRES_PASSWORD"}
    assert "see README.md" in subprocess.run(command, cwd=tmp_path, env=without, capture_output=True, text=True).stderr


def test_services_are_shut_in_and_looked_after() -> None:
    """Ports on the loopback alone, a health check, nothing to write to, the server's image by its digest."""
    found = services()
    assert set(found) == {"postgres", "pgshoal", "pgbouncer"}
    for name, text in found.items():
        ports = re.findall(r'ports: \["(.*?)"\]', text)
        assert len(ports) == 1, name
        assert ports[0].startswith("127.0.0.1:"), name
        assert "healthcheck:" in text, name
        assert re.search(r"<<: \*(hardened|pooler)", text), name
    assert re.search(r"image: postgres:16\.\d+-\w+@sha256:[0-9a-f]{64}\n", found["postgres"])
    text = (BENCH / "compose.yaml").read_text()
    assert all(words in text for words in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"))


def test_images_are_made_of_files_that_exist() -> None:
    """What the Dockerfile copies from the tree is there and not left out of the context, and nobody runs as root."""
    text = (BENCH / "Dockerfile").read_text()
    allowed = [line[1:] for line in (BENCH / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"]
    lines = re.findall(r"^COPY (?!--from)(?:--chmod=\S+ )?(.*)$", text, re.MULTILINE)
    for source in (word for line in lines for word in line.split()[:-1]):
        assert (BENCH.parents[1] / source).exists(), source
        assert any(source == one or source.startswith(f"{one}/") for one in allowed), source
    assert len(lines) == 5
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[2:]
    assert all("\nUSER pooler\n" in stage for stage in stages)


def complete(text: str, folder: Path) -> Path:
    """A configuration with its user list in a folder of the test's."""
    (folder / "userlist.txt").write_text('"postgres" "x"\n')
    file = folder / "pooler.ini"
    file.write_text(re.sub(r"^auth_file = .*$", f"auth_file = {folder}/userlist.txt", text, flags=re.MULTILINE))
    return file


@pytest.mark.parametrize("kind", ["pgshoal", "pgbouncer"])
def test_poolers_of_the_containers_can_read_their_settings(kind: str, tmp_path: Path) -> None:
    """Both listen where the healthcheck looks, with the budget of the experiment."""
    settings = load(str(complete((BENCH / "poolers" / f"{kind}.ini").read_text(), tmp_path))).settings
    assert (settings.listen_port, settings.default_pool_size, settings.pool_mode) == (6432, 128, "transaction")


@pytest.mark.parametrize(("kind", "count", "size"), [("pgshoal", 4, 128), ("pgbouncer", 4, 32), ("pgbouncer", 1, 128)])
def test_the_budget_of_the_cloud_is_divided(kind: str, count: int, size: int, tmp_path: Path) -> None:
    """PgBouncers get a part each and know each other; pgshoal's workers share the whole."""
    template = jinja2.Template((ANSIBLE / "templates" / "pooler.ini.j2").read_text(), undefined=jinja2.StrictUndefined)
    facts = {"address": "10.0.0.1", "database_address": "10.0.0.2", "pooler_port": 6432, "budget": 128}
    text = template.render(kind=kind, count=str(count), number=1, **facts)
    loaded = load(str(complete(text, tmp_path)))
    assert loaded.settings.default_pool_size == size
    assert len(loaded.peers) == (count if kind == "pgbouncer" else 0)


def test_terraform_is_formatted() -> None:
    """As its own formatter does."""
    run([program("terraform"), "fmt", "-check", "-diff", "-recursive"], TERRAFORM, CHECKPOINT_DISABLE="1")


def test_terraform_is_valid(tmp_path: Path) -> None:
    """Against the schema of the provider, where it is at hand; nothing is fetched."""
    terraform = program("terraform")
    mirror = next((one for one in MIRRORS if (one / PROVIDER).is_dir()), None)
    if mirror is None:
        pytest.skip("no mirror with the AWS provider")
    folder = shutil.copytree(TERRAFORM, tmp_path / "bench", ignore=shutil.ignore_patterns(".terraform*"))
    (tmp_path / "rc").write_text("")
    quiet = {"CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": str(tmp_path / "rc"), "TF_IN_AUTOMATION": "1"}
    run([terraform, "init", "-backend=false", "-input=false", f"-plugin-dir={mirror}"], folder, **quiet)
    assert "Success!" in run([terraform, "validate", "-no-color"], folder, **quiet).stdout


def test_the_hosts_are_closed_but_for_ssh() -> None:
    """The only way in from an address is SSH from the one network; all other is among the hosts."""
    text = (TERRAFORM / "main.tf").read_text()
    rules = re.findall(r'"aws_vpc_security_group_ingress_rule" "(\w+)" \{\n(.*?)\n\}', text, re.DOTALL)
    from_outside = {name: body for name, body in rules if "cidr" in body}
    assert set(from_outside) == {"ssh"}
    assert re.search(r"cidr_ipv4\s+= var\.ssh_cidr\n", from_outside["ssh"])
    assert re.findall(r"_port\s+= (\d+)", from_outside["ssh"]) == ["22", "22"]
    assert "ingress {" not in text
    assert re.search(r"strategy\s+= \"cluster\"", text)


@pytest.mark.parametrize("playbook", ["site.yml", "run.yml"])
def test_playbooks_have_no_mistake_of_syntax(playbook: str, tmp_path: Path) -> None:
    """And use nothing beyond ansible-core; nothing is connected to."""
    (tmp_path / "inventory.ini").write_text(INVENTORY)
    inventory = str(tmp_path / "inventory.ini")
    command = [program("ansible-playbook"), "--inventory", inventory, "--syntax-check", playbook]
    shown = run(command, ANSIBLE, ANSIBLE_HOME=str(tmp_path), ANSIBLE_LOCAL_TEMP=str(tmp_path), LC_ALL="C.UTF-8").stdout
    assert f"playbook: {playbook}" in shown
    modules = re.findall(r"^ +([a-z_]+\.[a-z_]+\.[a-z_]+):", (ANSIBLE / playbook).read_text(), re.MULTILINE)
    assert modules
    assert all(module.startswith("ansible.builtin.") for module in modules)
