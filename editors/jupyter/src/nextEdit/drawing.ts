/** Draws a next edit in a cell: what goes is struck, what comes stands beside it. Nothing moves but what stands right of an addition. */
import { type Extension, type Range, StateEffect, StateField } from '@codemirror/state';
import { Decoration, type DecorationSet, EditorView, WidgetType } from '@codemirror/view';

import type { Drawing } from '../../../vscode/src/nextEdit/model';

const COMES = 'rgba(46, 160, 67, 0.3)';
const GOES = 'rgba(248, 81, 73, 0.3)';

class Text extends WidgetType {
  constructor(
    private readonly text: string,
    private readonly look: string,
  ) {
    super();
  }

  override eq(other: Text): boolean {
    return other.text === this.text && other.look === this.look;
  }

  toDOM(): HTMLElement {
    const node = document.createElement('span');
    node.className = this.look;
    node.textContent = this.text;
    return node;
  }
}

const draw = StateEffect.define<DecorationSet>();

/** Who changes the text changes what is drawn: until it is drawn anew there is nothing, rather than something at a wrong place. */
const drawn = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(before, { docChanged, effects }) {
    const now = effects.find((effect) => effect.is(draw));
    return now ? (now.value as DecorationSet) : docChanged ? Decoration.none : before;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const look = EditorView.baseTheme({
  '.foretype-next-old, .foretype-next-gone': { backgroundColor: GOES, textDecoration: 'line-through' },
  '.foretype-next-new': { backgroundColor: COMES, whiteSpace: 'pre' },
  '.foretype-next-above': { position: 'relative' },
  // Over the lines that are there, which stay where they are; as far from the left as these.
  '.foretype-next-below': {
    position: 'absolute', zIndex: '1', top: '100%', left: '0', minWidth: '100%', boxSizing: 'border-box', padding: 'inherit',
    whiteSpace: 'pre',
    background: `linear-gradient(${COMES} 0 0), var(--jp-cell-editor-active-background, var(--jp-layout-color0))`,
  },
  '.foretype-next-room': { display: 'block', whiteSpace: 'pre' },
  '.foretype-next-way': { marginLeft: '2em', color: 'var(--jp-ui-font-color2)', fontStyle: 'italic', whiteSpace: 'pre' },
});

const extension: Extension = [drawn, look];

/** In one editor at a time. */
export class Ink {
  private view: EditorView | undefined;

  get isDrawn(): boolean {
    return this.view !== undefined;
  }

  edit(view: EditorView, { struck, gone, added, below }: Drawing): void {
    const { doc } = view.state;
    const at = (line: number): number => doc.line(line + 1).from;
    const marks: Range<Decoration>[] = [
      ...struck.map(({ line, from, to }) => Decoration.mark({ class: 'foretype-next-old' }).range(at(line) + from, at(line) + to)),
      ...gone.map((line) => Decoration.line({ class: 'foretype-next-gone' }).range(at(line))),
      ...added.map((one) => text(at(one.line) + one.at, one.text, 'foretype-next-new', 1)),
    ];
    if (below) {
      const lacking = below.lines.length - (doc.lines - 1 - below.line);
      marks.push(Decoration.line({ class: 'foretype-next-above' }).range(at(below.line)));
      marks.push(text(doc.line(below.line + 1).to, below.lines.join('\n'), 'foretype-next-below', 2));
      if (lacking > 0) {
        // A cell ends with its text: what is over it would be cut off.
        marks.push(text(doc.length, '\n'.repeat(lacking), 'foretype-next-room', 3, true));
      }
    }
    this.put(view, Decoration.set(marks, true));
  }

  far(view: EditorView, line: number, hint: string): void {
    this.put(view, Decoration.set([text(view.state.doc.line(line + 1).to, hint, 'foretype-next-way', 2)]));
  }

  clear(): void {
    this.view?.dispatch({ effects: draw.of(Decoration.none) });
    this.view = undefined;
  }

  private put(view: EditorView, marks: DecorationSet): void {
    if (this.view !== view) {
      this.clear();
      this.view = view;
    }
    if (view.state.field(drawn, false) === undefined) {
      view.dispatch({ effects: StateEffect.appendConfig.of(extension) });
    }
    view.dispatch({ effects: draw.of(marks) });
  }
}

function text(at: number, shown: string, name: string, side: number, block = false): Range<Decoration> {
  return Decoration.widget({ widget: new Text(shown, name), side, block }).range(at);
}
