import type { UndoManager } from './lab';

/** JupyterLab makes one step of all that is changed within half a second: an undo of this leaves what was typed just before. */
export function inOneStep(undoManager: UndoManager | null | undefined, change: () => void): void {
  undoManager?.stopCapturing();
  change();
  undoManager?.stopCapturing();
}
