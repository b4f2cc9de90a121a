/** What the server and this extension say to each other about next edits (docs/protocol.md). */
import type { Position, Range } from 'vscode-languageclient/node';

export const ASK = 'textDocument/copilotInlineEdit';
export const SHOWN = 'textDocument/didShowInlineEdit';
export const ACCEPTED = 'foretype.nextEdit.accept';
export const JUMPED = 'foretype/nextEditJumped';
export const ENDED = 'foretype/nextEditEnded';

/** Why an edit is off the screen; `rejected` alone means that the user does not want it. */
export type Reason = 'rejected' | 'typed' | 'moved' | 'replaced' | 'hidden';

export interface Item {
  text: string;
  range: Range;
  textDocument: { uri: string; version: number | null };
  command: { title: string; command: string; arguments: [string] };
  data?: { id: string; evidence: string; left: number; jumpOnly?: boolean };
}

export interface Asked {
  textDocument: { uri: string; version: number };
  position: Position;
}

export interface Answer {
  edits: Item[];
}
