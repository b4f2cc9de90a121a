import * as vscode from 'vscode';

const PAUSE_MS = 200; // of growth, before what is shown is taken away to be asked for anew

/** Asks again when the server has more of what is shown. */
export class Grown implements vscode.Disposable {
  private asked: { document: vscode.TextDocument; version: number; byHand: boolean } | undefined;
  private timer: NodeJS.Timeout | undefined;

  /** VS Code asks for this document, by itself or because somebody, we among them, told it to. */
  noted(document: vscode.TextDocument, byHand: boolean): void {
    clearTimeout(this.timer);
    this.asked = { document, version: document.version, byHand };
  }

  grew(document: vscode.TextDocument): void {
    const { asked } = this;
    if (asked?.document !== document || asked.version !== document.version) {
      return; // a change asks by itself
    }
    if (!asked.byHand) {
      void vscode.commands.executeCommand('editor.action.inlineSuggest.trigger');
      return;
    }
    // While it has the answer to a question by hand, VS Code asks no second one for the same text and position
    // (UpdateRequest.satisfies in inlineCompletionsSource.ts): that answer has to go first.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.anew(document, asked.version), PAUSE_MS);
  }

  private async anew(document: vscode.TextDocument, version: number): Promise<void> {
    if (vscode.window.activeTextEditor?.document === document && document.version === version) {
      await vscode.commands.executeCommand('editor.action.inlineSuggest.hide');
      await vscode.commands.executeCommand('editor.action.inlineSuggest.trigger');
    }
  }

  dispose(): void {
    clearTimeout(this.timer);
  }
}
