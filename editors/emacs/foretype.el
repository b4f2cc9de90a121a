;;; foretype.el --- Inline completion through `foretype lsp'  -*- lexical-binding: t; -*-

;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1") (lsp-mode "10.0.0"))
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; lsp-mode 10 draws inline completions.  This file registers the language server beside whatever other server a buffer
;; has, and replaces what does not suit suggestions that follow the typing: lsp-mode asks two and a half seconds after the
;; last key, waits for the answer in a loop, and takes the suggestion off the screen at every key.  Here a suggestion is
;; asked for `foretype-delay' seconds after a change without waiting, a change cancels the request, and typing what is
;; offered shrinks it in place.
;;
;;   (add-to-list 'load-path "/path/to/foretype/editors/emacs")
;;   (require 'foretype)
;;   (foretype-setup)

;;; Code:

(require 'lsp-mode)
(require 'lsp-inline-completion)
(require 'subr-x)

(defgroup foretype nil "Inline completion by Foretype." :group 'lsp-mode)

(defcustom foretype-command '("foretype" "lsp")
  "Program and arguments of the language server."
  :type '(repeat string))

(defcustom foretype-modes
  '(python-mode js-mode typescript-mode go-mode rust-mode java-mode c-mode c++-mode csharp-mode ruby-mode php-mode sh-mode lua-mode)
  "Major modes with suggestions."
  :type '(repeat symbol))

(defcustom foretype-options nil
  "Initialization options of the server, a property list: `:gatewayUrl', `:multiLine', `:excludedGlobs' and so on.
`:nextEdit' takes (:enabled t :eagerness \"low\"), or :json-false for none."
  :type 'plist)

(defcustom foretype-delay 0.03
  "Seconds after a change before a suggestion is asked for.
The server waits by itself; this keeps a burst of keys from becoming a burst of messages."
  :type 'number)

;; Nothing that a project says of its own accord (`.dir-locals.el') chooses a program, or where text goes to; whatever the user
;; answers there, the default values count.
(put 'foretype-command 'risky-local-variable t)
(put 'foretype-options 'risky-local-variable t)

(defconst foretype--rest-delay 0.1
  "Seconds after the cursor was moved without a change before the server is told where it rests.")

(defvar foretype-status nil "What the server said last about itself: a state, its model, a detail and an advice.")

(cl-defstruct (foretype--offer (:constructor foretype--offer-make))
  "A suggestion; TEXT goes between the markers START and END, which move with what is typed."
  text start end command)

(defvar-local foretype--offer nil "The suggestion that is shown.")
(defvar-local foretype--timer nil)
(defvar-local foretype--tick nil "State of the text when the last command ended.")
(defvar-local foretype--point nil "Where point was when the last command ended.")
(defvar-local foretype--resting nil "Timer that tells where the cursor rests.")

;;; What is shown

(defun foretype--typed (offer)
  "What of OFFER stands left of point already, or nil if the user went another way."
  (let ((start (marker-position (foretype--offer-start offer)))
        (end (marker-position (foretype--offer-end offer))))
    (when (<= start (point) end (line-end-position))
      (let ((typed (buffer-substring-no-properties start (point))))
        (and (string-prefix-p typed (foretype--offer-text offer))
             (< (length typed) (length (foretype--offer-text offer)))
             (>= start (line-beginning-position))
             typed)))))

(defun foretype--forget ()
  "Show nothing."
  (setq foretype--offer nil)
  (when (lsp-inline-completion--active-p)
    (lsp-inline-completion--clear-overlay)))

(defun foretype--inhibited ()
  "Whether something else has the user's attention."
  (or completion-in-region-mode
      (minibufferp)
      (bound-and-true-p company-candidates)
      (run-hook-with-args-until-success 'lsp-inline-completion-inhibit-predicates)))

(defun foretype--position (marker)
  "The position of MARKER as an item of the protocol holds it."
  (let ((position (lsp--point-to-position marker))) ; a property list, whatever kind of object items are
    (lsp-make-position :line (plist-get position :line) :character (plist-get position :character))))

(defun foretype--draw ()
  "Show the suggestion as the text is now; whether it still fits."
  (if (and foretype--offer (foretype--typed foretype--offer) (not (foretype--inhibited)))
      (let ((inhibit-message t) ; lsp-mode explains its keys each time
            (at (point)))
        (setq lsp-inline-completion--items
              (list (lsp-make-inline-completion-item
                     :insert-text (foretype--offer-text foretype--offer)
                     :range? (lsp-make-range
                              :start (foretype--position (foretype--offer-start foretype--offer))
                              :end (foretype--position (foretype--offer-end foretype--offer)))
                     :command? (foretype--offer-command foretype--offer)))
              lsp-inline-completion--current 0
              lsp-inline-completion--start-point at)
        (foretype--next-off "hidden") ; one of both is enough
        (lsp-inline-completion-show-overlay)
        (goto-char at)
        t)
    (foretype--forget)
    nil))

;;; Asking

(defun foretype--workspace ()
  "The server of this buffer."
  (lsp-find-workspace 'foretype (buffer-file-name)))

(defun foretype--notify (method item-command text &rest more)
  "Tell the server METHOD about the item with ITEM-COMMAND and TEXT; MORE are further parameters."
  (when-let ((workspace (and item-command (foretype--workspace))))
    (with-lsp-workspace workspace
      (lsp-notify method (append (list :item (list :insertText text :command item-command)) more)))))

(defun foretype--taken (command)
  "Tell the server COMMAND of an item that was taken, and wait for no answer.
lsp-mode itself waits for one, and looks at nothing else meanwhile: for ten seconds where a server is slow, or where the answer
came in one piece with that of another request which somebody waits for, which it then leaves aside."
  (when-let ((workspace (foretype--workspace)))
    (with-lsp-workspace workspace
      (lsp-request-async "workspace/executeCommand"
                         (list :command (lsp-get command :command) :arguments (lsp-get command :arguments))
                         #'ignore :error-handler #'ignore :mode 'detached))))

(defun foretype--answer (buffer point result &optional invoked)
  "Show RESULT in BUFFER, unless the user has moved on from POINT; INVOKED: who asked by hand is told that there is nothing."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (and (eq (window-buffer) buffer) (= (point) point))
        (let ((item (car (lsp-inline-completion--parse-items result))))
          (foretype--forget)
          (if (null item)
              (when invoked (message "Foretype: no suggestion here"))
            (-let* (((&InlineCompletionItem :insert-text :range? :command?) item)
                    ((&RangeToPoint :start :end) range?))
              (setq foretype--offer
                    (foretype--offer-make :text insert-text :start (copy-marker start) :end (copy-marker end t)
                                          :command command?))
              (when (foretype--draw)
                (foretype--notify "textDocument/didShowCompletion" command? insert-text)))))))))

(defun foretype--ask (buffer point &optional invoked)
  "Ask for a suggestion in BUFFER, where POINT still is; INVOKED: the user did, by hand."
  (when (and (buffer-live-p buffer) (eq (window-buffer) buffer))
    (with-current-buffer buffer
      (when-let ((workspace (and (= (point) point) (not buffer-read-only) (not (use-region-p))
                                 (not (foretype--inhibited)) (foretype--workspace))))
        (with-lsp-workspace workspace
          (lsp-request-async "textDocument/inlineCompletion"
                             (lsp-inline-completion--params (not invoked))
                             (lambda (result) (foretype--answer buffer point result invoked))
                             :error-handler #'ignore
                             :mode 'tick ; a change cancels it
                             :cancel-token :foretype))))))

(defun foretype-suggest ()
  "Ask for a suggestion here, also where typing shows none.
lsp-mode's own command waits for the answer in a loop, and leaves it by a throw that loses the messages that came with it: what a
suggestion grew by, for one."
  (interactive)
  (unless (foretype--workspace)
    (user-error "Foretype: no server for this buffer"))
  (when foretype--timer
    (cancel-timer foretype--timer)) ; its question would void this one
  (foretype--ask (current-buffer) (point) t))

(defun foretype--rested (buffer point)
  "Tell the server that the cursor was moved to POINT in BUFFER, so that it may prepare that place."
  (when (and (buffer-live-p buffer) (eq (window-buffer) buffer))
    (with-current-buffer buffer
      (when-let ((workspace (and (= (point) point) (foretype--workspace))))
        (with-lsp-workspace workspace
          (lsp-notify "foretype/cursorRested" (lsp--text-document-position-params)))))))

(defun foretype--after-command ()
  "Ask again when the command changed the text; shrink or hide what is shown."
  (let ((tick (buffer-chars-modified-tick))
        (moved (not (eql (point) foretype--point))))
    (setq foretype--point (point))
    (when foretype--resting
      (cancel-timer foretype--resting))
    (if (eql tick foretype--tick)
        (when moved
          ;; What is typed of it is drawn by a display property, which point would be moved out of: to the start of the line.
          (foretype--forget)
          (setq foretype--resting
                (run-with-timer foretype--rest-delay nil #'foretype--rested (current-buffer) (point))))
      (setq foretype--tick tick)
      (when foretype--timer
        (cancel-timer foretype--timer))
      (setq foretype--timer (run-with-timer foretype-delay nil #'foretype--ask (current-buffer) (point))))
    (when (and foretype--offer (not (lsp-inline-completion--active-p)))
      (foretype--draw))))

(defun foretype--grew (_workspace params)
  "What is shown in the document of PARAMS is a part of what is there now: ask again."
  (when-let ((buffer (find-buffer-visiting (lsp--uri-to-path (lsp-get (lsp-get params :textDocument) :uri)))))
    (foretype--ask buffer (with-current-buffer buffer (point)))))

;;; The next edit

;; The edit beyond the cursor that the last ones call for: a difference in place where it is near, a hint at the end of the line
;; where it is far.  TAB jumps to it, then applies it; C-g ends it.  Nothing moves without a key.

(defconst foretype--next-delay 0.05
  "Seconds after a change before the next edit is asked for; the server waits for the end of the burst.")

(defconst foretype--next-recent 10.0
  "Seconds after a change: who only reads is left alone.")

(defconst foretype--next-rows 2
  "Lines below point that are near, and lines that point may go away.")

(defface foretype-next-edit-old '((t :inherit error :strike-through t)) "What a next edit takes away.")
(defface foretype-next-edit-new '((t :inherit success)) "What a next edit puts there.")
(defface foretype-next-edit-hint '((t :inherit shadow)) "The hint at a next edit that is far.")

(cl-defstruct (foretype--next (:constructor foretype--next-make))
  "A next edit that is shown.
ITEM is the protocol's.  OLD between the markers START and END, which take in what is typed there, becomes NEW: nil where it is
in another file.  SIZE is that of the rest of the buffer, TYPED and KEPT how much of NEW and OLD stood there last, ROWS how far
point was, AT where a jump left point; ELSEWHERE: another place was changed."
  item old new start end size (typed 0) kept rows at elsewhere overlay)

(defvar-local foretype--next nil "The next edit that is shown.")
(defvar-local foretype--next-tick nil "State of the text that was dealt with.")
(defvar-local foretype--next-ended nil "Whether one was taken off the screen since the last change: it does not come back by itself.")
(defvar-local foretype--next-asked nil "State of the text that the newest question is about, until it is answered.")
(defvar-local foretype--next-changed nil "When the text was changed last.")
(defvar foretype--next-timer nil)
(defvar foretype--next-home nil "The buffer in which one is shown.")

(defun foretype--next-option (name)
  "The option NAME of next edits."
  (let ((given (plist-get (default-value 'foretype-options) :nextEdit)))
    (if (and given (listp given)) (plist-get given name) (and (eq name :enabled) given))))

(defun foretype--next-workspace ()
  "The server of this buffer, if next edits are on and it knows them."
  (unless (eq (foretype--next-option :enabled) :json-false)
    (when-let* ((workspace (foretype--workspace))
                (more (lsp-get (lsp--workspace-server-capabilities workspace) :experimental))
                (ours (lsp-get more :foretype)))
      (and (lsp-get ours :nextEdit) workspace))))

(defun foretype--next-inhibited ()
  "Whether something else has the user's attention, or the text is none to change."
  (or (foretype--inhibited) (lsp-inline-completion--active-p) (use-region-p) buffer-read-only
      executing-kbd-macro defining-kbd-macro (bound-and-true-p multiple-cursors-mode)
      (and (fboundp 'yas-active-snippets) (yas-active-snippets)) (bound-and-true-p tempel--active)))

(defun foretype--next-id (item)
  "The name of ITEM."
  (elt (lsp-get (lsp-get item :command) :arguments) 0))

(defun foretype--next-jump-only (item)
  "Whether only the place of ITEM is known."
  (when-let ((data (lsp-get item :data)))
    (eq (lsp-get data :jumpOnly) t)))

(defun foretype--next-tell (method &rest params)
  "Tell the server METHOD with PARAMS."
  (when-let ((workspace (foretype--workspace)))
    (with-lsp-workspace workspace
      (lsp-notify method params))))

(defun foretype--next-off (&optional reason)
  "Take the next edit off the screen, for REASON of the protocol; none after its acceptance."
  (when-let ((next foretype--next))
    (setq foretype--next nil
          foretype--next-home nil)
    (when (foretype--next-overlay next)
      (delete-overlay (foretype--next-overlay next)))
    (remove-hook 'after-change-functions #'foretype--next-watch t)
    (when reason
      (setq foretype--next-ended t)
      (foretype--next-tell "foretype/nextEditEnded" :id (foretype--next-id (foretype--next-item next)) :reason reason))))

(defun foretype--next-watch (start end _length)
  "Note a change from START to END that is not of the edit's own place."
  (when (and foretype--next (foretype--next-start foretype--next)
             (or (< start (foretype--next-start foretype--next)) (> end (foretype--next-end foretype--next))))
    (setf (foretype--next-elsewhere foretype--next) t)))

(defun foretype--common (a b)
  "How many characters A and B have in common at their start."
  (let ((differs (compare-strings a nil nil b nil nil)))
    (if (eq differs t) (length a) (1- (abs differs)))))

(defun foretype--in-word (text at)
  "Whether the character of TEXT before AT is one of a word."
  (and (> at 0) (<= at (length text)) (string-match-p "[[:word:]_]" (substring text (1- at) at))))

(defun foretype--next-same (old new)
  "How many characters at both ends of OLD and NEW stay; a word that is replaced is replaced whole, which is easier to read."
  (let* ((head (foretype--common old new))
         (tail (min (foretype--common (reverse old) (reverse new)) (- (length old) head) (- (length new) head))))
    (when (and (< (+ head tail) (length old)) (< (+ head tail) (length new)))
      (while (and (foretype--in-word old head)
                  (or (foretype--in-word old (1+ head)) (foretype--in-word new (1+ head))))
        (setq head (1- head)))
      (while (and (> tail 0) (foretype--in-word old (- (length old) tail -1))
                  (or (foretype--in-word old (- (length old) tail)) (foretype--in-word new (- (length new) tail))))
        (setq tail (1- tail))))
    (cons head tail)))

(defun foretype--next-place (next)
  "Give NEXT its place in this buffer; nil where it changes nothing, or does not fit."
  (-let* ((item (foretype--next-item next))
          ((start . end) (lsp--range-to-region (lsp-get item :range)))
          (old (buffer-substring-no-properties start end))
          (new (string-replace "\r\n" "\n" (lsp-get item :text)))
          ((head . tail) (foretype--next-same old new))
          (last (lsp-get (lsp-get (lsp-get item :range) :end) :line)))
    (when (and (< last (line-number-at-pos (point-max)))
               (or (foretype--next-jump-only item) (not (string= old new))))
      (setf (foretype--next-old next) (substring old head (- (length old) tail))
            (foretype--next-new next) (substring new head (- (length new) tail))
            (foretype--next-start next) (copy-marker (+ start head))
            (foretype--next-end next) (copy-marker (- end tail) t)
            (foretype--next-kept next) (- (length old) head tail)
            (foretype--next-size next) (- (buffer-size) (- (length old) head tail)))
      (add-hook 'after-change-functions #'foretype--next-watch nil t)
      next)))

(defun foretype--next-left (next)
  "What is left of NEXT in the text as it is now: how much of its new text stands there and how much of the old; nil if it does
not fit any more."
  (when (and (foretype--next-start next) (not (foretype--next-elsewhere next))
             (= (foretype--next-size next)
                (- (buffer-size) (- (foretype--next-end next) (foretype--next-start next)))))
    (let* ((old (foretype--next-old next))
           (there (buffer-substring-no-properties (foretype--next-start next) (foretype--next-end next)))
           (typed (if (string= there old) 0 (foretype--common there (foretype--next-new next)))))
      (while (and (>= typed 0) (not (string-suffix-p (substring there typed) old)))
        (setq typed (1- typed)))
      (let ((kept (- (length there) typed)))
        (when (and (>= typed (foretype--next-typed next)) (<= kept (foretype--next-kept next))
                   (or (foretype--next-jump-only (foretype--next-item next))
                       (> kept 0) (< typed (length (foretype--next-new next)))))
          (cons typed kept))))))

(defun foretype--next-lines (next)
  "How many lines below point's NEXT begins; negative above."
  (let* ((start (foretype--next-start next))
         (lines (count-lines (min (foretype--bol (point)) (foretype--bol start)) (max (foretype--bol (point)) (foretype--bol start)))))
    (if (< start (foretype--bol (point))) (- lines) lines)))

(defun foretype--bol (position)
  "Where the line of POSITION begins."
  (save-excursion (goto-char position) (line-beginning-position)))

(defun foretype--next-rest (next)
  "What of NEXT is not typed yet."
  (substring (foretype--next-new next) (foretype--next-typed next)))

(defun foretype--next-visible (next)
  "Whether all of NEXT is, or would be, on the screen."
  (let ((start (foretype--next-start next)) (end (foretype--next-end next)))
    (and (pos-visible-in-window-p start) (pos-visible-in-window-p end) (not (invisible-p (marker-position start)))
         (<= (+ (count-screen-lines (window-start) (min (1+ end) (point-max))) (cl-count ?\n (foretype--next-rest next)))
             (window-body-height)))))

(defun foretype--next-near (next)
  "Whether NEXT is drawn where it is."
  (and (foretype--next-start next) (not (foretype--next-jump-only (foretype--next-item next)))
       (or (equal (point) (foretype--next-at next))
           (<= 0 (foretype--next-lines next) foretype--next-rows))
       (foretype--next-visible next)))

(defun foretype--next-draw (next)
  "Show NEXT as the text is now."
  (when (foretype--next-overlay next)
    (delete-overlay (foretype--next-overlay next)))
  (if (foretype--next-near next)
      (let ((overlay (make-overlay (+ (foretype--next-start next) (foretype--next-typed next)) (foretype--next-end next)))
            (rest (foretype--next-rest next)))
        (overlay-put overlay 'face 'foretype-next-edit-old)
        (unless (string-empty-p rest) ; no `evaporate': an insertion's overlay is empty from the start
          (overlay-put overlay 'after-string (propertize rest 'face 'foretype-next-edit-new 'cursor t)))
        (setf (foretype--next-overlay next) overlay))
    (let* ((item (foretype--next-item next))
           (line (1+ (lsp-get (lsp-get (lsp-get item :range) :start) :line)))
           (lines (and (foretype--next-start next) (foretype--next-lines next)))
           (place (cond ((null lines) (format "%s:%d" (file-name-nondirectory (foretype--next-file item)) line))
                        ((< lines 0) (format "line %d ↑" line))
                        ((> lines 0) (format "line %d ↓" line))
                        (t (format "line %d" line))))
           (told (format "→ next edit: %s (TAB)" place))
           (end (line-end-position))
           (room (- (window-body-width) (- end (line-beginning-position)) (length told) 3))
           (overlay (make-overlay end end)))
      (overlay-put overlay 'after-string
                   (propertize (concat (if (> room 0) "  " "\n") told) 'face 'foretype-next-edit-hint 'cursor t))
      (setf (foretype--next-overlay next) overlay))))

(defun foretype--next-file (item)
  "The file that ITEM is in."
  (lsp--uri-to-path (lsp-get (lsp-get item :textDocument) :uri)))

(defun foretype--next-begin (next)
  "Show NEXT in this buffer from now on."
  (setq foretype--next next
        foretype--next-home (current-buffer))
  (foretype--next-draw next))

(defun foretype--next-answer (buffer tick result)
  "Show RESULT in BUFFER, unless its text is another than at TICK."
  (when (and (buffer-live-p buffer) (eq (window-buffer) buffer))
    (with-current-buffer buffer
      (setq foretype--next-asked nil)
      (when-let ((item (and (eql tick (buffer-chars-modified-tick)) (null foretype--next) (not (foretype--next-inhibited))
                            (foretype--next-workspace) (lsp-elt (lsp-get result :edits) 0))))
        (let* ((here (file-equal-p (foretype--next-file item) buffer-file-name))
               (version (lsp-get (lsp-get item :textDocument) :version))
               (next (foretype--next-make :item item :rows 0)))
          (when (or (not here) (and (eql version lsp--cur-version) (foretype--next-place next)))
            (when here
              (setf (foretype--next-rows next) (abs (foretype--next-lines next))))
            (unless (and here (foretype--next-jump-only item) (= (foretype--next-rows next) 0)) ; point is there
              (foretype--next-begin next)
              (foretype--next-tell "textDocument/didShowInlineEdit" :item (list :command (lsp-get item :command))))))))))

(defun foretype--next-ask (buffer)
  "Ask for the next edit in BUFFER."
  (when (and (buffer-live-p buffer) (eq (window-buffer) buffer))
    (with-current-buffer buffer
      (when-let ((workspace (and (null foretype--next) (not (foretype--next-inhibited)) (foretype--next-workspace)))
                 (tick (buffer-chars-modified-tick)))
        (setq foretype--next-asked tick)
        (with-lsp-workspace workspace
          (lsp-request-async "textDocument/copilotInlineEdit"
                             (lsp--text-document-position-params (lsp--versioned-text-document-identifier))
                             (lambda (result) (foretype--next-answer buffer tick result))
                             :error-handler (lambda (_) (setq foretype--next-asked nil))
                             :mode 'tick ; a change cancels it
                             :cancel-token :foretype-next))))))

(defun foretype--next-soon ()
  "Ask in a moment."
  (when foretype--next-timer
    (cancel-timer foretype--next-timer))
  (setq foretype--next-timer (run-with-timer foretype--next-delay nil #'foretype--next-ask (current-buffer))))

(defun foretype--next-after-command ()
  "Keep what is shown true to the text and to point; ask after a change."
  (let ((tick (buffer-chars-modified-tick)) (next foretype--next))
    (cond
     ((not (eql tick foretype--next-tick))
      (setq foretype--next-tick tick
            foretype--next-ended nil
            foretype--next-changed (float-time))
      (let ((left (and next (foretype--next-left next))))
        (if (and left (not (foretype--next-inhibited)))
            (progn (setf (foretype--next-typed next) (car left) ; typed along
                         (foretype--next-kept next) (cdr left))
                   (foretype--next-draw next))
          (foretype--next-off (if left "hidden" "typed"))
          (foretype--next-soon))))
     ((null next)
      (when (and foretype--next-changed (not foretype--next-ended) (not (eql foretype--next-asked tick))
                 (< (- (float-time) foretype--next-changed) foretype--next-recent))
        (foretype--next-soon)))
     ((foretype--next-inhibited) (foretype--next-off "hidden"))
     ((equal (point) (foretype--next-at next)))
     (t (setf (foretype--next-at next) nil)
        (if (> (if (foretype--next-start next) (abs (foretype--next-lines next)) 0)
               (max (foretype--next-rows next) foretype--next-rows))
            (foretype--next-off "moved")
          (foretype--next-draw next))))))

(defun foretype--next-away (_frame)
  "Show nothing in a buffer that is not worked in."
  (when (and foretype--next-home (not (minibufferp (window-buffer (selected-window))))
             (not (eq foretype--next-home (window-buffer (selected-window)))))
    (if (buffer-live-p foretype--next-home)
        (with-current-buffer foretype--next-home
          (foretype--next-off "moved"))
      (setq foretype--next-home nil))))

(defun foretype--next-applies (command)
  "COMMAND, if TAB is ours: what is shown still fits, and this is no place to indent."
  (and foretype--next (not (foretype--next-inhibited))
       (or (null (foretype--next-start foretype--next)) (foretype--next-left foretype--next))
       (or (equal (point) (foretype--next-at foretype--next))
           (not (string-blank-p (buffer-substring-no-properties (line-beginning-position) (point)))))
       command))

(defun foretype-next-edit-take ()
  "Jump to the next edit where it is far, apply it where it is near."
  (interactive)
  (if (and foretype--next (foretype--next-near foretype--next))
      (foretype-next-edit-accept)
    (foretype-next-edit-jump)))

(defun foretype-next-edit-jump ()
  "Go to the next edit; ask for one where none is shown.
The mark is left where point was."
  (interactive)
  (if (null foretype--next)
      (progn (setq foretype--next-ended nil)
             (foretype--next-ask (current-buffer)))
    (let* ((next foretype--next)
           (item (foretype--next-item next))
           (version (lsp-get (lsp-get item :textDocument) :version)))
      (push-mark (point) t)
      (unless (foretype--next-start next)
        (foretype--next-off)
        (find-file (foretype--next-file item))
        (setq foretype--next-tick (buffer-chars-modified-tick))
        (if (and (or (not (integerp version)) (not (bound-and-true-p lsp-mode)) (eql version lsp--cur-version))
                 (not buffer-read-only) (foretype--next-place next))
            (setq foretype--next next)
          (foretype--next-tell "foretype/nextEditEnded" :id (foretype--next-id item) :reason "replaced")
          (setq next nil)))
      (when next
        (goto-char (foretype--next-start next))
        (setf (foretype--next-at next) (point)
              (foretype--next-rows next) 0)
        (unless (foretype--next-visible next)
          (recenter))
        (foretype--next-begin next)
        (foretype--next-tell "foretype/nextEditJumped" :id (foretype--next-id item))
        (when (foretype--next-jump-only item)
          (foretype--next-off "hidden"))))))

(defun foretype-next-edit-accept ()
  "Apply the next edit, wherever it is on the screen."
  (interactive)
  (when-let ((next foretype--next)
             (left (and (not (foretype--next-jump-only (foretype--next-item next))) (foretype--next-left next))))
    (unless (= (foretype--next-lines next) 0)
      (push-mark (point) t))
    (setf (foretype--next-typed next) (car left))
    (foretype--next-off)
    (undo-boundary)
    (goto-char (+ (foretype--next-start next) (car left)))
    ;; One change to the server, which knows what it offered, and knows it again when it is taken back.
    (combine-change-calls (point) (foretype--next-end next)
      (delete-region (point) (foretype--next-end next))
      (insert (foretype--next-rest next)))
    (setq foretype--next-tick (buffer-chars-modified-tick)
          foretype--next-ended nil
          foretype--next-changed (float-time))
    (foretype--taken (lsp-get (foretype--next-item next) :command))
    (foretype--next-ask (current-buffer)))) ; the next of a chain

(defun foretype-next-edit-dismiss ()
  "End the next edit."
  (interactive)
  (foretype--next-off "rejected"))

(defun foretype--next-set (name value)
  "Set the option NAME of next edits to VALUE, here and in the server."
  (let ((given (plist-get (default-value 'foretype-options) :nextEdit)))
    (unless (and given (listp given))
      (setq given (and given (list :enabled given))))
    (set-default 'foretype-options (plist-put (copy-sequence (default-value 'foretype-options)) :nextEdit
                                              (plist-put (copy-sequence given) name value)))
    (foretype--next-off "hidden")
    (foretype--next-tell "workspace/didChangeConfiguration" :settings (list :foretype (foretype--all-options)))))

(defun foretype-next-edit-toggle ()
  "Switch next edits on or off."
  (interactive)
  (let ((off (eq (foretype--next-option :enabled) :json-false)))
    (foretype--next-set :enabled (or off :json-false))
    (message "Foretype: next edits are %s" (if off "on" "off"))))

(defun foretype-next-edit-eagerness (level)
  "Have next edits at LEVEL: low, medium or high."
  (interactive (list (completing-read "Eagerness: " '("low" "medium" "high") nil t)))
  (unless (member level '("low" "medium" "high"))
    (user-error "Foretype: eagerness is low, medium or high"))
  (foretype--next-set :eagerness level))

(defvar foretype-next-edit-map
  (let ((map (make-sparse-keymap)))
    (dolist (key '("TAB" "<tab>"))
      (define-key map (kbd key) '(menu-item "" foretype-next-edit-take :filter foretype--next-applies)))
    (dolist (key '("C-g" "<escape>"))
      (define-key map (kbd key) #'foretype-next-edit-dismiss))
    map)
  "Keys while a next edit is shown.")

(add-to-list 'minor-mode-map-alist (cons 'foretype--next foretype-next-edit-map))

;;; Accepting

(defun foretype-accept ()
  "Insert what is shown."
  (interactive)
  (if (foretype--draw)
      (progn (setq foretype--offer nil)
             (lsp-inline-completion-accept))
    (foretype--forget)))

(defun foretype--accept-part (pattern)
  "Insert what of the suggestion PATTERN matches at its start."
  (when (foretype--draw)
    (let* ((offer foretype--offer)
           (typed (foretype--typed offer))
           (rest (substring (foretype--offer-text offer) (length typed)))
           (part (if (string-match pattern rest) (match-string 0 rest) rest)))
      (lsp-inline-completion--clear-overlay)
      (if (string= part rest)
          (foretype-accept)
        (insert part)
        (foretype--notify "textDocument/didPartiallyAcceptCompletion"
                          (foretype--offer-command offer) (foretype--offer-text offer)
                          :acceptedLength (/ (string-bytes (encode-coding-string (concat typed part) 'utf-16-le)) 2))))))

(defun foretype-accept-word ()
  "Insert the next word of what is shown."
  (interactive)
  (foretype--accept-part "\\`[ \t\n]*\\(?:\\(?:\\w\\|_\\)+\\|[^ \t\n[:word:]]+\\)"))

(defun foretype-accept-line ()
  "Insert the next line of what is shown."
  (interactive)
  (foretype--accept-part "\\`\n*[^\n]+"))

(defun foretype-dismiss ()
  "Take the suggestion off the screen."
  (interactive)
  (foretype--forget))

(defvar foretype-active-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map lsp-inline-completion-active-map)
    (dolist (binding '(("TAB" . foretype-accept) ("<tab>" . foretype-accept) ("C-<return>" . foretype-accept)
                       ("M-<right>" . foretype-accept-word) ("M-l" . foretype-accept-line)
                       ("C-g" . foretype-dismiss)))
      (define-key map (kbd (car binding)) (cdr binding))
      (put (cdr binding) 'lsp-inline-completion-keep t))
    (dolist (ordinary '("C-n" "C-p" "<escape>" "C-l" "C-c C-k")) ; one suggestion: these stay what they are
      (define-key map (kbd ordinary) nil))
    map)
  "Keys while a suggestion is shown.")

;;; Explaining

(defun foretype--explanation (explained)
  "Lines that say what EXPLAINED, the answer to foretype.explain, is about."
  (let ((plan (lsp-get explained :plan))
        (timings (lsp-get explained :timings_ms))
        (row "%-14s%-8s%-8s%-12s%-12s%s"))
    (append
     (list (format "suggestion of %s characters, origin: %s, %s tokens generated" (lsp-get explained :characters)
                   (lsp-get explained :origin) (or (lsp-get explained :generated_tokens) "no"))
           "")
     (if (null plan)
         (list "no prompt was made for it: it comes from what this machine had already")
       (append
        (list (format "prompt: %s of at most %s tokens, layout %s, %s" (lsp-get plan :prompt_tokens)
                      (lsp-get plan :budget_tokens) (lsp-get plan :layout) (lsp-get plan :kind))
              "" (format row "tokens" "count" "cached" "kind" "scope" "from"))
        (mapcar (lambda (one)
                  (let ((source (lsp-get one :source)))
                    (format row (format "%s-%s" (lsp-get one :start) (lsp-get one :end)) (lsp-get one :tokens)
                            (or (lsp-get one :cached) "?") (lsp-get one :kind) (lsp-get one :scope)
                            (format "%s %s-%s" (lsp-get source :path) (lsp-get source :start) (lsp-get source :end)))))
                (lsp-get plan :segments))
        (mapcar (lambda (one)
                  (format "left out: %s %s, %s tokens: %s" (lsp-get one :kind)
                          (lsp-get (lsp-get one :source) :path) (lsp-get one :tokens) (lsp-get one :reason)))
                (lsp-get plan :dropped))))
     (list "")
     (let (stages)
       (lsp-map (lambda (stage ms)
                  (push (format "%-14s%9.1f ms" stage ms) stages))
                timings)
       (nreverse stages)))))

(defun foretype-explain ()
  "Show what the last suggestion was made from."
  (interactive)
  (if-let ((workspace (foretype--workspace)))
      (let ((explained (with-lsp-workspace workspace
                         (lsp-request "workspace/executeCommand" '(:command "foretype.explain" :arguments [])))))
        (with-help-window "*Foretype explains*"
          (princ (string-join (if explained (foretype--explanation explained)
                                '("There was no suggestion yet, or it is forgotten by now."))
                              "\n"))))
    (message "Foretype: no server runs here")))

;;; The gateway's larger models

(defun foretype--said (result)
  "Show RESULT of a command."
  (let ((text (lsp-get result :text)))
    (cond ((equal (lsp-get result :kind) "explain")
           (with-help-window "*Foretype explains*" (princ text)))
          ((not (eq (lsp-get result :applied) t))
           (message "Foretype: nothing was changed: %s" (lsp-get result :reason))))))

(defun foretype--run (command)
  "Have the server run COMMAND on the region, or at point."
  (if-let ((workspace (foretype--workspace)))
      (let* ((start (if (use-region-p) (region-beginning) (point)))
             (end (if (use-region-p) (region-end) (point)))
             (target (list :textDocument (lsp--text-document-identifier) :range (lsp--region-to-range start end))))
        (message "Foretype: asking")
        (with-lsp-workspace workspace
          (lsp-request-async "workspace/executeCommand" (list :command command :arguments (vector target))
                             #'foretype--said
                             :error-handler (lambda (failed) (message "Foretype: %s" (lsp-get failed :message)))
                             :mode 'alive)))
    (user-error "Foretype: no server for this buffer")))

(defun foretype-explain-code ()
  "Explain the region, or the function around point."
  (interactive)
  (foretype--run "foretype.chat.explain"))

(defun foretype-document-code ()
  "Document the function or class around point."
  (interactive)
  (foretype--run "foretype.chat.document"))

(defun foretype-complete-function ()
  "Complete the function around point."
  (interactive)
  (foretype--run "foretype.chat.completeFunction"))

;;; The private gateway's model

(defun foretype--model-choices (listing)
  "Lines of LISTING, the answer to foretype.models.list, each with the name that chooses it."
  (mapcar (lambda (row)
            (let ((marks (delq nil (list (and (eq (lsp-get row :current) t) "serves now")
                                         (and (eq (lsp-get row :proposed) t) "proposed")
                                         (lsp-get row :refused)))))
              (cons (format "%s  %s: %s%s" (lsp-get row :asked) (lsp-get row :title) (lsp-get row :detail)
                            (if marks (format " (%s)" (string-join marks ", ")) ""))
                    (lsp-get row :asked))))
          (lsp-get listing :rows)))

(defun foretype--execute (command arguments answered)
  "Have the server run COMMAND with ARGUMENTS, a vector, and call ANSWERED with what it says."
  (if-let ((workspace (foretype--workspace)))
      (with-lsp-workspace workspace
        (lsp-request-async "workspace/executeCommand" (list :command command :arguments arguments) answered
                           :error-handler (lambda (failed) (message "Foretype: %s" (lsp-get failed :message)))
                           :mode 'detached))
    (user-error "Foretype: no server for this buffer")))

(defun foretype-use-model (name)
  "Give the private gateway the model NAME, as `foretype use' does."
  (interactive "sModel (a name, a .gguf file, ollama:NAME, http://host:port/v1, shipped): ")
  (message "Foretype: taking %s" name)
  (foretype--execute "foretype.models.use" (vector name)
                     (lambda (taken)
                       (message "Foretype: %s serves%s" (lsp-get taken :model)
                                (if-let ((measured (lsp-get taken :measured))) (concat ": " measured) "")))))

(defun foretype-choose-model ()
  "Choose the private gateway's model from what there is."
  (interactive)
  (foretype--execute "foretype.models.list" []
                     (lambda (listing)
                       (let* ((choices (foretype--model-choices listing))
                              (picked (completing-read (format "Foretype: a model (now %s): " (lsp-get listing :current))
                                                       choices nil t)))
                         (foretype-use-model (cdr (assoc picked choices)))))))

;;; Registration

(defun foretype--told (_workspace params)
  "Keep the status in PARAMS for the mode line."
  (setq foretype-status (list (lsp-get params :state)
                              (unless (string-empty-p (lsp-get params :model)) (lsp-get params :model))
                              (lsp-get params :detail) (lsp-get params :advice)))
  (force-mode-line-update t))

(defun foretype-show-status ()
  "Say how the server is."
  (interactive)
  (message "Foretype: %s" (if foretype-status (string-join (seq-remove #'string-empty-p (delq nil foretype-status)) ". ") "not started")))

(defun foretype--lighter ()
  "For the mode line: the state where it is not the usual one."
  (if (equal (car foretype-status) "ready") " Foretype" (format " Foretype:%s" (or (car foretype-status) "starting"))))

(defvar foretype-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map [remap lsp-inline-completion-display] #'foretype-suggest)
    map)
  "Keys of buffers with suggestions.")

(define-minor-mode foretype-mode
  "Suggestions of Foretype while typing."
  :lighter (:eval (foretype--lighter))
  (if foretype-mode
      (progn
        (lsp-inline-completion-mode -1) ; it would ask as well
        (setq foretype--tick (buffer-chars-modified-tick))
        (setq-local lsp-inline-completion-active-map foretype-active-map)
        (setq foretype--next-tick foretype--tick)
        (add-hook 'post-command-hook #'foretype--after-command nil t)
        (add-hook 'post-command-hook #'foretype--next-after-command t t)
        (dolist (hook '(window-selection-change-functions window-buffer-change-functions))
          (add-hook hook #'foretype--next-away)))
    (remove-hook 'post-command-hook #'foretype--after-command t)
    (remove-hook 'post-command-hook #'foretype--next-after-command t)
    (foretype--next-off "hidden")
    (dolist (timer (list foretype--timer foretype--resting))
      (when timer
        (cancel-timer timer)))
    (foretype--forget)))

(defun foretype--configure ()
  "Switch suggestions on in a buffer that has the server."
  (when (foretype--workspace)
    (foretype-mode)))

(defun foretype--elsewhere (run)
  "RUN as a function that is called as from the home directory, and finds no program of the project that is open.
Who opens somebody's repository must not run what lies in it."
  (lambda (&rest arguments)
    (let* ((root (or (lsp-workspace-root) default-directory))
           (own (or (file-remote-p root) (file-in-directory-p "~" root)))
           (exec-path (seq-filter (lambda (folder)
                                    (and (stringp folder) (file-name-absolute-p folder)
                                         (or own (not (file-in-directory-p folder root)))))
                                  (default-value 'exec-path)))
           (default-directory (if (file-remote-p default-directory) default-directory (expand-file-name "~/"))))
      (apply run arguments))))

(defun foretype--all-options ()
  "What the server is told: the user's options, and those that go with this file."
  (append (default-value 'foretype-options) '(:suggestionGrew t :askEarly t :debounceMs 25)))

(defun foretype--connection ()
  "How lsp-mode starts the server."
  (let ((connection (lsp-stdio-connection (lambda () (default-value 'foretype-command)))))
    (list :connect (foretype--elsewhere (plist-get connection :connect))
          :test? (foretype--elsewhere (plist-get connection :test?)))))

;;;###autoload
(defun foretype-setup ()
  "Register the language server and start it in buffers of `foretype-modes'."
  (lsp-register-client
   (make-lsp-client
    :server-id 'foretype
    :add-on? t ; beside the language's own server
    :multi-root t
    :new-connection (foretype--connection)
    :activation-fn (lambda (_file mode) (apply #'provided-mode-derived-p mode foretype-modes))
    :initialization-options #'foretype--all-options
    :action-handlers (lsp-ht ("foretype.didAcceptCompletionItem" #'foretype--taken))
    :notification-handlers (lsp-ht ("foretype/didChangeStatus" #'foretype--told)
                                   ("foretype/suggestionGrew" #'foretype--grew))))
  (add-hook 'lsp-configure-hook #'foretype--configure t)
  (dolist (mode foretype-modes)
    (add-hook (intern (format "%s-hook" mode)) #'lsp-deferred)))

(provide 'foretype)
;;; foretype.el ends here
