import * as vscode from 'vscode';

const REST_MS = 100;

/** Tells where the cursor rests after it was moved without typing, so that the server may prepare that place. */
export class Rested implements vscode.Disposable {
  private readonly versions = new WeakMap<vscode.TextDocument, number>();
  private readonly selected = vscode.window.onDidChangeTextEditorSelection((event) => this.moved(event));
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly tell: (document: vscode.TextDocument, position: vscode.Position) => void) {}

  private moved({ textEditor, selections }: vscode.TextEditorSelectionChangeEvent): void {
    const { document } = textEditor;
    const { version } = document;
    const typed = this.versions.get(document) !== version;
    this.versions.set(document, version);
    clearTimeout(this.timer);
    if (typed || selections.length !== 1 || !selections[0]?.isEmpty) {
      return;
    }
    const position = selections[0].active;
    this.timer = setTimeout(() => document.version === version && this.tell(document, position), REST_MS);
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.selected.dispose();
  }
}
