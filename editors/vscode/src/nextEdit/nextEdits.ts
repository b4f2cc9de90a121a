import * as vscode from 'vscode';
import type { LanguageClient } from 'vscode-languageclient/node';

import { Ink } from './drawing';
import { drawing, hint, isNear, type Replacement, trimmed, typedAlong } from './model';
import { nameOf } from './names';
import { ACCEPTED, type Answer, ASK, type Asked, ENDED, type Item, JUMPED, type Reason, SHOWN } from './protocol';

const SELECTOR = [{ scheme: 'file' }, { scheme: 'untitled' }, { scheme: 'vscode-notebook-cell' }];
const DEBOUNCE_MS = 50;
const MOVES_MAX = 3; // to other lines, before it is clear that the user goes somewhere else
const VISIBLE = 'foretype.nextEditVisible';
const ON_TAB = 'foretype.nextEditOnTab';
const KEY = process.platform === 'darwin' ? 'Ctrl+Alt+J' : 'Alt+J'; // in package.json

/** The edit that is offered. Its place is known as characters of `document`, or as the server told it while no document is open. */
interface Offer {
  id: string;
  uri: vscode.Uri;
  item: Item;
  asked_ms: number;
  target: { document: vscode.TextDocument; version: number; edit: Replacement; begun: boolean } | undefined;
  jumpedTo: vscode.Position | undefined;
  line: number; // of the cursor when it was last looked at
  moves: number;
}

/** The next edit in the editor that has the keys: asked for after changes, drawn where it is, taken by a key alone. */
export class NextEdits implements vscode.Disposable {
  private readonly ink = new Ink();
  private offer: Offer | undefined;
  private timer: NodeJS.Timeout | undefined;
  private asking: vscode.CancellationTokenSource | undefined;
  private ghost: { document: vscode.TextDocument; version: number; position: vscode.Position } | undefined;
  private quiet = true; // until something is typed: after Esc, after undo
  private taking = false; // what changes now is our own doing
  private keys: Promise<unknown> = Promise.resolve(); // each waits for what the one before does
  private readonly context = new Map<string, boolean>();
  private readonly listening = [
    vscode.workspace.onDidChangeTextDocument((event) => this.changed(event)),
    vscode.window.onDidChangeTextEditorSelection((event) => this.moved(event)),
    vscode.window.onDidChangeTextEditorVisibleRanges(({ textEditor }) => textEditor === this.editor && this.draw()),
    vscode.window.onDidChangeActiveTextEditor(() => this.switched()),
  ];

  constructor(
    private readonly client: () => LanguageClient | undefined,
    private readonly on: () => boolean,
  ) {}

  /** Settings changed, or the server is another one. */
  reset(): void {
    this.end('hidden');
    this.stopAsking();
  }

  /**
   * An inline suggestion is there for a place. Whether it may be shown: one of both is on screen, the one that was there before, but
   * what the user asks for comes.
   */
  admits(document: vscode.TextDocument, version: number, position: vscode.Position, byItself: boolean): boolean {
    if (byItself && this.isDrawn) {
      return false;
    }
    this.ghost = { document, version, position };
    this.end('replaced');
    return true;
  }

  /** Go there where it is far, apply it where it is near. Where it is not on screen any more, Tab is Tab. */
  tab(): Promise<unknown> {
    return (this.keys = this.keys.then(() => (this.isDrawn && this.isOnTab ? this.take() : vscode.commands.executeCommand('tab'))));
  }

  /** The same by another key, which is nothing else's. */
  async take(): Promise<void> {
    await (this.near === undefined ? this.jump() : this.accept());
  }

  async jump(): Promise<void> {
    const { offer } = this;
    if (offer === undefined || this.taking) {
      return;
    }
    this.taking = true;
    try {
      const target = (offer.target ??= await this.opened(offer));
      if (target === undefined || target.document.version !== target.version) {
        this.end('hidden');
        return;
      }
      const at = target.document.positionAt(target.edit.start);
      offer.jumpedTo = at;
      await vscode.window.showTextDocument(target.document, { selection: new vscode.Range(at, at) });
      if (this.offer === offer) {
        void this.client()?.sendNotification(JUMPED, { id: offer.id });
        offer.line = at.line;
        offer.moves = 0;
      }
    } finally {
      this.taking = false;
    }
    if (this.offer === offer && offer.item.data?.jumpOnly) {
      this.offer = undefined; // there is nothing to apply, and it was taken
    }
    this.draw();
  }

