#!/bin/sh
# Emacs, lsp-mode: an answer that somebody waits for takes what came in one piece with it along, and nobody is told.
set -eu
# Debian 12's Lisp in Debian 12's Emacs, which runs from where it is installed alone: apt-get install emacs-nox=1:28.2+1-15+deb12u4
emacs --version 2> /dev/null | grep -q '^GNU Emacs 28\.2$' || { echo "needs Emacs 28.2, and there is: $(command -v emacs || echo none)"; exit 1; }
pinned="elpa-lsp-mode=8.0.0-5 elpa-dash=2.19.1+git20220608.1.0ac1ecf+dfsg-1 elpa-f=0.20.0-3 elpa-ht=2.3-2 elpa-s=1.12.0-5 elpa-spinner=1.7.4-2 elpa-markdown-mode=2.5-1 elpa-lv=0.15.0-3"
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q $pinned > apt 2>&1 || { cat apt; exit 1; }; for deb in *.deb; do dpkg -x "$deb" pinned; done)
paths="$(find "$folder"/pinned/usr/share/emacs/site-lisp/elpa-src -mindepth 1 -type d | sed 's/^/-L /')"
emacs() { command emacs --batch -Q $paths "$@"; }
said="$(emacs --eval '(progn (require (quote lsp-mode)) (princ (format "Emacs %s, lsp-mode 8.0.0" emacs-version)))' 2> /dev/null)"
echo "$said: a server writes an answer and a notification together; lsp-request returns the answer, and the notification's handler is never called;"
echo "most would expect both to be read, as they are where nobody waits, or where the two come in two pieces: one answer more in that piece leaves its request to time out."
cat > "$folder/server.py" <<'PY'
import json
import sys
import time

def framed(body):
    data = json.dumps({"jsonrpc": "2.0"} | body).encode()
    return b"Content-Length: %d\r\n\r\n" % len(data) + data

def write(*bodies):
    sys.stdout.buffer.write(b"".join(map(framed, bodies)))
    sys.stdout.buffer.flush()

while head := sys.stdin.buffer.readline():
    sys.stdin.buffer.readline()
    message = json.loads(sys.stdin.buffer.read(int(head.split(b":")[1])))
    answer = {"id": message.get("id"), "result": {"capabilities": {}} if message["method"] == "initialize" else "here"}
    note = {"method": "test/note", "params": {}}
    if message["method"] == "test/together":
        write(answer, note)
    elif message["method"] == "test/apart":
        write(answer)
        time.sleep(0.5)
        write(note)
    elif "id" in message:
        write(answer)
PY
cat > "$folder/drive.el" <<'EL'
(require 'lsp-mode)
(defvar notes 0)
(setq lsp-auto-guess-root t lsp-enable-file-watchers nil lsp-session-file (expand-file-name "session" (getenv "FOLDER")) lsp-warn-no-matched-clients nil)
(lsp-register-client
 (make-lsp-client :new-connection (lsp-stdio-connection (list "python3" (expand-file-name "server.py" (getenv "FOLDER"))))
                  :activation-fn (lambda (&rest _) t) :server-id 'it
                  :notification-handlers (lsp-ht ("test/note" (lambda (&rest _) (setq notes (1+ notes)))))))
(find-file (expand-file-name "work/a.txt" (getenv "FOLDER")))
(lsp)
(while (not (and (lsp-workspaces) (eq 'initialized (lsp--workspace-status (car (lsp-workspaces)))))) (accept-process-output nil 0.1))
(dolist (method '("test/apart" "test/together"))
  (setq notes 0)
  (let ((answer (lsp-request method nil)))
    (dotimes (_ 20) (accept-process-output nil 0.1))
    (princ (format "%s: answer %s, notes %d\n" (substring method 5) answer notes))))
EL
mkdir -p "$folder/work/.git"; echo "a" > "$folder/work/a.txt"
export FOLDER="$folder" HOME="$folder"
seen="$(emacs -l "$folder/drive.el" 2> "$folder/errors" < /dev/null || tail -n 5 "$folder/errors")"
echo "$seen"
case "$seen" in *"apart: answer here, notes 1"*"together: answer here, notes 0"*) ;; *) exit 1 ;; esac
