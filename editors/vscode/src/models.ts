import * as vscode from 'vscode';
import { type LanguageClient, LSPErrorCodes, ResponseError } from 'vscode-languageclient/node';

/** Commands of the server (docs/protocol.md). */
const LIST = 'foretype.models.list';
const USE = 'foretype.models.use';

interface Row {
  asked: string;
  title: string;
  detail: string;
  current?: boolean;
  proposed?: boolean;
  here?: boolean;
  refused?: string;
}

interface Listing {
  machine: string;
  rows: Row[];
  why: string;
  notes: string[];
}

interface Taken {
  model: string;
  measured?: string | null;
}

/** Lets the user choose the private gateway's model. Whatever goes wrong is said: the user asked for this. */
export async function chooseModel(client: LanguageClient): Promise<void> {
  try {
    const listing = await withProgress('Foretype: looking at this machine', (cancelled) => execute<Listing>(client, cancelled, LIST));
    const picked = await vscode.window.showQuickPick(listing.rows.map(item), {
      title: `Foretype: a model for this machine (${listing.machine})`,
      placeHolder: listing.notes[0] ?? listing.why,
      matchOnDescription: true,
    });
    if (picked === undefined) {
      return;
    }
    const taken = await withProgress(`Foretype: taking ${picked.label}`, (cancelled) => execute<Taken>(client, cancelled, USE, picked.label));
    void vscode.window.showInformationMessage(`Foretype: ${taken.model} serves${taken.measured ? `: ${taken.measured}` : ''}`);
  } catch (error) {
    if (error instanceof ResponseError && error.code === LSPErrorCodes.RequestCancelled) {
      return; // what was downloaded stays, and the next time goes on from there
    }
    void vscode.window.showWarningMessage(`Foretype: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function item(row: Row): vscode.QuickPickItem {
  const marks = [row.current && 'serves now', row.proposed && 'proposed', row.here && !row.current && 'here already', row.refused];
  return {
    label: row.asked,
    description: marks.filter(Boolean).join(', '),
    detail: `${row.title}: ${row.detail}`,
  };
}

function execute<T>(client: LanguageClient, cancelled: vscode.CancellationToken, command: string, ...args: string[]): Promise<T> {
  return client.sendRequest<T>('workspace/executeCommand', { command, arguments: args }, cancelled);
}

function withProgress<T>(title: string, work: (cancelled: vscode.CancellationToken) => Promise<T>): Thenable<T> {
  const shown = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
  return vscode.window.withProgress(shown, (_, cancelled) => work(cancelled));
}
