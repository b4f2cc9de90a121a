/** Places in a text by LSP's line and character (UTF-16 units), and what a change of JupyterLab's is to LSP. */
import type { Step } from './lab';

export interface Place {
  line: number;
  character: number;
}

export interface Change {
  text: string;
  range?: { start: Place; end: Place };
}

/** JupyterLab's texts have line ends of `\n` alone. */
export function placeOf(text: string, offset: number): Place {
  const before = text.slice(0, offset);
  return { line: before.split('\n').length - 1, character: offset - (before.lastIndexOf('\n') + 1) };
}

export function offsetOf(text: string, { line, character }: Place): number {
  const above = text.split('\n').slice(0, line);
  return above.reduce((length, one) => length + one.length + 1, character);
}

/** The line, counted from 0, that a character is in. */
export function lineOf(text: string, offset: number): number {
  return placeOf(text, offset).line;
}

/** The changes that make `text` of `old`: the steps that were told, or the whole text where these make something else. */
export function changes(old: string, text: string, steps: readonly Step[]): Change[] {
  const made: Change[] = [];
  let now = old;
  let offset = 0;
  for (const { retain = 0, insert = '', delete: removed = 0 } of steps) {
    offset += retain;
    if (insert || removed) {
      const last = made.at(-1);
      const range = { start: placeOf(now, offset), end: placeOf(now, offset + removed) };
      if (last?.range && insert && !last.text && same(last.range.start, range.start)) {
        last.text = insert; // what was deleted is replaced: one change to whoever typed over a selection
      } else {
        made.push({ text: insert, range });
      }
      now = now.slice(0, offset) + insert + now.slice(offset + removed);
      offset += insert.length;
    }
  }
  return now === text ? made : [{ text }];
}

function same(a: Place, b: Place): boolean {
  return a.line === b.line && a.character === b.character;
}
