import { execFile } from 'node:child_process';
import * as path from 'node:path';
import * as vscode from 'vscode';

const SCHEME = 'foretype-explain';
const PATIENCE_MS = 30_000;

/** Shows the prompt for the place of the cursor, in a document that nobody has to save. */
export class Explainer implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  private text = '';

  readonly onDidChange = this.changed.event;

  provideTextDocumentContent(): string {
    return this.text;
  }

  /** `foretype explain` for the cursor in the active editor; the file as it was saved. */
  async show(command: string, gateway: string, token: string): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (!editor || editor.document.uri.scheme !== 'file') {
      this.text = 'Put the cursor into a saved file first.';
    } else {
      const { line, character } = editor.selection.active;
      const column = [...editor.document.lineAt(line).text.slice(0, character)].length + 1;
      const note = editor.document.isDirty ? 'The file as it was saved last; it has changes since.\n\n' : '';
      this.text = note + (await this.run(command, `${editor.document.fileName}:${line + 1}:${column}`, gateway, token));
    }
    const uri = vscode.Uri.from({ scheme: SCHEME, path: 'Foretype explains.txt' });
    this.changed.fire(uri);
    await vscode.window.showTextDocument(uri, { preview: true, viewColumn: vscode.ViewColumn.Beside });
  }

  private run(command: string, place: string, gateway: string, token: string): Promise<string> {
    const more = { ...(gateway && { FORETYPE_GATEWAY: gateway }), ...(token && { FORETYPE_TOKEN: token }) };
    const options = { env: { ...process.env, COLUMNS: '140', NO_COLOR: '1', ...more }, timeout: PATIENCE_MS, cwd: path.dirname(command) };
    return new Promise((resolve) => {
      execFile(command, ['explain', place], options, (error, stdout, stderr) => resolve(error ? `${stderr || error.message}` : stdout));
    });
  }

  dispose(): void {
    this.registered.dispose();
    this.changed.dispose();
  }
}
