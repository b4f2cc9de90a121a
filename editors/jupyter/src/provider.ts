/** Asks the language server at each key, and makes of its answers what JupyterLab can show. */
import { type Asked, type Cell, type Editor, INVOKED, type Item, type ItemList, type Position, type Provider as LabProvider } from './lab';
import type { Notebooks } from './notebooks';
import type { Place } from './positions';
import type { Question, Socket } from './socket';

const INLINE = 'textDocument/inlineCompletion';

interface LspItem {
  insertText: string;
  range: { start: Place; end: Place };
  command: { command: string; arguments: [string] };
}

/** `tail`: what the answer ends with and is there already, right of the cursor, in UTF-16 units. */
export interface Suggestion extends Item {
  answer: LspItem;
  tail: number;
}

interface Where {
  uri: string;
  cell: Cell;
  editor: Editor;
  cursor: Position;
  text: string;
}

/** A suggestion that is shown and may grow, until the next key. */
interface Growing {
  token: string;
  item: Suggestion;
  where: Where;
  grown: (text: string | undefined) => void;
}

export class Provider implements LabProvider<Suggestion> {
  readonly name = 'Foretype';
  readonly identifier = 'foretype';
  /** The server has its own debounce and keeps its own time; it is made for the middle of lines. */
  readonly schema = { default: { enabled: true, autoFillInMiddle: true, debouncerDelay: 0, timeout: 15_000 } };

  /** Set while this extension asks where JupyterLab does not: it can only do so as if the user had invoked it. */
  asksItself = false;

  /** Whether there is room for a suggestion; `isWanted`: the user has asked for it. */
  admits: (isWanted: boolean) => boolean = () => true;

  private question: Question<{ items: LspItem[] } | null> | undefined;
  private growing: Growing | undefined;
  private grewLast = '';
  private count = 0;

  constructor(
    private readonly socket: Socket,
    private readonly notebooks: Notebooks,
  ) {
    socket.heard.set('foretype/suggestionGrew', ({ id }) => {
      this.grewLast = String(id);
      void this.grow();
    });
  }

  /** What is thrown JupyterLab drops, and keeps showing what it shows; an empty list takes that away. */
  async fetch(_: unknown, { widget, editor: given, triggerKind }: Asked): Promise<ItemList<Suggestion>> {
    const invoked = triggerKind === INVOKED && !this.asksItself;
    this.changed();
    this.question?.cancel();
    const active = widget.content?.activeCell;
    const editor = given ?? active?.editor;
    const cell = active?.model.sharedModel;
    const uri = cell && this.notebooks.uriOf(widget, cell);
    if (!uri || !editor || active.editor !== editor) {
      throw new Error('no cell of a notebook');
    }
    await Promise.resolve(); // the key itself is told first: we are inside of the signal by which that is done
    const where = { uri, cell, editor, cursor: editor.getCursorPosition(), text: cell.getSource() };
    const items = await this.ask(where, invoked);
    if (items.length && !this.admits(invoked)) {
      throw new Error('something else is on the screen');
    }
    const token = String(++this.count);
    for (const item of items.slice(0, 1)) {
      item.token = token;
      this.growing = { token, item, where, grown: () => undefined };
      setTimeout(() => void this.grow()); // it may have grown before it was here
    }
    return { items };
  }

  /** JupyterLab calls it for each item. It ends with the next key, else what follows would be put behind what was typed. */
  async *stream(token: string): AsyncGenerator<{ response: { insertText: string } }> {
    for (let growing = this.growing; growing?.token === token && growing === this.growing; ) {
      const told = growing;
      const text = await new Promise<string | undefined>((resolve) => {
        told.grown = resolve;
      });
      if (text === undefined || told !== this.growing) {
        return;
      }
      yield { response: { insertText: text } };
    }
  }

  /** The text or the place is another: what was shown does not grow any more. */
  changed(): void {
    const growing = this.growing;
    this.growing = undefined;
    growing?.grown(undefined);
  }

  /** Ask again where the server has said that what is shown is a part of what is there now. */
  private async grow(): Promise<void> {
    const growing = this.growing;
    if (growing === undefined || idOf(growing.item) !== this.grewLast || !this.isAt(growing.where)) {
      return;
    }
    this.grewLast = '';
    const [item] = await this.ask(growing.where, false).catch(() => []);
    if (item && growing === this.growing && item.insertText.startsWith(growing.item.insertText)) {
      growing.item.answer = item.answer; // JupyterLab takes the text alone
      growing.item.tail = item.tail;
      growing.grown(item.insertText);
      void this.grow();
    }
  }

  private async ask(where: Where, invoked: boolean): Promise<Suggestion[]> {
    const { line, column } = where.cursor;
    this.question = this.socket.ask(INLINE, {
      textDocument: { uri: where.uri },
      position: { line, character: column },
      context: { triggerKind: invoked ? 1 : 2 },
    });
    const answer = await this.question.answer;
    if (answer === null) {
      throw new Error('nothing new');
    }
    if (!this.isAt(where)) {
      throw new Error('the cursor is elsewhere');
    }
    return answer.items.flatMap((item) => shaped(item, where.editor.getLine(line) ?? '', where.cursor) ?? []);
  }

  private isAt({ cell, editor, cursor, text }: Where): boolean {
    const now = editor.getCursorPosition();
    return editor.hasFocus() && now.line === cursor.line && now.column === cursor.column && cell.getSource() === text;
  }
}

function idOf({ answer }: Suggestion): string {
  return answer.command.arguments[0];
}

/**
 * An answer as what to put in at the cursor, for JupyterLab knows no range: what it takes the place of left of the cursor is there
 * already, and what it takes the place of right of it must be what it ends with.
 */
export function shaped(answer: LspItem, line: string, { line: at, column }: Position): Suggestion | undefined {
  const { start, end } = answer.range;
  const before = line.slice(start.character, column);
  const after = end.line === at ? line.slice(column, end.character) : '';
  if (start.line !== at || !answer.insertText.startsWith(before) || !answer.insertText.slice(before.length).endsWith(after)) {
    return undefined;
  }
  const insertText = answer.insertText.slice(before.length, answer.insertText.length - after.length);
  return insertText ? { insertText, answer, tail: after.length, isIncomplete: true, token: '' } : undefined;
}
