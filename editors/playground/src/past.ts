/** What happened to the text, for the gateway's rules: they keep nothing, so that each question brings it. */
import type { Text, Transaction } from '@codemirror/state';
import { type Next, TAKEN } from './next';

const MOST = 128;
const MOST_EDITS = 64;

type Kind = 'typed' | 'suggested' | 'accepted' | 'refused';
type Edit = [start: number, end: number, text: string];

/** Offsets of the gateway are code points, those of a browser units of UTF-16. */
const PAIR = /[\ud800-\udbff][\udc00-\udfff]/;
const points = (doc: Text, at: number): number => {
  const before = doc.sliceString(0, at);
  return PAIR.test(before) ? [...before].length : at;
};
export const units = (doc: Text, at: number): number => {
  const text = doc.toString();
  return PAIR.test(text) ? [...text].slice(0, at).join('').length : at;
};

export class Past {
  private happened: { kind: Kind; at: number; before: Text; edits: Edit[] }[] = [];

  changed(transaction: Transaction): void {
    const before = transaction.startState.doc;
    const edits: Edit[] = [];
    // From the last to the first, so that each is of the text that the one before it left.
    transaction.changes.iterChanges((from, to, _from, _to, text) =>
      edits.unshift([points(before, from), points(before, to), text.toString()]),
    );
    if (edits.length > MOST_EDITS) {
      this.happened = [];
      return;
    }
    const kind = transaction.isUserEvent(TAKEN) ? 'accepted' : transaction.isUserEvent('input.complete') ? 'suggested' : 'typed';
    this.note(kind, before, edits);
  }

  refused(doc: Text, { from, to, text }: Next): void {
    this.note('refused', doc, [[points(doc, from), points(doc, to), text]]);
  }

  /** Nothing has happened yet that something could follow from. */
  get isEmpty(): boolean {
    return this.happened.length === 0;
  }

  /** The question for the next edit. */
  question(doc: Text, cursor: number): object {
    const now = performance.now();
    return {
      text: (this.happened[0]?.before ?? doc).toString(),
      cursor: points(doc, cursor),
      happened: this.happened.map(({ kind, at, edits }) => ({ kind, ago_ms: now - at, edits })),
    };
  }

  private note(kind: Kind, before: Text, edits: Edit[]): void {
    this.happened.push({ kind, at: performance.now(), before, edits });
    if (this.happened.length > MOST) {
      this.happened.shift();
    }
  }
}