  /** Apply it as one step of undo. Only what is drawn where the keys go: nothing is accepted unseen. */
  async accept(): Promise<void> {
    const { offer, editor, near } = this;
    if (offer === undefined || editor === undefined || near === undefined || this.taking) {
      return;
    }
    const { document, edit } = near;
    const range = new vscode.Range(document.positionAt(edit.start), document.positionAt(edit.start + edit.old.length));
    this.taking = true;
    this.stopAsking(); // an answer that comes before the editor has told of the edit would be drawn of the text as it was, and stay
    try {
      this.offer = undefined;
      this.draw();
      // Refused by the editor where the text is another one by now.
      if (await editor.edit((builder) => builder.replace(range, edit.text), { undoStopBefore: true, undoStopAfter: true })) {
        const end = document.positionAt(edit.start + edit.text.length);
        editor.selection = new vscode.Selection(end, end);
        editor.revealRange(editor.selection);
        const accepted = { command: ACCEPTED, arguments: [offer.id] };
        void this.client()?.sendRequest('workspace/executeCommand', accepted).then(undefined, () => undefined);
        this.ask(0);
      } else {
        this.tell(offer, 'hidden');
      }
    } finally {
      this.taking = false;
    }
  }

  /** The user does not want it: until something is typed there is none. */
  dismiss(): void {
    this.quiet = true;
    this.stopAsking();
    this.end('rejected');
  }

  dispose(): void {
    this.reset();
    this.ink.dispose();
    for (const one of this.listening) {
      one.dispose();
    }
  }

  private get editor(): vscode.TextEditor | undefined {
    const editor = vscode.window.activeTextEditor;
    return editor && vscode.languages.match(SELECTOR, editor.document) > 0 ? editor : undefined;
  }

  private get isDrawn(): boolean {
    return this.context.get(VISIBLE) ?? false;
  }

  /** In the indentation Tab indents, unless it has just brought the cursor there. */
  private get isOnTab(): boolean {
    const { editor, offer } = this;
    if (editor === undefined || offer === undefined) {
      return false;
    }
    const { active } = editor.selection;
    const left = editor.document.lineAt(active.line).text.slice(0, active.character);
    return left.trim() !== '' || offer.jumpedTo?.isEqual(active) === true;
  }

  /** The edit as it may be drawn in place: in the editor that has the keys, of the text as it is, near the cursor. */
  private get near(): Offer['target'] {
    const { editor, offer } = this;
    const target = offer?.target;
    if (editor === undefined || target === undefined || target.document !== editor.document || offer?.item.data?.jumpOnly) {
      return undefined;
    }
    if (offer?.jumpedTo?.isEqual(editor.selection.active)) {
      return target; // also where the editor has not told yet what it shows now
    }
    const { line } = target.document.positionAt(target.edit.start);
    const visible = editor.visibleRanges.map(({ start, end }) => ({ first: start.line, last: end.line }));
    return isNear(editor.selection.active.line, line, visible) ? target : undefined;
  }

  private changed({ document, contentChanges, reason }: vscode.TextDocumentChangeEvent): void {
    if (contentChanges.length === 0 || this.taking) {
      return;
    }
    const target = this.offer?.target;
    const undone = reason !== undefined;
    if (target?.document === document) {
      const [change, ...more] = contentChanges;
      const step = { start: change!.rangeOffset, end: change!.rangeOffset + change!.rangeLength, text: change!.text };
      const left = undone || more.length || document !== this.editor?.document ? null : typedAlong(target.edit, step);
      if (left && (left.old || left.text)) {
        target.edit = left;
        target.begun = true;
        target.version = document.version;
        this.draw();
        return; // and no question: what is on screen is the answer
      }
    }
    if (document !== this.editor?.document && target?.document !== document) {
      return;
    }
    this.end('typed');
    this.quiet = undone;
    if (undone) {
      this.stopAsking();
    } else {
      this.ask(DEBOUNCE_MS);
    }
  }

  private moved({ textEditor, selections }: vscode.TextEditorSelectionChangeEvent): void {
    if (textEditor !== this.editor || this.taking) {
      return;
    }
    const { offer } = this;
    if (offer === undefined) {
      this.ask(DEBOUNCE_MS);
      return;
    }
    const line = selections[0]?.active.line ?? offer.line;
    offer.moves += line === offer.line ? 0 : 1;
    offer.line = line;
    if (offer.moves > MOVES_MAX) {
      this.quiet = true;
      this.end('moved');
    } else {
      this.draw();
    }
  }

  private switched(): void {
    const { editor, offer } = this;
    if (offer?.jumpedTo !== undefined && offer.target?.document === editor?.document) {
      this.draw(); // it jumped here
    } else if (!this.taking) {
      this.end('hidden');
      this.ask(DEBOUNCE_MS);
    }
  }

  private stopAsking(): void {
    clearTimeout(this.timer);
    this.asking?.cancel();
    this.asking?.dispose();
    this.asking = undefined;
  }

  private ask(delay_ms: number): void {
    this.stopAsking();
    const client = this.client();
    const serves = client?.initializeResult?.capabilities.experimental?.foretype?.nextEdit === true;
    if (this.quiet || !this.on() || !serves || !client?.isRunning() || this.editor === undefined) {
      return;
    }
    const cancelled = (this.asking = new vscode.CancellationTokenSource());
    this.timer = setTimeout(() => void this.asked(client, cancelled.token), delay_ms);
  }

