"""Folders that somebody made to run commands: every key of git's configuration that executes, and what else a folder can hold.

The keys are those of git-config's documentation (2.39's page and, for newer ones, the sources of the current one) whose text says
that a command, program, helper, hook or script is run. Each touches a file of its own in the folder of marks.
"""

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = "from lib import total\n\n\ndef pay(basket):\n    return total(basket)\n"
LIBRARY = "import json\n\n\ndef total(basket):\n    return sum(basket)\n"

COMMANDS = [
    "core.fsmonitor",
    "core.gitProxy",
    "core.sshCommand",
    "core.alternateRefsCommand",
    "core.askPass",
    "core.pager",
    "core.editor",
    "alias.log",
    "alias.rev-parse",
    "browser.evil.cmd",
    "browser.evil.path",
    "credential.helper",
    "credential.https://example.org.helper",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "difftool.evil.cmd",
    "difftool.evil.path",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "gpg.program",
    "gpg.openpgp.program",
    "gpg.x509.program",
    "gpg.ssh.program",
    "gpg.ssh.defaultKeyCommand",
    "guitool.evil.cmd",
    "hook.evil.command",
    "imap.tunnel",
    "instaweb.browser",
    "instaweb.httpd",
    "interactive.diffFilter",
    "man.evil.cmd",
    "man.evil.path",
    "merge.evil.driver",
    "mergetool.evil.cmd",
    "mergetool.evil.path",
    "pager.log",
    "pager.diff",
    "pager.ls-tree",
    "pager.rev-list",
    "pager.cat-file",
    "pager.diff-tree",
    "pager.rev-parse",
    "remote.origin.uploadpack",
    "remote.origin.receivepack",
    "sendemail.ccCmd",
    "sendemail.toCmd",
    "sendemail.headerCmd",
    "sendemail.sendmailCmd",
    "sendemail.smtpServer",
    "sequence.editor",
    "tar.evil.command",
    "trailer.evil.command",
    "trailer.evil.cmd",
    "uploadpack.packObjectsHook",
    "web.browser",
]
"""Keys whose value is a command."""

SETTINGS = [
    "core.repositoryFormatVersion=1",
    "extensions.partialClone=origin",
    "remote.origin.promisor=true",
    "remote.origin.partialCloneFilter=blob:none",
    "protocol.allow=always",
    "protocol.ext.allow=always",
    "hook.evil.event=pre-command",
    "hook.evil.event=post-checkout",
    "log.showSignature=true",
    "diff.tool=evil",
    "merge.tool=evil",
    "diff.guitool=evil",
    "help.browser=evil",
    "man.viewer=evil",
    "commit.gpgSign=true",
    "core.fsmonitorHookVersion=2",
    "ssh.variant=simple",
    "receive.procReceiveRefs=refs",
    "maintenance.auto=true",
    "gc.auto=1",
    "safe.directory=*",
    "fetch.recurseSubmodules=true",
    "submodule.recurse=true",
    "status.submoduleSummary=true",
]
"""What makes the commands run."""

MODULES = [
    "foretype_client",
    "foretype_context",
    "foretype_retrieval",
    "foretype_lsp",
    "foretype_backend",
    "foretype_eval",
    "foretype_models",
    "msgspec",
    "json",
    "typing",
    "subprocess",
    "numpy",
    "typer",
    "rich",
    "websockets",
    "pygls",
    "sitecustomize",
    "usercustomize",
    "encodings",
    "tree_sitter",
    "faiss",
]

SHAPES = ("plain", "worktree", "submodule", "alternate", "bare", "git_file")


