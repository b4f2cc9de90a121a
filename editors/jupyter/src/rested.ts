/** Tells where the cursor rests after it was moved without typing, so that the server may prepare that place. */
import type { Tracker } from './lab';
import type { Notebooks } from './notebooks';
import type { Socket } from './socket';

const REST_MS = 100;

export class Rested {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private typedAt = -REST_MS;
  private told = '';

  constructor(
    private readonly tracker: Tracker,
    private readonly notebooks: Notebooks,
    private readonly socket: Socket,
  ) {
    document.addEventListener('selectionchange', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.tell(), REST_MS);
    });
  }

  /** The cursor goes with the text: that is no move. */
  typed(): void {
    this.typedAt = performance.now();
    this.told = '';
  }

  private tell(): void {
    const panel = this.tracker.currentWidget;
    const active = panel?.content.activeCell;
    const uri = panel && active ? this.notebooks.uriOf(panel, active.model.sharedModel) : undefined;
    if (!uri || !active?.editor?.hasFocus() || performance.now() - this.typedAt <= REST_MS + 50) {
      return;
    }
    const { line, column } = active.editor.getCursorPosition();
    const place = `${uri} ${line} ${column}`;
    if (place !== this.told) {
      this.told = place;
      this.socket.notify('foretype/cursorRested', { textDocument: { uri }, position: { line, character: column } });
    }
  }
}
