import * as vscode from 'vscode';
import { type LanguageClient, ProgressType } from 'vscode-languageclient/node';

const SCHEME = 'foretype-chat';

/** Commands of the server (docs/protocol.md). */
export const EXPLAIN = 'foretype.chat.explain';
export const DOCUMENT = 'foretype.chat.document';
export const COMPLETE = 'foretype.chat.completeFunction';

const TITLES: Record<string, string> = {
  [EXPLAIN]: 'Foretype explains',
  [DOCUMENT]: 'Foretype documents',
  [COMPLETE]: 'Foretype completes the function',
};

export interface Target {
  textDocument: { uri: string };
  range: unknown;
}

interface Result {
  kind: string;
  text: string;
  applied?: boolean;
  reason?: string;
}

/** Asks the gateway's larger models. An explanation is shown as it is written, in a document that nobody has to save. */
export class Chat implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  private readonly uri = vscode.Uri.from({ scheme: SCHEME, path: 'Foretype explains.md' });
  private text = '';
  private count = 0;
  private opening: Promise<unknown> | undefined;

  readonly onDidChange = this.changed.event;

  provideTextDocumentContent(): string {
    return this.text;
  }

  /** Run one of the commands on `target`, or on what is selected. Whatever goes wrong is said: the user asked for this. */
  async run(client: LanguageClient, command: string, target?: Target): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    const about = target ?? (editor && {
      textDocument: { uri: client.code2ProtocolConverter.asUri(editor.document.uri) },
      range: client.code2ProtocolConverter.asRange(editor.selection),
    });
    if (about === undefined) {
      void vscode.window.showWarningMessage('Foretype: open a file and put the cursor into a function first');
      return;
    }
    const token = `foretype-chat-${++this.count}`;
    const shown = { location: vscode.ProgressLocation.Notification, title: TITLES[command] ?? command, cancellable: true };
    await vscode.window.withProgress(shown, async (progress, cancelled) => {
      let written = '';
      const pieces = client.onProgress(new ProgressType<{ text: string }>(), token, ({ text }) => {
        written += text;
        if (command === EXPLAIN) {
          void this.show(written);
        } else {
          progress.report({ message: written.trimEnd().split('\n').pop() ?? '' });
        }
      });
      const { textDocument, range } = about;
      const asked = { command, arguments: [{ textDocument, range, partialResultToken: token }] };
      try {
        const result = await client.sendRequest<Result>('workspace/executeCommand', asked, cancelled);
        if (command === EXPLAIN) {
          await this.show(`${result.text}\n`);
        } else if (!result.applied) {
          void vscode.window.showWarningMessage(`Foretype: nothing was changed: ${result.reason ?? ''}`);
        }
      } catch (error) {
        if (!cancelled.isCancellationRequested) {
          void vscode.window.showWarningMessage(`Foretype: ${error instanceof Error ? error.message : String(error)}`);
        }
      } finally {
        pieces.dispose();
      }
    });
  }

  dispose(): void {
    this.registered.dispose();
    this.changed.dispose();
  }

  private async show(text: string): Promise<void> {
    this.text = text;
    if (!vscode.window.visibleTextEditors.some(({ document }) => document.uri.toString() === this.uri.toString())) {
      const beside = { preview: true, preserveFocus: true, viewColumn: vscode.ViewColumn.Beside };
      this.opening ??= Promise.resolve(vscode.window.showTextDocument(this.uri, beside)).finally(() => (this.opening = undefined));
      await this.opening;
    }
    this.changed.fire(this.uri); // a document that is only being opened does not hear of it
  }
}
