import * as vscode from 'vscode';

const ENABLED = 'nextEdit.enabled';
const EAGERNESS = 'nextEdit.eagerness';
const LEVELS = [
  { label: 'low', detail: 'A rename that you followed at one place, or a changed signature' },
  { label: 'medium', detail: 'Also what a renamed declaration says alone, and two edits that are alike' },
  { label: 'high', detail: 'Also what a model says' },
];

const settings = (): vscode.WorkspaceConfiguration => vscode.workspace.getConfiguration('foretype');

export const nextEditsEnabled = (): boolean => settings().get(ENABLED, true);

export async function toggleNextEdits(): Promise<void> {
  await settings().update(ENABLED, !nextEditsEnabled(), vscode.ConfigurationTarget.Global);
}

export async function chooseEagerness(): Promise<void> {
  const now = settings().get(EAGERNESS, 'low');
  const items = LEVELS.map((level) => ({ ...level, description: level.label === now ? 'now' : '' }));
  const picked = await vscode.window.showQuickPick(items, { title: 'Foretype: how sure a next edit must be' });
  if (picked) {
    await settings().update(EAGERNESS, picked.label, vscode.ConfigurationTarget.Global);
  }
}
