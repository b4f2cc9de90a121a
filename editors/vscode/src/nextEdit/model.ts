/** A next edit on the screen: near or far, how it is drawn, and what is left of it when the user types it. Knows no editor. */

/** `old` at character `start` of a text (UTF-16, as all here) is to become `text`. */
export interface Replacement {
  start: number;
  old: string;
  text: string;
}

/** What the user did: characters `start` to `end` became `text`. */
export interface Change {
  start: number;
  end: number;
  text: string;
}

export interface Place {
  line: number;
  character: number;
}

/** Both together are all that applying an edit does: who takes out what is struck and puts in what is added has the text after. */
export interface Drawing {
  /** Characters of a line that go. */
  struck: { line: number; from: number; to: number }[];
  /** Lines that go with their line break. */
  gone: number[];
  /** Text that comes into a line. */
  added: { line: number; at: number; text: string }[];
  /** Lines that come, behind `line`. */
  below: { line: number; lines: string[] } | undefined;
}

const NEAR_LINES = 2;
const WORD = /[\p{L}\p{N}_]/u;

/** Whether the edit can be seen from where the cursor is: on screen, on its line or just below. */
export function isNear(cursor: number, line: number, visible: readonly { first: number; last: number }[]): boolean {
  return line >= cursor && line <= cursor + NEAR_LINES && visible.some(({ first, last }) => first <= line && line <= last);
}

/** The hint at the end of the cursor's line. `line` counts from 0, `file` names another file, `key` is the one that jumps. */
export function hint(cursor: number, line: number, file: string | undefined, key: string): string {
  const place = file === undefined ? `line ${line + 1} ${line < cursor ? '↑' : '↓'}` : `${file}, line ${line + 1}`;
  return `→ next edit: ${place} (${key})`;
}

/** Without what `old` and `text` have in common at both ends. */
export function trimmed({ start, old, text }: Replacement): Replacement {
  const { head, tail } = common(old, text);
  return { start: start + head, old: old.slice(head, old.length - tail), text: text.slice(head, text.length - tail) };
}

/**
 * What is left of a trimmed edit after a change; null where the change is none of its steps.
 *
 * A step takes away of what goes, or brings what comes; what it brought must be in the text that the edit leads to.
 */
export function typedAlong(edit: Replacement, change: Change): Replacement | null {
  const from = change.start - edit.start;
  const to = change.end - edit.start;
  if (from < 0 || to > edit.old.length) {
    return null;
  }
  const now = edit.old.slice(0, from) + change.text + edit.old.slice(to);
  const { head, tail } = common(now, edit.text);
  const kept = from + change.text.length <= head || from >= now.length - tail;
  return kept ? trimmed({ start: edit.start, old: now, text: edit.text }) : null;
}

/**
 * How an edit is drawn: lines are compared in pairs, a word that is replaced by another is struck as a whole, lines that have no partner
 * go or come as a whole. `begun`: the user types it, and what is typed of a word stays.
 */
export function drawing(lineAt: (line: number) => string, from: Place, to: Place, text: string, begun = false): Drawing {
  const old: string[] = [];
  for (let line = from.line; line <= to.line; line += 1) {
    old.push(lineAt(line));
  }
  const after = (old.at(-1) ?? '').slice(to.character);
  const now = ((old[0] ?? '').slice(0, from.character) + text + after).split(/\r\n|\r|\n/);
  let first = from.line;
  while (old.length && now.length && old[0] === now[0]) {
    old.shift();
    now.shift();
    first += 1;
  }
  // A line that comes needs one above it to hang from: at the very top the first line is compared with it instead.
  while (old.length && now.length && old.at(-1) === now.at(-1) && (old.length > 1 || first > 0)) {
    old.pop();
    now.pop();
  }
  const pairs = Math.min(old.length, now.length);
  const drawn: Drawing = { struck: [], gone: [], added: [], below: undefined };
  for (let index = 0; index < pairs; index += 1) {
    const { head, tail } = (begun ? common : words)(old[index]!, now[index]!);
    const line = first + index;
    const end = old[index]!.length - tail;
    const comes = now[index]!.slice(head, now[index]!.length - tail);
    if (end > head) {
      drawn.struck.push({ line, from: head, to: end });
    }
    if (comes) {
      drawn.added.push({ line, at: end, text: comes });
    }
  }
  for (let index = pairs; index < old.length; index += 1) {
    drawn.gone.push(first + index);
  }
  if (now.length > pairs) {
    drawn.below = { line: first + pairs - 1, lines: now.slice(pairs) };
  }
  return drawn;
}

/** How much two texts share at either end, the ends not overlapping and no character cut in two. */
function common(one: string, other: string): { head: number; tail: number } {
  const most = Math.min(one.length, other.length);
  let head = 0;
  while (head < most && one[head] === other[head]) {
    head += 1;
  }
  if (cuts(one, head) || cuts(other, head)) {
    head -= 1;
  }
  let tail = 0;
  while (tail < most - head && one.at(-1 - tail) === other.at(-1 - tail)) {
    tail += 1;
  }
  if (cuts(one, one.length - tail) || cuts(other, other.length - tail)) {
    tail -= 1;
  }
  return { head, tail };
}

/** Whether a cut at `at` would part a surrogate pair or a line break of two characters. */
function cuts(text: string, at: number): boolean {
  const pair = text.slice(Math.max(at - 1, 0), at + 1);
  return pair === '\r\n' || /^[\ud800-\udbff][\udc00-\udfff]$/.test(pair);
}

/** As `common`, but a word that is replaced by another is replaced as a whole. */
function words(old: string, now: string): { head: number; tail: number } {
  let { head, tail } = common(old, now);
  if (old.length - tail > head && now.length - tail > head) {
    while (head > 0 && WORD.test(old[head - 1]!) && (WORD.test(old[head]!) || WORD.test(now[head]!))) {
      head -= 1;
    }
    while (tail > 0 && WORD.test(old.at(-tail)!) && (WORD.test(old.at(-1 - tail)!) || WORD.test(now.at(-1 - tail)!))) {
      tail -= 1;
    }
  }
  return { head, tail };
}