  private async asked(client: LanguageClient, cancelled: vscode.CancellationToken): Promise<void> {
    const { editor } = this;
    if (editor === undefined || !editor.selection.isEmpty || editor.selections.length > 1) {
      return;
    }
    const { document } = editor;
    const { version } = document;
    const asked_ms = Date.now();
    const { asUri, asPosition } = client.code2ProtocolConverter;
    const params: Asked = { textDocument: { uri: asUri(document.uri), version }, position: asPosition(editor.selection.active) };
    const isPast = () => cancelled.isCancellationRequested || editor !== this.editor || document.version !== version;
    const answer = await client.sendRequest<Answer>(ASK, params, cancelled).catch(() => undefined); // the client logs what is wrong
    const item = answer?.edits[0];
    if (item === undefined || isPast()) {
      return;
    }
    const { ghost } = this;
    if (ghost?.document === document && ghost.version === version) {
      if (ghost.position.isEqual(editor.selection.active)) {
        return; // an inline suggestion is on screen; where it goes without a key typed, this is asked again
      }
      // A cursor that moves takes a suggestion away that is drawn; one that was on its way then is drawn all the same
      // (inlineCompletionsController.ts), and Tab would take it.
      await vscode.commands.executeCommand('editor.action.inlineSuggest.hide');
      if (isPast()) {
        return;
      }
    }
    const [id] = item.command.arguments;
    const uri = client.protocol2CodeConverter.asUri(item.textDocument.uri);
    const offer: Offer = { id, uri, item, asked_ms, target: undefined, jumpedTo: undefined, line: editor.selection.active.line, moves: 0 };
    const known = vscode.workspace.textDocuments.find((one) => one.uri.toString() === uri.toString());
    offer.target = known && this.placed(client, known, item);
    if (known && offer.target === undefined) {
      return;
    }
    this.end('replaced');
    this.offer = offer;
    this.draw();
    void client.sendNotification(SHOWN, { item });
  }

  /** The edit as characters of an open document; undefined where it was made for another version. */
  private placed(client: LanguageClient, document: vscode.TextDocument, item: Item): Offer['target'] {
    if (item.textDocument.version !== document.version) {
      return undefined;
    }
    const range = client.protocol2CodeConverter.asRange(item.range);
    const eol = document.eol === vscode.EndOfLine.CRLF ? '\r\n' : '\n';
    const whole = { start: document.offsetAt(range.start), old: document.getText(range), text: item.text.replace(/\r\n|\r|\n/g, eol) };
    const edit = item.data?.jumpOnly ? whole : trimmed(whole);
    return edit.old || edit.text || item.data?.jumpOnly ? { document, version: document.version, edit, begun: false } : undefined;
  }

  /** Opens the file of an edit; undefined where it was written since the server was asked. */
  private async opened({ uri, item, asked_ms }: Offer): Promise<Offer['target']> {
    const client = this.client();
    const stat = await vscode.workspace.fs.stat(uri).then((found) => found, () => undefined);
    if (client === undefined || stat === undefined || stat.mtime > asked_ms) {
      return undefined;
    }
    const document = await vscode.workspace.openTextDocument(uri);
    return this.placed(client, document, { ...item, textDocument: { ...item.textDocument, version: document.version } });
  }

  private end(reason: Reason): void {
    if (this.offer !== undefined) {
      this.tell(this.offer, reason);
      this.offer = undefined;
      this.draw();
    }
  }

  private tell({ id }: Offer, reason: Reason): void {
    void this.client()?.sendNotification(ENDED, { id, reason }).catch(() => undefined);
  }

  /** Makes the screen what the state is: in place where it is near, else a hint; nothing while something is selected. */
  private draw(): void {
    const { editor, offer } = this;
    const old = offer?.target;
    if (old !== undefined && old.document.version !== old.version) {
      this.end('hidden');
      return;
    }
    const isSingle = editor !== undefined && editor.selections.length === 1 && editor.selection.isEmpty;
    if (offer === undefined || !isSingle) {
      this.ink.clear();
      this.say(VISIBLE, false);
      this.say(ON_TAB, false);
      return;
    }
    this.say(VISIBLE, true); // before anything is seen: who sees it may press the key at once
    this.say(ON_TAB, this.isOnTab);
    const { near } = this;
    if (near !== undefined) {
      const { document, edit, begun } = near;
      const [from, to] = [document.positionAt(edit.start), document.positionAt(edit.start + edit.old.length)];
      this.ink.edit(editor, drawing((line) => document.lineAt(line).text, from, to, edit.text, begun));
    } else {
      const { line } = old ? old.document.positionAt(old.edit.start) : offer.item.range.start;
      const cursor = editor.selection.active.line;
      this.ink.far(editor, cursor, hint(cursor, line, nameOf(offer.uri, editor.document), this.isOnTab ? 'Tab' : KEY));
    }
  }

  private say(key: string, value: boolean): void {
    if (this.context.get(key) !== value) {
      this.context.set(key, value);
      void vscode.commands.executeCommand('setContext', key, value);
    }
  }
}
