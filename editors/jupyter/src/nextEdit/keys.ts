/** The keys of the next edit on the screen, before the editor and JupyterLab have them; where there is none they are theirs. */
import type { Application } from '../lab';
import type { NextEdits } from './nextEdits';

const MAC = navigator.platform.startsWith('Mac');

/** Jumps and applies wherever Tab does not; as in VS Code. */
export const KEY = MAC ? 'Ctrl+Alt+J' : 'Alt+J';

export function listen(edits: NextEdits, { commands }: Application): void {
  const onKey = (event: KeyboardEvent): void => {
    const { altKey, ctrlKey, metaKey, shiftKey, key, code, isComposing } = event;
    if (isComposing || metaKey || shiftKey || !edits.hasKeys) {
      return;
    }
    const isPlain = !altKey && !ctrlKey;
    if (isPlain && key === 'Escape') {
      edits.dismiss();
    } else if ((isPlain && key === 'Tab' && edits.isOnTab) || (altKey && ctrlKey === MAC && code === 'KeyJ')) {
      edits.take();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  window.addEventListener('keydown', onKey, { capture: true });
  // For keys of the user's own.
  const isEnabled = (): boolean => edits.hasKeys;
  commands.addCommand('foretype:next-edit-take', { label: 'Go to the Next Edit, or Accept It', execute: () => edits.take(), isEnabled });
  commands.addCommand('foretype:next-edit-dismiss', { label: 'Dismiss the Next Edit', execute: () => edits.dismiss(), isEnabled });
}
