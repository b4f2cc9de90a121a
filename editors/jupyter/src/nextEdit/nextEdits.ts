/** The next edit in a notebook: asked for after changes, drawn where it is, taken by a key alone. */
import { ACCEPTED, type Asked, ENDED, type Item, JUMPED, type Reason, SHOWN } from '../../../vscode/src/nextEdit/protocol';
import type { Cell, Tracker } from '../lab';
import type { Notebooks } from '../notebooks';
import { type Change, placeOf } from '../positions';
import type { Socket } from '../socket';
import { inOneStep } from '../undo';
import { Asking } from './asking';
import { Ink } from './drawing';
import { isCurrent, isDrawnInPlace, isWhereJumped, type Offer, offered, show, typed } from './offer';
import { cursorOf, focused, goTo, hasGhost, hasPopup, type Here, indexOf, isInIndentation, isSingleCursor, lineHere } from './place';

const DEBOUNCE_MS = 50;
const MOVES_MAX = 3; // to other lines, before it is clear that the user goes somewhere else

export class NextEdits {
  /** Whether the user wants them at all. */
  isOn: () => boolean = () => true;

  private readonly ink = new Ink();
  private readonly asking: Asking;
  private offer: Offer | undefined;
  private quiet = true; // until something is typed: after Esc, after undo
  private jumping = false;
  private keys: Promise<void> = Promise.resolve(); // each waits for what the one before does
  private place = { cell: '', cursor: -1, line: -1 }; // when it was last looked at
  private moves = 0;

  /** `key` jumps and applies wherever Tab does not. */
  constructor(
    private readonly tracker: Tracker,
    private readonly notebooks: Notebooks,
    private readonly socket: Socket,
    private readonly key: string,
  ) {
    this.asking = new Asking(socket, () => this.question(), (item, asked) => this.answered(item, asked));
    let waits: ReturnType<typeof setTimeout>;
    const look = (): void => {
      clearTimeout(waits);
      waits = setTimeout(() => this.look()); // between two cells nothing has the focus
    };
    for (const event of ['selectionchange', 'focusin', 'focusout']) {
      document.addEventListener(event, look);
    }
    document.addEventListener('scroll', look, { capture: true, passive: true });
  }

  /** It is on the screen and its keys are its own, or will be as soon as a jump is made. */
  get hasKeys(): boolean {
    const { here } = this;
    return this.jumping || (this.ink.isDrawn && here !== undefined && !hasGhost(here) && !hasPopup(here));
  }

  /** In the indentation Tab indents, unless it has just brought the cursor there. */
  get isOnTab(): boolean {
    const { here, offer } = this;
    return this.jumping || (here !== undefined && offer !== undefined && (!isInIndentation(here) || isWhereJumped(offer, here)));
  }

  /** Settings changed, or the server is another one. */
  reset(): void {
    this.asking.stop();
    this.end('hidden');
  }

  /** Whether an inline suggestion may be shown: one of both is on screen, the first, but what the user asks for comes. */
  admits(isWanted: boolean): boolean {
    return isWanted || !this.ink.isDrawn;
  }

  /** An inline suggestion is on the screen, of ours or of somebody else. */
  suggested(): void {
    this.end('replaced');
  }

  /** Go there where it is far, apply it where it is near. */
  take(): void {
    this.keys = this.keys.then(() => (this.hasKeys ? this.taken() : undefined)).catch((error) => console.error(error));
  }

  /** The user does not want it: until something is typed there is none. */
  dismiss(): void {
    this.quiet = true;
    this.asking.stop();
    this.end('rejected');
  }

  /** A cell's text was changed, and the server told. The editor may be at it still. */
  changed(cell: Cell, made: readonly Change[]): void {
    const { offer, here } = this;
    const undone = cell.undoManager?.undoing || cell.undoManager?.redoing || false;
    queueMicrotask(() => this.draw());
    if (offer?.cell === cell && here?.cell === cell && !undone && typed(offer, made)) {
      return; // and no question: what is on screen is the answer
    }
    if (offer && indexOf(offer.panel, cell) >= 0) {
      this.forget(offer, 'typed');
    }
    if (here?.cell === cell) {
      this.quiet = undone;
      if (undone) {
        this.asking.stop();
      } else {
        this.asking.ask(DEBOUNCE_MS);
      }
    }
  }

  private get here(): Here | undefined {
    return focused(this.tracker);
  }

