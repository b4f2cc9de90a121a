/** Tells the language server of the notebooks that are open here, by `notebookDocument/*`. */
import type { Cell, Context, Panel, Step } from './lab';
import { type Change, changes } from './positions';
import type { Socket } from './socket';

const LANGUAGES: Record<string, string> = { ipython: 'python', 'c++': 'cpp', bash: 'shellscript', sh: 'shellscript' };
const TEXT = 1;
const CODE = 2;

interface Told {
  cell: Cell;
  type: string;
  text: string;
  version: number;
  listener: (cell: Cell, change: { sourceChange?: Step[] }) => void;
}

/** A cell as the server knows it. */
export interface Known {
  cell: Cell;
  uri: string;
  version: number;
}

/** One notebook; several views of it are one, since they share their cells. */
class Document {
  private told: Told[] = [];
  private uri = '';
  private language = '';
  private version = 0;

  constructor(
    readonly context: Context,
    private readonly notebooks: Notebooks,
  ) {
    context.model.sharedModel.changed.connect(this.onStructure);
    context.model.metadataChanged.connect(this.onMetadata);
    context.pathChanged.connect(this.onPath);
    this.open();
  }

  /** Tell of everything, as if for the first time. */
  readonly open = (): void => {
    const { socket, root, tab } = this.notebooks;
    if (root === undefined) {
      return;
    }
    this.language = languageOf(this.context);
    const path = this.context.localPath.split('/').map(encodeURIComponent).join('/');
    this.uri = `${root}/${path}?${tab}`;
    this.listen([]);
    this.listen(this.cells.map((cell) => this.heard(cell)));
    socket.notify('notebookDocument/didOpen', {
      notebookDocument: { uri: this.uri, notebookType: 'jupyter-notebook', version: ++this.version, cells: this.told.map((one) => this.entry(one)) },
      cellTextDocuments: this.told.map((one) => this.text(one)),
    });
  };

  close(): void {
    this.listen([]);
    this.tellClosed();
    this.context.model.sharedModel.changed.disconnect(this.onStructure);
    this.context.model.metadataChanged.disconnect(this.onMetadata);
    this.context.pathChanged.disconnect(this.onPath);
  }

  uriOf(cell: Cell): string {
    return `${this.uri}#${cell.id}`;
  }

  get known(): Known[] {
    return this.told.map(({ cell, version }) => ({ cell, uri: this.uriOf(cell), version }));
  }

  private get cells(): Cell[] {
    return this.context.model.sharedModel.cells;
  }

  private tellClosed(): void {
    if (this.uri) {
      this.notebooks.socket.notify('notebookDocument/didClose', { notebookDocument: { uri: this.uri }, cellTextDocuments: [] });
    }
  }

  private readonly onPath = (): void => {
    this.tellClosed();
    this.open();
  };

  /** Another kernel may speak another language. */
  private readonly onMetadata = (): void => {
    if (languageOf(this.context) !== this.language) {
      this.onPath();
    }
  };

  /** Cells came, went or moved. JupyterLab makes a cell that is moved anew, with its id. */
  private readonly onStructure = (_: unknown, change: { cellsChange?: unknown }): void => {
    if (!change.cellsChange || !this.uri) {
      return;
    }
    const before = this.told;
    const known = new Map(before.map((one) => [one.cell.id, one]));
    const now = this.cells.map((cell) => {
      const old = known.get(cell.id);
      return old && old.cell === cell && old.type === cell.cell_type ? old : this.heard(cell);
    });
    let start = 0;
    while (start < Math.min(before.length, now.length) && before[start] === now[start]) {
      start++;
    }
    let end = 0;
    while (end < Math.min(before.length, now.length) - start && before.at(-1 - end) === now.at(-1 - end)) {
      end++;
    }
    const cells = now.slice(start, now.length - end);
    const gone = before.slice(start, before.length - end).filter((one) => !now.includes(one));
    this.listen(now);
    this.change({
      structure: {
        array: { start, deleteCount: before.length - end - start, cells: cells.map((one) => this.entry(one)) },
        didOpen: cells.filter((one) => !before.includes(one)).map((one) => this.text(one)),
        didClose: gone.map((one) => ({ uri: this.uriOf(one.cell) })),
      },
    });
  };

  private heard(cell: Cell): Told {
    const one: Told = {
      cell,
      type: cell.cell_type,
      text: cell.getSource(),
      version: 0,
      listener: (_, { sourceChange }) => sourceChange && this.onText(one, sourceChange),
    };
    return one;
  }

  private onText(one: Told, steps: Step[]): void {
    const text = one.cell.getSource();
    const made = changes(one.text, text, steps);
    one.text = text;
    if (made.length) {
      this.change({ textContent: [{ document: { uri: this.uriOf(one.cell), version: ++one.version }, changes: made }] });
      this.notebooks.onText(one.cell, made);
    }
  }

  private listen(now: Told[]): void {
    for (const one of this.told.filter((old) => !now.includes(old))) {
      one.cell.changed.disconnect(one.listener);
    }
    for (const one of now.filter((other) => !this.told.includes(other))) {
      one.cell.changed.connect(one.listener);
    }
    this.told = now;
  }

  private change(cells: Record<string, unknown>): void {
    const notebookDocument = { uri: this.uri, version: ++this.version };
    this.notebooks.socket.notify('notebookDocument/didChange', { notebookDocument, change: { cells } });
  }

  private entry({ cell, type }: Told): Record<string, unknown> {
    return { kind: type === 'code' ? CODE : TEXT, document: this.uriOf(cell) };
  }

  private text({ cell, type, text, version }: Told): Record<string, unknown> {
    return { uri: this.uriOf(cell), languageId: type === 'code' ? this.language : type, version, text };
  }
}

export class Notebooks {
  /** Where the Jupyter server's files begin, once it has said so. */
  root: string | undefined;
  /** Told of each change of a cell's text, when the server has been told. */
  onText: (cell: Cell, made: readonly Change[]) => void = () => undefined;
  /** Two tabs may show one file with different texts. */
  readonly tab = `tab=${Math.random().toString(36).slice(2)}`;

  private readonly documents = new Map<Context, { document: Document; views: number }>();

  constructor(readonly socket: Socket) {
    socket.heard.set('foretype/hello', ({ rootUri }) => {
      this.root = String(rootUri).replace(/\/$/, '');
      this.documents.forEach(({ document }) => document.open());
    });
  }

  add(panel: Panel): void {
    const { context } = panel;
    void context.ready.then(() => {
      const open = this.documents.get(context);
      this.documents.set(context, { document: open?.document ?? new Document(context, this), views: (open?.views ?? 0) + 1 });
      this.socket.open();
    });
    panel.disposed.connect(() => {
      const open = this.documents.get(context);
      if (open && --open.views === 0) {
        open.document.close();
        this.documents.delete(context);
      }
    });
  }

  known(panel: Panel): Known[] {
    return this.documents.get(panel.context)?.document.known ?? [];
  }

  /** What the server calls a cell; undefined where it knows nothing of it. */
  uriOf(panel: Panel, cell: Cell): string | undefined {
    return this.root === undefined ? undefined : this.documents.get(panel.context)?.document.uriOf(cell);
  }
}

function languageOf({ model }: Context): string {
  const language = model.defaultKernelLanguage.toLowerCase();
  return LANGUAGES[language.replace(/\d+$/, '')] ?? language;
}
