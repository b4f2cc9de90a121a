import * as vscode from 'vscode';

const REST_MS = 100;

/** Tells where the cursor rests after it was moved without typing, so that the server may prepare that place. */
export class Rested implements vscode.Disposable {
  private readonly versions = new WeakMap<vscode.TextDocument, number>();
  private readonly written = new WeakMap<vscode.TextDocument, vscode.Position>();
  private readonly listening = [
    vscode.workspace.onDidChangeTextDocument((event) => this.changed(event)),
    vscode.window.onDidChangeTextEditorSelection((event) => this.moved(event)),
  ];
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly tell: (document: vscode.TextDocument, position: vscode.Position) => void) {}

  /** Remembers where the last change ends: that is where the cursor comes to when it was typed. */
  private changed({ document, contentChanges }: vscode.TextDocumentChangeEvent): void {
    const change = contentChanges.at(-1);
    if (change) {
      this.written.set(document, document.positionAt(change.rangeOffset + change.text.length));
    }
  }

  private moved({ textEditor, selections }: vscode.TextEditorSelectionChangeEvent): void {
    const { document } = textEditor;
    const { version } = document;
    const position = selections[0]?.active;
    // The first move after a change is the change's own. Moves come late where the editor is busy: the first is then that of a
    // change before, and the change's own is known by its place. Once: who comes back to that place has moved.
    const wrote = position !== undefined && this.written.get(document)?.isEqual(position);
    const typed = wrote || this.versions.get(document) !== version;
    if (wrote) {
      this.written.delete(document);
    }
    this.versions.set(document, version);
    clearTimeout(this.timer);
    if (typed || selections.length !== 1 || !position || !selections[0]?.isEmpty) {
      return;
    }
    this.timer = setTimeout(() => document.version === version && this.tell(document, position), REST_MS);
  }

  dispose(): void {
    clearTimeout(this.timer);
    for (const one of this.listening) {
      one.dispose();
    }
  }
}
