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
  '(python-mode js-mode typescript-mode go-mode rust-mode java-mode c-mode c++-mode csharp-mode ruby-mode php-mode sh-mode)
  "Major modes with suggestions."
  :type '(repeat symbol))

(defcustom foretype-options nil
  "Initialization options of the server, a property list: `:gatewayUrl', `:multiLine', `:excludedGlobs' and so on."
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

(defun foretype--answer (buffer point result)
  "Show RESULT in BUFFER, unless the user has moved on from POINT."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (and (eq (window-buffer) buffer) (= (point) point))
        (let ((item (car (lsp-inline-completion--parse-items result))))
          (foretype--forget)
          (when item
            (-let* (((&InlineCompletionItem :insert-text :range? :command?) item)
                    ((&RangeToPoint :start :end) range?))
              (setq foretype--offer
                    (foretype--offer-make :text insert-text :start (copy-marker start) :end (copy-marker end t)
                                          :command command?))
              (when (foretype--draw)
                (foretype--notify "textDocument/didShowCompletion" command? insert-text)))))))))

(defun foretype--ask (buffer point)
  "Ask for a suggestion in BUFFER, where POINT still is."
  (when (and (buffer-live-p buffer) (eq (window-buffer) buffer))
    (with-current-buffer buffer
      (when-let ((workspace (and (= (point) point) (not buffer-read-only) (not (use-region-p))
                                 (not (foretype--inhibited)) (foretype--workspace))))
        (with-lsp-workspace workspace
          (lsp-request-async "textDocument/inlineCompletion"
                             (lsp-inline-completion--params t)
                             (lambda (result) (foretype--answer buffer point result))
                             :error-handler #'ignore
                             :mode 'tick ; a change cancels it
                             :cancel-token :foretype))))))

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

(define-minor-mode foretype-mode
  "Suggestions of Foretype while typing."
  :lighter (:eval (foretype--lighter))
  (if foretype-mode
      (progn
        (lsp-inline-completion-mode -1) ; it would ask as well
        (setq foretype--tick (buffer-chars-modified-tick))
        (setq-local lsp-inline-completion-active-map foretype-active-map)
        (add-hook 'post-command-hook #'foretype--after-command nil t))
    (remove-hook 'post-command-hook #'foretype--after-command t)
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
    :initialization-options (lambda () (append (default-value 'foretype-options) '(:suggestionGrew t :askEarly t :debounceMs 25)))
    :notification-handlers (lsp-ht ("foretype/didChangeStatus" #'foretype--told)
                                   ("foretype/suggestionGrew" #'foretype--grew))))
  (add-hook 'lsp-configure-hook #'foretype--configure t)
  (dolist (mode foretype-modes)
    (add-hook (intern (format "%s-hook" mode)) #'lsp-deferred)))

(provide 'foretype)
;;; foretype.el ends here
