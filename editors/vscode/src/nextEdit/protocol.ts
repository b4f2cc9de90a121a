/** What the server and an editor's extension say to each other about next edits (docs/protocol.md). Knows no editor. */
import type { Place } from './model';

export const ASK = 'textDocument/copilotInlineEdit';
export const SHOWN = 'textDocument/didShowInlineEdit';
export const ACCEPTED = 'foretype.nextEdit.accept';
export const JUMPED = 'foretype/nextEditJumped';
export const ENDED = 'foretype/nextEditEnded';

/** Why an edit is off the screen; `rejected` alone means that the user does not want it. */
export type Reason = 'rejected' | 'typed' | 'moved' | 'replaced' | 'hidden';

export interface Item {
  text: string;
  range: { start: Place; end: Place };
  textDocument: { uri: string; version: number | null };
  command: { title: string; command: string; arguments: [string] };
  data?: { id: string; evidence: string; left: number; jumpOnly?: boolean; replaces?: string };
}

export interface Asked {
  textDocument: { uri: string; version: number };
  position: Place;
}

export interface Answer {
  edits: Item[];
}
