// What of JupyterLab's interfaces (4.4 and later) is used here. Its own packages would bring 394 others for these types alone.
import type { EditorView } from '@codemirror/view';

export interface Signal<Sender, Value> {
  connect(slot: (sender: Sender, value: Value) => void): boolean;
  disconnect(slot: (sender: Sender, value: Value) => void): boolean;
}

export interface Position {
  line: number;
  column: number;
}

export interface Editor {
  readonly host: HTMLElement;
  readonly editor: EditorView;
  readonly model: { readonly sharedModel: { readonly undoManager?: UndoManager | null } };
  getCursorPosition(): Position;
  getOffsetAt(position: Position): number;
  getLine(line: number): string | undefined;
  hasFocus(): boolean;
  focus(): void;
}

/** What is changed within half a second is one step, unless it is told to stop. */
export interface UndoManager {
  readonly undoing: boolean;
  readonly redoing: boolean;
  stopCapturing(): void;
}

/** A step of a change: of text by UTF-16 units. */
export interface Step {
  retain?: number;
  insert?: string;
  delete?: number;
}

export interface Cell {
  readonly id: string;
  readonly cell_type: string;
  getSource(): string;
  readonly changed: Signal<Cell, { sourceChange?: Step[] }>;
  readonly undoManager?: UndoManager | null;
}

export interface Notebook {
  readonly cells: Cell[];
  readonly changed: Signal<Notebook, { cellsChange?: unknown }>;
}

export interface Model {
  readonly sharedModel: Notebook;
  readonly defaultKernelLanguage: string;
  readonly metadataChanged: Signal<Model, unknown>;
}

export interface Context {
  readonly ready: Promise<void>;
  readonly localPath: string;
  readonly model: Model;
  readonly pathChanged: Signal<Context, string>;
}

/** `editor` is null until the cell was near the screen once. */
export interface CellWidget {
  readonly editor: Editor | null;
  readonly model: { readonly sharedModel: Cell };
  readonly ready: Promise<void>;
  readonly inViewport: boolean;
}

export interface Panel {
  readonly id: string;
  readonly context: Context;
  readonly content: {
    readonly activeCell: CellWidget | null;
    readonly widgets: readonly CellWidget[];
    activeCellIndex: number;
    mode: string;
    scrollToItem(index: number): Promise<void>;
  };
  readonly disposed: Signal<Panel, void>;
}

export interface Tracker {
  readonly currentWidget: Panel | null;
  forEach(visit: (panel: Panel) => void): void;
  readonly widgetAdded: Signal<Tracker, Panel>;
}

/** A suggestion as JupyterLab shows it; it shortens `insertText` by what is typed on. */
export interface Item {
  insertText: string;
  isIncomplete: boolean;
  token: string;
}

export interface ItemList<T extends Item> {
  items: T[];
}

export interface Asked {
  widget: Panel;
  editor?: Editor | null;
  triggerKind: number;
}

export const INVOKED = 0;

export interface Provider<T extends Item> {
  readonly name: string;
  readonly identifier: string;
  readonly schema: { default: Record<string, unknown> };
  fetch(request: unknown, asked: Asked): Promise<ItemList<T>>;
  stream(token: string): AsyncGenerator<{ response: { insertText: string } }>;
}

export interface CompleterModel<T extends Item> {
  readonly completions: ItemList<T> | null;
  readonly cursor: Position;
  reset(): void;
  readonly filterTextChanged: Signal<unknown, unknown>;
  readonly suggestionsChanged: Signal<unknown, { event: string }>;
}

export interface Completer<T extends Item> {
  readonly model: CompleterModel<T> | null;
  readonly editor: Editor | null | undefined;
  readonly current: T | null | undefined;
  readonly isActive: boolean;
  readonly isDisposed: boolean;
  accept(): void;
}

export interface CompleterFactory<T extends Item> {
  factory(options: unknown): Completer<T>;
}

export interface Manager<T extends Item> {
  registerInlineProvider(provider: Provider<T>): void;
  setInlineCompleterFactory(factory: CompleterFactory<T>): void;
  readonly inline?: { invoke(id: string): void };
}

export interface Settings {
  readonly composite: Record<string, unknown>;
  readonly changed: Signal<Settings, void>;
}

export interface Application {
  readonly started: Promise<void>;
  readonly serviceManager: {
    readonly serverSettings: { wsUrl: string; token: string; appendToken?: boolean; WebSocket: typeof WebSocket };
  };
  readonly commands: {
    addCommand(id: string, options: { label: string; execute: () => void; isEnabled: () => boolean }): void;
  };
}
