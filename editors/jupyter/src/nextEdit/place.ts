/** Where the keys go: a cell of code whose editor has the focus; and how to bring them to another cell. */
import type { Cell, CellWidget, Editor, Panel, Tracker } from '../lab';

export interface Here {
  panel: Panel;
  cell: Cell;
  editor: Editor;
}

export function focused(tracker: Tracker): Here | undefined {
  const panel = tracker.currentWidget;
  const active = panel?.content.activeCell;
  const cell = active?.model.sharedModel;
  const editor = active?.editor;
  return panel && cell?.cell_type === 'code' && editor?.hasFocus() ? { panel, cell, editor } : undefined;
}

export const cursorOf = ({ editor }: Here): number => editor.editor.state.selection.main.head;

/** The cursor's line, counted from 0. */
export const lineHere = (here: Here): number => here.editor.editor.state.doc.lineAt(cursorOf(here)).number - 1;

export function isSingleCursor({ editor }: Here): boolean {
  const { ranges, main } = editor.editor.state.selection;
  return ranges.length === 1 && main.empty;
}

/** In the indentation Tab indents. */
export function isInIndentation(here: Here): boolean {
  const at = cursorOf(here);
  const { text, from } = here.editor.editor.state.doc.lineAt(at);
  return !text.slice(0, at - from).trim();
}

/** An inline suggestion, of whomever, is in that editor. */
export const hasGhost = ({ editor }: Here): boolean => editor.host.classList.contains('jp-mod-inline-completer-active');

/** A menu or a tip is open, and has the keys. */
export const hasPopup = ({ editor }: Here): boolean =>
  editor.host.classList.contains('jp-mod-completer-active') || document.body.classList.contains('jp-mod-tooltip');

export function isOnScreen({ editor }: Here, at: number): boolean {
  const place = editor.editor.coordsAtPos(at);
  const screen = (editor.host.closest('.jp-WindowedPanel-outer') ?? document.documentElement).getBoundingClientRect();
  return place !== null && place.bottom > Math.max(screen.top, 0) && place.top < Math.min(screen.bottom, window.innerHeight);
}

/** Which of a notebook's cells it is as they stand, from 0; -1 where it is none of them. */
export const indexOf = ({ content }: Panel, cell: Cell): number => content.widgets.findIndex(({ model }) => model.sharedModel === cell);

/** Bring keys and cursor to a character of a cell, and that on the screen. Whether it is there. */
export async function goTo(panel: Panel, cell: Cell, at: number): Promise<boolean> {
  const { content } = panel;
  const find = (): CellWidget | undefined => content.widgets[indexOf(panel, cell)];
  const widget = find();
  if (widget === undefined) {
    return false;
  }
  content.activeCellIndex = indexOf(panel, cell);
  content.mode = 'edit';
  if (!widget.inViewport) {
    await content.scrollToItem(content.activeCellIndex).catch(() => undefined); // it may be there meanwhile
    await widget.ready; // its editor is made when it is seen
  }
  const { editor } = widget;
  if (editor === null || find() !== widget || at > cell.getSource().length) {
    return false;
  }
  editor.focus();
  editor.editor.dispatch({ selection: { anchor: at }, scrollIntoView: true });
  return true;
}
