import * as vscode from 'vscode';

const PAUSE_MS = 100; // of growth: several lines that come at once are drawn once

/** Asks again when the server has more of what is shown. */
export class Grown implements vscode.Disposable {
  private asked: { document: vscode.TextDocument; version: number } | undefined;
  private timer: NodeJS.Timeout | undefined;

  /** VS Code asks for this document, by itself or because somebody, we among them, told it to. */
  noted(document: vscode.TextDocument): void {
    clearTimeout(this.timer);
    this.asked = { document, version: document.version };
  }

  grew(document: vscode.TextDocument): void {
    const { asked } = this;
    if (asked?.document === document && asked.version === document.version) { // a change asks by itself
      clearTimeout(this.timer);
      this.timer = setTimeout(() => void this.anew(document, asked.version), PAUSE_MS);
    }
  }

  /**
   * What is shown has to go first. VS Code keeps it before whatever a question by hand brings (`preserveCurrentCompletion` in
   * inlineCompletionsModel.ts), and asks no second such question for the same text and position (`UpdateRequest.satisfies` in
   * inlineCompletionsSource.ts). Telling it of changes itself is not in the stable API.
   */
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
