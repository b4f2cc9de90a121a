/** Asks the server for the next edit: one question at a time, the newest. */
import { type Answer, ASK, type Asked, type Item } from '../../../vscode/src/nextEdit/protocol';
import type { Question, Socket } from '../socket';

export class Asking {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private question: Question<Answer | null> | undefined;

  /** `about`: what is to be asked now, undefined where nothing is; `answered` gets the edit for it. */
  constructor(
    private readonly socket: Socket,
    private readonly about: () => Asked | undefined,
    private readonly answered: (item: Item, asked: Asked) => void,
  ) {}

  ask(delay_ms: number): void {
    this.stop();
    this.timer = setTimeout(() => void this.now(), delay_ms);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.question?.cancel();
    this.question = undefined;
  }

  private async now(): Promise<void> {
    const asked = this.about();
    if (asked === undefined) {
      return;
    }
    const question = (this.question = this.socket.ask<Answer | null>(ASK, { ...asked }));
    const answer = await question.answer.catch(() => undefined); // the server has none, or the connection is lost
    if (question === this.question) {
      this.question = undefined;
      const [item] = answer?.edits ?? [];
      if (item !== undefined) {
        this.answered(item, asked);
      }
    }
  }
}
