import * as vscode from 'vscode';

import type { Drawing } from './model';

const COMES = new vscode.ThemeColor('diffEditor.insertedTextBackground');
const OVER = 'background: linear-gradient(var(--vscode-diffEditor-insertedTextBackground) 0 0), var(--vscode-editor-background)';
const GOES = new vscode.ThemeColor('diffEditor.removedTextBackground');

/** Draws with decorations of its own, beside those of others: nothing in the text moves but what stands right of an addition. */
export class Ink implements vscode.Disposable {
  private readonly struck = vscode.window.createTextEditorDecorationType({ backgroundColor: GOES, textDecoration: 'line-through' });
  private readonly gone = vscode.window.createTextEditorDecorationType({
    isWholeLine: true, backgroundColor: GOES, textDecoration: 'line-through',
  });
  private readonly added = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed });
  private readonly hint = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed });
  private drawn: vscode.TextEditor | undefined;

  edit(editor: vscode.TextEditor, { struck, gone, added, below }: Drawing): void {
    this.clear(editor);
    editor.setDecorations(this.struck, struck.map(({ line, from, to }) => new vscode.Range(line, from, line, to)));
    editor.setDecorations(this.gone, gone.map((line) => editor.document.lineAt(line).range));
    const inside = added.map(({ line, at, text }) => put(line, at, { contentText: shown(text), backgroundColor: COMES }));
    // The stable interface has no lines between lines: they lie over those below, which stay where they are.
    const over = (below?.lines ?? []).map((text, index) =>
      put(below!.line, editor.document.lineAt(below!.line).text.length, {
        contentText: shown(text) || '\u00a0',
        textDecoration: `none; position: absolute; z-index: 1; left: 0; width: 100vw; top: ${index + 1}00%; ${OVER}`,
      }),
    );
    editor.setDecorations(this.added, [...inside, ...over]);
  }

  far(editor: vscode.TextEditor, line: number, text: string): void {
    this.clear(editor);
    const look = { contentText: text, color: new vscode.ThemeColor('editorCodeLens.foreground'), fontStyle: 'italic', margin: '0 0 0 2em' };
    editor.setDecorations(this.hint, [put(line, editor.document.lineAt(line).text.length, look)]);
  }

  /** Take everything off, wherever it is, and be ready for `next`. */
  clear(next?: vscode.TextEditor): void {
    for (const editor of new Set([this.drawn, next])) {
      for (const type of [this.struck, this.gone, this.added, this.hint]) {
        editor?.setDecorations(type, []);
      }
    }
    this.drawn = next;
  }

  dispose(): void {
    for (const type of [this.struck, this.gone, this.added, this.hint]) {
      type.dispose();
    }
  }
}

function put(line: number, at: number, after: vscode.ThemableDecorationAttachmentRenderOptions): vscode.DecorationOptions {
  return { range: new vscode.Range(line, at, line, at), renderOptions: { after } };
}

/** As it stays in a style sheet's string: blanks as they are, a tab as an arrow would be too much. */
function shown(text: string): string {
  return text.replaceAll(' ', '\u00a0').replaceAll('\t', '\u00a0\u00a0\u00a0\u00a0');
}
