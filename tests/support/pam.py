"""A PAM stack of our own: a service file in a folder of its own, and a program that judges passwords."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

#: user -> password
PASSWORDS = {"alice": "alice-pam", "plain_user": "plain-secret", "carol": "carol-pam", "late": "late-pam"}
SCRIPT = """#!/bin/sh
# pam_exec: the password stands on standard input, who it is in the environment
if [ "$PAM_TYPE" = account ]; then [ "$PAM_USER" != late ]; exit; fi
read -r password
echo "$PAM_USER $PAM_RHOST" >> {folder}/asked
while [ -e {folder}/hang ]; do sleep 0.1; done
case "$PAM_USER $password" in
{cases}
esac
exit 1
"""


class PamStack:
    """`with PamStack() as stack:`; the pooler finds it by the variable PGSHOAL_PAM_DIR."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-pam-"))
        self.folder.chmod(0o755)

    def __enter__(self) -> Self:
        cases = "\n".join(f'"{user} {password}") exit 0;;' for user, password in PASSWORDS.items())
        script = self.folder / "judge"
        script.write_text(SCRIPT.format(folder=self.folder, cases=cases))
        script.chmod(0o755)
        (self.folder / "asked").touch()
        (self.folder / "asked").chmod(0o666)
        (self.folder / "pgbouncer").write_text(
            f"auth required pam_exec.so quiet expose_authtok {script}\naccount required pam_exec.so quiet {script}\n"
        )
        return self

    def asked(self) -> list[str]:
        """The users it was asked about, each with the client's address."""
        return (self.folder / "asked").read_text().splitlines()

    def hang(self, on: bool) -> None:
        """While on, no question is answered."""
        if on:
            (self.folder / "hang").touch()
        else:
            (self.folder / "hang").unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
