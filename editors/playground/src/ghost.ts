/** Ghost text in CodeMirror: drawn without moving anything, shrunk while it is typed, gone when the user goes another way. */
import { EditorState, Prec, StateEffect, StateField, Transaction } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, WidgetType, keymap } from '@codemirror/view';

/** `replaces` characters right of `position` make room for `text` when it is accepted. */
export interface Ghost {
  position: number;
  text: string;
  replaces: number;
}

export const offer = StateEffect.define<Ghost | null>();

/** A text that is not there: over the lines below where it has several. */
export class GhostWidget extends WidgetType {
  constructor(
    private readonly text: string,
    private readonly name = 'ghost',
  ) {
    super();
  }

  override eq(other: GhostWidget): boolean {
    return other.text === this.text && other.name === this.name;
  }

  toDOM(): HTMLElement {
    const [first = '', ...below] = this.text.split('\n');
    const node = document.createElement('span');
    node.className = this.name;
    node.setAttribute('aria-hidden', 'true'); // the page says it in words
    node.textContent = first;
    if (below.length) {
      // Over the lines below, which stay where they are while it grows.
      const block = document.createElement('span');
      block.className = 'ghost-below';
      block.textContent = below.join('\n');
      node.append(block);
      requestAnimationFrame(() => {
        const line = node.closest('.cm-line');
        if (line) {
          block.style.left = `${line.getBoundingClientRect().left - node.getBoundingClientRect().left}px`;
          block.style.paddingLeft = getComputedStyle(line).paddingLeft;
        }
      });
      block.style.top = '1.5em';
    }
    return node;
  }
}

function follow(ghost: Ghost, transaction: Transaction): Ghost | null {
  let typed: string | null = null;
  let changes = 0;
  transaction.changes.iterChanges((from, to, _fromB, _toB, inserted) => {
    changes += 1;
    typed = from === ghost.position && to === from ? inserted.toString() : null;
  });
  if (changes === 1 && typed !== null && ghost.text.startsWith(typed) && ghost.text !== typed) {
    return { ...ghost, position: ghost.position + (typed as string).length, text: ghost.text.slice((typed as string).length) };
  }
  return null;
}

export const ghostField = StateField.define<Ghost | null>({
  create: () => null,
  update(ghost, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(offer)) {
        return effect.value;
      }
    }
    if (ghost && transaction.docChanged) {
      return follow(ghost, transaction);
    }
    return ghost && transaction.selection && transaction.state.selection.main.head !== ghost.position ? null : ghost;
  },
  provide: (field) =>
    EditorView.decorations.from(field, (ghost): DecorationSet =>
      ghost?.text
        ? Decoration.set([Decoration.widget({ widget: new GhostWidget(ghost.text), side: 1 }).range(ghost.position)])
        : Decoration.none,
    ),
});

export function shown(state: EditorState): Ghost | null {
  const ghost = state.field(ghostField);
  return ghost?.text ? ghost : null;
}

function take(view: EditorView, part: (text: string) => string): boolean {
  const ghost = shown(view.state);
  if (!ghost) {
    return false;
  }
  const text = part(ghost.text);
  const whole = text === ghost.text;
  view.dispatch({
    changes: { from: ghost.position, to: ghost.position + (whole ? ghost.replaces : 0), insert: text },
    selection: { anchor: ghost.position + text.length },
    userEvent: 'input.complete',
  });
  return true;
}

const nextWord = (text: string): string => /^\s*(?:[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]+)/u.exec(text)?.[0] ?? text;

/** Keys while a suggestion is shown; otherwise they are what they were, so that Tab leaves the editor. */
export const ghostKeys = (ask: () => void, dismissed: () => void) =>
  Prec.highest(
    keymap.of([
      { key: 'Tab', run: (view) => take(view, (text) => text) },
      { key: 'Ctrl-ArrowRight', mac: 'Cmd-ArrowRight', run: (view) => take(view, nextWord) },
      {
        key: 'Escape',
        run: (view) => {
          const had = shown(view.state) !== null;
          view.dispatch({ effects: offer.of(null) });
          dismissed();
          return had;
        },
      },
      { key: 'Alt-\\', run: () => (ask(), true) },
    ]),
  );
