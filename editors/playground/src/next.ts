/** The next edit in CodeMirror: a diff in place where it is near, the way to it where it is far; nothing moves without a key. */
import { isolateHistory } from '@codemirror/commands';
import { EditorState, Extension, Prec, StateEffect, StateField, Transaction } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, keymap } from '@codemirror/view';
import { GhostWidget, shown as ghostShown } from './ghost';

/** `text` takes the place of what stands from `from` to `to`; where only the place is known, nothing does. */
export interface Next {
  from: number;
  to: number;
  text: string;
  jumpOnly: boolean;
}

/** What becomes of one on the screen. */
export interface Listener {
  refused(next: Next): void;
  jumped(next: Next): void;
}

export const propose = StateEffect.define<Next | null>();
/** The user event of a next edit that is taken. */
export const TAKEN = 'input.complete.next';

const NEAR_LINES = 2;

/** What is left of it after a change: less, where somebody types what it says; otherwise nothing. */
function follow(next: Next, transaction: Transaction): Next | null {
  const changes: [number, number, string][] = [];
  transaction.changes.iterChanges((from, to, _from, _to, text) => changes.push([from, to, text.toString()]));
  const [from, to, typed] = changes[0]!;
  if (changes.length > 1 || next.jumpOnly || !typed || from !== next.from || to > next.to || !next.text.startsWith(typed)) {
    return null;
  }
  const left = { ...next, from: from + typed.length, to: next.to - to + from + typed.length, text: next.text.slice(typed.length) };
  return left.text || left.from < left.to ? left : null;
}

const field = StateField.define<Next | null>({
  create: () => null,
  update(next, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(propose)) {
        return effect.value;
      }
    }
    return next && transaction.docChanged ? follow(next, transaction) : next;
  },
});

/** What is on the screen of it: nothing beside a suggestion at the cursor, nor while something is selected. */
export function shown(state: EditorState): Next | null {
  return state.selection.main.empty && !ghostShown(state) ? state.field(field) : null;
}

const line = (state: EditorState, at: number): number => state.doc.lineAt(at).number;

function isNear(state: EditorState, next: Next): boolean {
  const { head } = state.selection.main;
  const below = line(state, next.from) - line(state, head);
  return !next.jumpOnly && below >= 0 && below <= NEAR_LINES;
}

/** The way there, as it stands at the end of the cursor's line. */
function way(state: EditorState, next: Next): string {
  const there = line(state, next.from);
  return `→ next edit: line ${there} ${next.from < state.selection.main.head ? '↑' : '↓'} (Tab)`;
}

/** The same in words, for who does not see it. */
export function words(state: EditorState): string {
  const next = shown(state);
  if (!next) {
    return '';
  }
  const old = state.doc.sliceString(next.from, next.to);
  const what = next.jumpOnly ? 'look here' : !next.text ? `delete ${old}` : old ? `${old} becomes ${next.text}` : `insert ${next.text}`;
  return `Next edit, line ${line(state, next.from)}: ${what}`;
}

function draw(state: EditorState): DecorationSet {
  const next = shown(state);
  if (!next) {
    return Decoration.none;
  }
  if (!isNear(state, next)) {
    const widget = Decoration.widget({ widget: new GhostWidget(way(state, next), 'next-way'), side: 2 });
    return Decoration.set([widget.range(state.doc.lineAt(state.selection.main.head).to)]);
  }
  const struck = next.from < next.to ? [Decoration.mark({ class: 'next-old' }).range(next.from, next.to)] : [];
  const added = next.text ? [Decoration.widget({ widget: new GhostWidget(next.text, 'next-new'), side: 2 }).range(next.to)] : [];
  return Decoration.set([...struck, ...added]);
}

function isVisible(view: EditorView, at: number): boolean {
  const place = view.coordsAtPos(at);
  const screen = view.scrollDOM.getBoundingClientRect();
  return place !== null && place.top >= screen.top && place.bottom <= screen.bottom;
}

/** The first key goes where it is far, the second applies it. */
function take(view: EditorView, listener: Listener): boolean {
  const { state } = view;
  const next = shown(state);
  if (!next) {
    return false;
  }
  if (isNear(state, next) && isVisible(view, next.from)) {
    view.dispatch({
      changes: { from: next.from, to: next.to, insert: next.text },
      selection: { anchor: next.from + next.text.length },
      effects: propose.of(null),
      annotations: isolateHistory.of('full'), // one undo takes it back, and nothing else
      userEvent: TAKEN,
    });
    return true;
  }
  view.dispatch({
    selection: { anchor: next.from },
    effects: [EditorView.scrollIntoView(next.from, { y: 'center' }), ...(next.jumpOnly ? [propose.of(null)] : [])],
    userEvent: 'select.next',
  });
  listener.jumped(next);
  return true;
}

function refuse(view: EditorView, listener: Listener): boolean {
  const next = shown(view.state);
  if (!next) {
    return false;
  }
  view.dispatch({ effects: propose.of(null) });
  listener.refused(next);
  return true;
}

/** Its keys while it is on the screen; behind those of a suggestion at the cursor. */
export const nextEdits = (listener: Listener): Extension => [
  field,
  EditorView.decorations.compute([field, 'doc', 'selection'], draw),
  Prec.high(
    keymap.of([
      { key: 'Tab', run: (view) => take(view, listener) },
      { key: 'Escape', run: (view) => refuse(view, listener) },
    ]),
  ),
];
