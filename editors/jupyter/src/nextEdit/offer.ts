/** A next edit of a cell: what is left of it as that cell's text changes, and how it is seen from where the cursor is. */
import { drawing, hint, isNear, type Replacement, trimmed, typedAlong } from '../../../vscode/src/nextEdit/model';
import type { Item } from '../../../vscode/src/nextEdit/protocol';
import type { Cell, Panel } from '../lab';
import { type Change, lineOf, offsetOf, placeOf } from '../positions';
import type { Ink } from './drawing';
import { cursorOf, type Here, indexOf, isOnScreen, lineHere } from './place';

/** `edit` of `text`, which the cell must still have when it is drawn or taken. `begun`: the user types it. */
export interface Offer {
  readonly id: string;
  readonly panel: Panel;
  readonly cell: Cell;
  readonly jumpOnly: boolean;
  text: string;
  edit: Replacement;
  begun: boolean;
  jumpedTo: number | undefined; // character of the cell
}

/** The answer as an edit of a cell; undefined where it was made for another text. */
export function offered(item: Item, panel: Panel, cell: Cell): Offer | undefined {
  const text = cell.getSource();
  const [start, end] = [offsetOf(text, item.range.start), offsetOf(text, item.range.end)];
  const old = text.slice(start, end);
  const edit = trimmed({ start, old, text: item.text });
  const jumpOnly = item.data?.jumpOnly ?? false;
  if ((item.data?.replaces ?? old) !== old || !(edit.old || edit.text || jumpOnly)) {
    return undefined;
  }
  return { id: item.command.arguments[0], panel, cell, jumpOnly, text, edit, begun: false, jumpedTo: undefined };
}

/** Whether the cell is there, and has the text that it was made for. */
export const isCurrent = ({ panel, cell, text }: Offer): boolean => indexOf(panel, cell) >= 0 && cell.getSource() === text;

/** Make it what is left of it after changes of its cell; false where they are none of its steps. */
export function typed(offer: Offer, [change, ...more]: readonly Change[]): boolean {
  if (change?.range === undefined || more.length || offer.jumpOnly) {
    return false;
  }
  const { start, end } = change.range;
  const step = { start: offsetOf(offer.text, start), end: offsetOf(offer.text, end), text: change.text };
  const left = typedAlong(offer.edit, step);
  if (!left || !(left.old || left.text)) {
    return false;
  }
  Object.assign(offer, { edit: left, begun: true, text: offer.cell.getSource() });
  return true;
}

/** Whether the cursor is where a jump has brought it. */
export const isWhereJumped = (offer: Offer, here: Here): boolean => offer.cell === here.cell && offer.jumpedTo === cursorOf(here);

/** Whether it is drawn in place, and may be applied there. */
export function isDrawnInPlace(offer: Offer, here: Here): boolean {
  if (offer.cell !== here.cell || offer.jumpOnly) {
    return false;
  }
  const { start } = offer.edit;
  const line = lineOf(offer.text, start);
  return isWhereJumped(offer, here) || isNear(lineHere(here), line, isOnScreen(here, start) ? [{ first: line, last: line }] : []);
}

/** `key` is the one that jumps. */
export function show(offer: Offer, here: Here, ink: Ink, key: string): void {
  const view = here.editor.editor;
  const { start, old, text } = offer.edit;
  if (isDrawnInPlace(offer, here)) {
    const [from, to] = [placeOf(offer.text, start), placeOf(offer.text, start + old.length)];
    ink.edit(view, drawing((line) => view.state.doc.line(line + 1).text, from, to, text, offer.begun));
  } else {
    const other = offer.cell === here.cell ? undefined : `cell ${indexOf(offer.panel, offer.cell) + 1}`;
    ink.far(view, lineHere(here), hint(lineHere(here), lineOf(offer.text, start), other, key));
  }
}
