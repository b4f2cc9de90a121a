import * as path from 'node:path';

import * as vscode from 'vscode';

/** How a hint names another document than the one it is shown in: a cell by its number, else the file. */
export function nameOf(uri: vscode.Uri, from: vscode.TextDocument): string | undefined {
  if (uri.toString() === from.uri.toString()) {
    return undefined;
  }
  const file = path.posix.basename(uri.path);
  const cell = cellOf(uri);
  if (cell === undefined) {
    return file;
  }
  const name = `cell ${cell.index + 1}`;
  return cell.notebook === cellOf(from.uri)?.notebook ? name : `${file}, ${name}`;
}

function cellOf(uri: vscode.Uri): vscode.NotebookCell | undefined {
  const key = uri.toString();
  for (const notebook of vscode.workspace.notebookDocuments) {
    const cell = notebook.getCells().find(({ document }) => document.uri.toString() === key);
    if (cell !== undefined) {
      return cell;
    }
  }
  return undefined;
}
