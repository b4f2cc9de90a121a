/** When the gateway is asked for the next edit: after quiet, at once behind one that was taken, and never against a key. */
import type { EditorView, ViewUpdate } from '@codemirror/view';
import { shown as ghostShown } from './ghost';
import { type Next, TAKEN, propose, shown } from './next';
import { Past, units } from './past';
import { post } from './protocol';

const QUIET_MS = 400;
const MOVED_MS = 100;
const KEPT = 'foretype.next';

/** What is shown, the surest alone in `low`; a model of next edits is asked in editors only. */
const LEVELS = ['off', 'low', 'medium'];

interface Answer {
  edit: { start: number; end: number; text: string; jump_only: boolean } | null;
  wait_ms: number;
}

export class Asking {
  private readonly past = new Past();
  private timer: number | undefined;
  private asked = 0;
  private ended = false;
  private kept = localStorage.getItem(KEPT) ?? 'low';

  /** `failed` is told what went wrong. */
  constructor(
    private readonly view: () => EditorView,
    private readonly failed: (error: unknown) => void,
  ) {}

  get level(): string {
    return LEVELS.includes(this.kept) ? this.kept : 'low';
  }

  set level(level: string) {
    this.kept = level;
    localStorage.setItem(KEPT, level);
    this.view().dispatch({ effects: propose.of(null) });
    this.soon(0);
  }

  /** Something happened in the editor; true where a suggestion at the cursor has to stay away. */
  follow(update: ViewUpdate): boolean {
    let taken = false;
    for (const transaction of update.transactions) {
      if (transaction.docChanged) {
        this.past.changed(transaction);
        taken = transaction.isUserEvent(TAKEN);
      }
    }
    if (update.docChanged) {
      this.ended = false;
      this.soon(taken ? 0 : QUIET_MS);
    } else if (update.selectionSet || (ghostShown(update.startState) && !ghostShown(update.state))) {
      this.soon(MOVED_MS);
    }
    return taken || shown(update.state) !== null;
  }

  /** Nothing comes any more before something is typed. */
  refused(next: Next): void {
    this.past.refused(this.view().state.doc, next);
    this.ended = true;
    this.stop();
  }

  jumped({ jumpOnly }: Next): void {
    if (jumpOnly) {
      this.ended = true; // there is nothing else to take
      this.stop();
    }
  }

  private stop(): void {
    clearTimeout(this.timer);
    this.asked += 1;
  }

  private soon(delayMs: number): void {
    this.stop();
    if (this.level !== 'off' && !this.ended && !this.past.isEmpty) {
      this.timer = setTimeout(() => void this.ask(), delayMs);
    }
  }

  private async ask(): Promise<void> {
    const mine = this.asked;
    const { doc, selection } = this.view().state;
    if (shown(this.view().state) || ghostShown(this.view().state)) {
      return; // when that is gone it is asked again
    }
    try {
      const question = { ...this.past.question(doc, selection.main.head), eagerness: this.level };
      const { edit, wait_ms } = await post<Answer>('next_edit', question);
      const { state } = this.view();
      if (mine !== this.asked || state.doc !== doc || ghostShown(state)) {
        return; // whichever was there first
      }
      if (edit) {
        const { start, end, text, jump_only: jumpOnly } = edit;
        this.view().dispatch({ effects: propose.of({ from: units(doc, start), to: units(doc, end), text, jumpOnly }) });
      } else if (wait_ms > 0) {
        this.soon(wait_ms);
      }
    } catch (error) {
      if (mine === this.asked) {
        this.failed(error);
      }
    }
  }
}