def plain_git(folder: Path, *arguments: str, check=True, given=b"") -> str:
    """Git as everybody starts it."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    command = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    done = subprocess.run(command, capture_output=True, check=check, env=environment, input=given, timeout=300)
    return done.stdout.decode()


class Trap:
    """A folder that would run something, and the marks of what it ran."""

    def __init__(self, at: Path, shape: str):
        self.marks = at / "marks"
        self.marks.mkdir(parents=True)
        self.folder = at / "opened"
        self.git_dir = self.folder / ".git"
        self.folder.mkdir()
        self._commits()
        getattr(self, f"_{shape}")(at)
        self._modules()
        self._programs()
        self._hooks()
        self._configure()
        self.file = self.folder / "pay.py"

    def sprung(self) -> list[str]:
        return sorted(path.name for path in self.marks.iterdir())

    def spring(self) -> None:
        """What the product did before it had a door: this must leave marks, or the trap proves nothing."""
        plain_git(self.folder, "ls-tree", "-l", "HEAD", check=False)
        plain_git(self.folder, "log", "-n1", check=False)

    def command(self, name: str) -> str:
        return f"touch '{self.marks}/{name.replace('/', '_')}'"

    def _commits(self):
        plain_git(self.folder, "init", "-q", "-b", "main")
        (self.folder / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
        (self.folder / "pay.py").write_text(SOURCE.replace("pay", "old"))
        (self.folder / "lib.py").write_text(LIBRARY)
        (self.folder / "gone.py").write_text("def gone(): ...\n")
        (self.folder / ".gitmodules").write_text(
            f'[submodule "evil"]\npath = evil\nurl = ext::{self.command("gitmodules")}\nupdate = !{self.command("update")}\n'
        )
        plain_git(self.folder, "add", "-A")
        plain_git(self.folder, "commit", "-qm", "one")
        (self.folder / "pay.py").write_text(SOURCE)
        plain_git(self.folder, "commit", "-qam", "two")
        # The last commit carries a signature: `log.showSignature` has it looked at.
        raw = plain_git(self.folder, "cat-file", "commit", "HEAD")
        head, _, message = raw.partition("\n\n")
        signed = f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n wsBc\n -----END PGP SIGNATURE-----\n\n{message}"
        id = plain_git(self.folder, "hash-object", "-t", "commit", "-w", "--stdin", given=signed.encode()).strip()
        plain_git(self.folder, "update-ref", "refs/heads/main", id)
        self.missing = plain_git(self.folder, "rev-parse", "HEAD:gone.py").strip()
        (self.git_dir / "objects" / self.missing[:2] / self.missing[2:]).unlink()

    def _plain(self, at: Path):
        pass

    def _worktree(self, at: Path):
        main = at / "main"
        self.folder.rename(main)
        self.git_dir = main / ".git"
        plain_git(main, "checkout", "-q", "--detach")
        (main / "gone.py").unlink()
        plain_git(main, "worktree", "add", "-q", "--no-checkout", str(self.folder), "main")
        for name in ("pay.py", "lib.py", ".gitattributes", ".gitmodules"):
            shutil.copy(main / name, self.folder / name)
        assert (self.folder / ".git").is_file()

    def _submodule(self, at: Path):
        inner = self.folder
        outer = at / "outer"
        outer.mkdir()
        plain_git(outer, "init", "-q", "-b", "main")
        modules = outer / ".git" / "modules" / "opened"
        modules.parent.mkdir()
        self.git_dir.rename(modules)
        self.folder = outer / "opened"
        inner.rename(self.folder)
        (self.folder / ".git").write_text("gitdir: ../.git/modules/opened\n")
        self.git_dir = modules

    def _alternate(self, at: Path):
        other = at / "other" / "objects"
        other.parent.mkdir()
        (self.git_dir / "objects").rename(other)
        (self.git_dir / "objects" / "info").mkdir(parents=True)
        (self.git_dir / "objects" / "info" / "alternates").write_text(f"{other}\n")

    def _bare(self, at: Path):
        for path in list(self.git_dir.iterdir()):
            path.rename(self.folder / path.name)
        self.git_dir.rmdir()
        self.git_dir = self.folder
        (self.folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")

    def _git_file(self, at: Path):
        hidden = self.folder / "data" / "store"
        hidden.parent.mkdir()
        self.git_dir.rename(hidden)
        (self.folder / ".git").write_text("gitdir: data/store\n")
        self.git_dir = hidden

    def _modules(self):
        for name in MODULES:
            mark = f"import os; os.close(os.open({str(self.marks / ('module_' + name))!r}, os.O_CREAT))\n"
            (self.folder / f"{name}.py").write_text(mark)

    def _programs(self):
        self.programs = self.folder / ".venv" / "bin"
        self.programs.mkdir(parents=True)
        for name in ("git", "sh", "ssh", "gpg", "less"):
            for folder in (self.programs, self.folder):
                (folder / name).write_text(f"#!/bin/sh\n{self.command('program_' + name)}\n")
                (folder / name).chmod(0o755)

    def _hooks(self):
        hooks = self.git_dir / "hooks"
        hooks.mkdir(exist_ok=True)
        for name in (
            "post-checkout",
            "post-index-change",
            "reference-transaction",
            "pre-auto-gc",
            "fsmonitor-watchman",
        ):
            (hooks / name).write_text(f"#!/bin/sh\n{self.command('hook_' + name)}\n")
            (hooks / name).chmod(0o755)
        (self.git_dir / "info").mkdir(exist_ok=True)
        (self.git_dir / "info" / "attributes").write_text("* diff=evil filter=evil merge=evil\n")

    def _configure(self):
        included = self.git_dir / "included"
        config = str(self.git_dir / "config")
        for line in SETTINGS:
            plain_git(self.marks, "config", "--file", config, "--add", *line.split("=", 1))
        for key in COMMANDS:
            value = ("!" if key.startswith(("alias.", "credential.")) else "") + self.command(key)
            plain_git(self.marks, "config", "--file", config, key, value)
            plain_git(self.marks, "config", "--file", str(included), key, value + ".included")
        url = f"ext::{self.command('remote.origin.url').replace(chr(39), '')}"
        for key, value in (
            ("remote.origin.url", url),
            ("remote.origin.vcs", "ext"),
            ("url.ext::touch.insteadOf", "https://example.org"),
            ("core.hooksPath", str(self.git_dir / "hooks")),
            ("core.attributesFile", str(self.git_dir / "info" / "attributes")),
            ("submodule.evil.update", "!" + self.command("submodule.update")),
            ("submodule.evil.url", url),
            ("include.path", str(included)),
            ("includeIf.gitdir:**.path", str(included)),
        ):
            plain_git(self.marks, "config", "--file", config, key, value)
        # `vcs` outranks the protocol of the url; one trap of the two is enough, and the url's is the one that is known.
        plain_git(self.marks, "config", "--file", config, "--unset", "remote.origin.vcs")
