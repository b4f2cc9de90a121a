/** JupyterLab's inline completer, mended where it lets text be lost, and told of: what is shown, what is accepted. */
import type { Completer, CompleterFactory, Editor } from './lab';
import type { Suggestion } from './provider';
import type { Socket } from './socket';
import { inOneStep } from './undo';

const WORD = /^\s*(\w+|[^\w\s]+)|^\s+/;

export class Completers implements CompleterFactory<Suggestion> {
  /** Told when a suggestion is on the screen, of whichever provider. */
  onShown: () => void = () => undefined;

  private readonly made = new Set<Completer<Suggestion>>();
  private shown = '';

  constructor(
    private readonly given: CompleterFactory<Suggestion>,
    private readonly socket: Socket,
  ) {}

  factory(options: unknown): Completer<Suggestion> {
    const completer = this.given.factory(options);
    const { model } = completer;
    if (!model) {
      return completer;
    }
    // An empty list, or a key that fits no suggestion, leaves the editor marked as showing one: Tab would do nothing there.
    const settle = (): void => {
      setTimeout(() => !completer.isDisposed && !model.completions?.items?.length && completer.isActive && model.reset());
    };
    model.filterTextChanged.connect(settle);
    model.suggestionsChanged.connect((_, { event }) => {
      if (event !== 'clear') {
        settle();
        this.tellShown(completer.current);
        if (completer.current) {
          this.onShown();
        }
      }
    });
    const accept = completer.accept.bind(completer);
    completer.accept = () => {
      const { current: item, editor } = completer;
      if (!item || !editor || !isAt(editor, model.cursor)) {
        model.reset(); // it was made for another place, and would take away what lies between
        return;
      }
      inOneStep(editor.model.sharedModel.undoManager, accept);
      if (item.answer) {
        const { command, arguments: given } = item.answer.command;
        void this.socket.ask('workspace/executeCommand', { command, arguments: given }).answer.catch(() => undefined);
      }
    };
    this.made.add(completer);
    return completer;
  }

  /** The completer that shows a suggestion of ours where the cursor is. */
  get active(): Completer<Suggestion> | undefined {
    for (const completer of this.made) {
      if (completer.isDisposed) {
        this.made.delete(completer);
      } else if (completer.isActive && completer.editor?.hasFocus() && completer.current?.answer) {
        return completer;
      }
    }
    return undefined;
  }

  acceptWord(): void {
    const completer = this.active;
    const { current: item, editor, model } = completer ?? {};
    if (!completer || !item || !editor || !model) {
      return;
    }
    const word = WORD.exec(item.insertText)?.[0] ?? item.insertText;
    if (word === item.insertText || !isAt(editor, model.cursor)) {
      completer.accept();
      return;
    }
    const { answer, tail, insertText } = item;
    const from = editor.getOffsetAt(editor.getCursorPosition());
    // Text and cursor in one step: JupyterLab looks at the cursor as soon as the text is another.
    inOneStep(editor.model.sharedModel.undoManager, () =>
      editor.editor.dispatch({ changes: { from, insert: word }, selection: { anchor: from + word.length } }),
    );
    const acceptedLength = answer.insertText.length - tail - insertText.length + word.length;
    this.socket.notify('textDocument/didPartiallyAcceptCompletion', { item: answer, acceptedLength });
  }

  private tellShown(item: Suggestion | null | undefined): void {
    const id = item?.answer?.command.arguments[0];
    if (item && id !== undefined && id !== this.shown) {
      this.shown = id;
      this.socket.notify('textDocument/didShowCompletion', { item: item.answer });
    }
  }
}

function isAt(editor: Editor | null | undefined, { line, column }: { line: number; column: number }): boolean {
  const now = editor?.getCursorPosition();
  return now?.line === line && now.column === column;
}