  private async taken(): Promise<void> {
    const { here, offer } = this;
    if (offer && here && isCurrent(offer)) {
      await (isDrawnInPlace(offer, here) ? this.apply(offer, here) : this.jump(offer));
    } else {
      this.end('hidden');
    }
  }

  private async jump(offer: Offer): Promise<void> {
    this.jumping = true;
    offer.jumpedTo = offer.edit.start;
    let isThere = false;
    try {
      isThere = await goTo(offer.panel, offer.cell, offer.jumpedTo);
    } finally {
      this.jumping = false;
    }
    if (this.offer === offer && !isThere) {
      this.end('hidden');
    } else if (this.offer === offer) {
      this.socket.notify(JUMPED, { id: offer.id });
      this.moved();
      this.moves = 0;
      if (offer.jumpOnly) {
        this.offer = undefined; // there is nothing to apply, and it was taken
      }
    }
    this.draw();
  }

  /** As one step of undo. */
  private apply({ id, cell, edit: { start, old, text } }: Offer, { editor }: Here): void {
    this.offer = undefined;
    this.draw();
    inOneStep(cell.undoManager, () =>
      editor.editor.dispatch({
        changes: { from: start, to: start + old.length, insert: text },
        selection: { anchor: start + text.length },
        scrollIntoView: true,
        userEvent: 'input.complete',
      }),
    );
    void this.socket.ask('workspace/executeCommand', { command: ACCEPTED, arguments: [id] }).answer.catch(() => undefined);
    this.moved(); // by ourselves, which is no reason to ask again
    this.asking.ask(0);
  }

  /** The cursor, the focus or what is on the screen may be another. */
  private look(): void {
    const { here, offer } = this;
    if (this.jumping || !document.hasFocus()) {
      return; // in another window: all is as it was left
    }
    if (here === undefined) {
      this.place.cell = '';
      this.reset();
      return;
    }
    if (offer && offer.panel !== here.panel) {
      this.end('hidden');
    }
    const moved = this.moved();
    if (this.offer === undefined) {
      if (moved) {
        this.asking.ask(DEBOUNCE_MS);
      }
    } else if (this.moves > MOVES_MAX) {
      this.quiet = true;
      this.end('moved');
    } else {
      this.draw();
    }
  }

  /** Note where the cursor is; whether it was elsewhere. */
  private moved(): boolean {
    const { here, place } = this;
    if (here === undefined) {
      return false;
    }
    const now = { cell: here.cell.id, cursor: cursorOf(here), line: lineHere(here) };
    this.moves += now.cell === place.cell && now.line === place.line ? 0 : 1;
    this.place = now;
    return now.cell !== place.cell || now.cursor !== place.cursor;
  }

  private question(): Asked | undefined {
    const { here } = this;
    const known = here && this.notebooks.known(here.panel).find(({ cell }) => cell === here.cell);
    if (here === undefined || known === undefined || this.quiet || !this.isOn() || !isSingleCursor(here)) {
      return undefined;
    }
    return { textDocument: { uri: known.uri, version: known.version }, position: placeOf(here.cell.getSource(), cursorOf(here)) };
  }

  private answered(item: Item, { textDocument: about }: Asked): void {
    const { here } = this;
    const known = here ? this.notebooks.known(here.panel) : [];
    const asked = known.find(({ uri }) => uri === about.uri);
    const of = known.find(({ uri }) => uri === item.textDocument.uri);
    if (here === undefined || asked?.cell !== here.cell || asked.version !== about.version || hasGhost(here)) {
      return; // it is about another cell or text, or an inline suggestion is on screen
    }
    const offer = of?.version === item.textDocument.version ? offered(item, here.panel, of.cell) : undefined;
    if (offer === undefined) {
      return;
    }
    this.end('replaced');
    this.offer = offer;
    this.moved();
    this.moves = 0;
    this.draw();
    this.socket.notify(SHOWN, { item });
  }

  private end(reason: Reason): void {
    if (this.offer !== undefined) {
      this.forget(this.offer, reason);
      this.draw();
    }
  }

  private forget({ id }: Offer, reason: Reason): void {
    this.offer = undefined;
    this.socket.notify(ENDED, { id, reason });
  }

  /** Makes the screen what the state is; nothing while something is selected. */
  private draw(): void {
    const { here, offer } = this;
    if (offer && !isCurrent(offer)) {
      this.end('hidden');
    } else if (offer && here && isSingleCursor(here)) {
      show(offer, here, this.ink, this.isOnTab ? 'Tab' : this.key);
    } else {
      this.ink.clear();
    }
  }
}
