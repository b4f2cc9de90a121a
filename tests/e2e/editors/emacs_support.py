"""Emacs with lsp-mode in a terminal, asked about its state over its own socket."""

import base64
import itertools
import json
import subprocess
import time
from pathlib import Path

from e2e.editors.terminal_support import DEADLINE_S, INSTALLED, ROOT, Terminal, environment, version_of

PACKAGES = INSTALLED / "emacs/root/usr/share/emacs/site-lisp/elpa-src"
CONFIG = """
;; M-x waits to say how it could have been called shorter; what is typed meanwhile was lost once.
(setq suggest-key-bindings nil extended-command-suggest-shorter nil)
(setq native-comp-deferred-compilation nil native-comp-jit-compilation nil) ; in a new home it would go on beside the test
(dolist (folder (directory-files "{packages}" t "^[^.]"))
  (add-to-list 'load-path folder)
  (dolist (file (directory-files folder t "-autoloads\\.el$")) (load file nil t)))
(add-to-list 'load-path "{root}/editors/emacs")
(setq lsp-auto-guess-root t lsp-enable-suggest-server-download nil lsp-enable-file-watchers nil lsp-warn-no-matched-clients nil
      lsp-keep-workspace-alive nil lsp-session-file "{folder}/session" lsp-disabled-clients '(pylsp pyls ruff semgrep-ls)
      make-backup-files nil auto-save-default nil create-lockfiles nil inhibit-startup-screen t
      server-socket-dir "{folder}/emacs" server-name "it")
(electric-indent-mode -1)
(setq-default indent-tabs-mode nil)
(server-start)
(require 'foretype)
(setq foretype-command '({command}))
(foretype-setup)
{more}
"""


def written(folder: Path, command, more=""):
    """The configuration as a file; its socket will be in `folder/emacs`."""
    init = folder / "init.el"
    words = " ".join(json.dumps(str(word)) for word in command)
    init.write_text(CONFIG.format(packages=PACKAGES, root=ROOT, folder=folder, command=words, more=more))
    return init


class Emacs(Terminal):
    """Emacs with one file open and the cursor at its end."""

    def __init__(self, folder: Path, source: str, command, *, config="", name="a.py", env=None):
        self._numbers = itertools.count()
        self._socket_file = folder / "emacs" / "it"
        self._socket_file.parent.mkdir(mode=0o700)
        self.work = folder / "work"
        (self.work / ".git").mkdir(parents=True)
        self.file = self.work / name
        self.file.write_text(source)
        init = written(folder, command, config)
        self._env = environment(folder, **(env or {}))
        program = ("emacs", "-nw", "-Q", "-l", init, self.file, "--eval", "(goto-char (point-max))")
        super().__init__(folder, *program, cwd=self.work, env=self._env)

    @staticmethod
    def missing():
        """Why it cannot be tried here, or None."""
        if version_of("emacs") < (28,):
            return "needs Emacs 28 or newer on the path: apt install emacs-nox"
        if not list(PACKAGES.glob("lsp-mode-*")):
            return "needs lsp-mode 10: editors/install-emacs.sh"
        return None

    def afresh(self, source: str):
        """Another file with this text, alone in the frame, the cursor at its end."""
        self.file = self.work / f"a{next(self._numbers)}.py"
        self.file.write_text(source)
        self.press("C-x", "C-f", "C-a", "C-k")
        self.type(f"{self.file}\n")
        self.until(lambda _: self.ask(f'(equal buffer-file-name "{self.file}")'))
        self.press("C-x", "1", "M->")
        self.until_ready()

    def to_start(self):
        self.ask("(progn (goto-char (point-min)) t)")

    def new_line(self):
        """Ready to type on an empty line at the end of the file, where the cursor was put."""

    def command(self, name):
        """One of the plugin's commands."""
        self.press("M-x")
        self.type(f"foretype-{name}\n")

    def type(self, text, pause_s=0.0):
        super().type(text.replace("\n", "\r"), pause_s)  # a line feed is another key

    def press(self, *keys):
        """A C-g that comes while Emacs runs something, as the end of the connection that asked it last, quits that and is no key."""
        if "C-g" in keys:
            time.sleep(0.3)
        super().press(*keys)

    def ask(self, lisp):
        """What a Lisp expression is in the buffer on screen, as JSON carries it."""
        shown = f"(with-current-buffer (window-buffer (selected-window)) {lisp})"
        code = f"(base64-encode-string (encode-coding-string (json-encode {shown}) 'utf-8) t)"
        end_s = time.monotonic() + 2 * DEADLINE_S  # while it starts it answers nobody
        while True:
            done = subprocess.run(
                ["emacsclient", "-s", self._socket_file, "-e", code],
                capture_output=True, text=True, env=self._env, timeout=2 * DEADLINE_S, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return json.loads(base64.b64decode(done.stdout.strip().strip('"')))
            if time.monotonic() > end_s:
                raise TimeoutError(f"emacs does not answer {lisp}: {done.stdout} {done.stderr}\n{self.screen()}")
            time.sleep(0.1)

    def buffer(self):
        return self.ask("(buffer-substring-no-properties (point-min) (point-max))")

    def until_ready(self):
        end_s = time.monotonic() + 2 * DEADLINE_S  # lsp-mode is run from its source
        while self.ask("(and (bound-and-true-p foretype-mode) (car foretype-status))") != "ready":
            if time.monotonic() > end_s:
                raise TimeoutError(f"the server never became ready\n{self.screen()}")
            time.sleep(0.1)

    def ghost(self):
        """The text that is drawn after the cursor; empty for none."""
        return self.ask(
            "(if (lsp-inline-completion--active-p)"
            ' (substring-no-properties (overlay-get lsp-inline-completion--overlay \'after-string)) "")'
        )

    def status(self):
        """What the server says about itself."""
        return self.ask(
            '(with-lsp-workspace (lsp-find-workspace \'foretype (buffer-file-name)) (lsp-request "foretype/status" nil))'
        )

    def complaints(self):
        """Lines of the messages that speak of something wrong, and warnings that popped up."""
        messages = self.ask("(with-current-buffer (messages-buffer) (buffer-string))")
        popped = self.ask('(if (get-buffer "*Warnings*") (with-current-buffer "*Warnings*" (buffer-string)) "")')
        words = ("error", "could not", "unknown", "warning", "timeout")
        lines = [*messages.splitlines(), *popped.splitlines()]
        return [line for line in lines if any(w in line.lower() for w in words) and "is deprecated" not in line]
