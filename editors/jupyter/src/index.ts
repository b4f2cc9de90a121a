import { ICompletionProviderManager, IInlineCompleterFactory } from '@jupyterlab/completer';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { Completers } from './completer';
import type { Application, CompleterFactory, Manager, Settings, Tracker } from './lab';
import { KEY, listen } from './nextEdit/keys';
import { NextEdits } from './nextEdit/nextEdits';
import { Notebooks } from './notebooks';
import { Provider, type Suggestion } from './provider';
import { Rested } from './rested';
import { Socket } from './socket';

const ID = 'foretype-jupyter:plugin';
const ACCEPT_WORD = 'foretype:accept-word';

function activate(
  app: Application,
  manager: Manager<Suggestion>,
  tracker: Tracker,
  given: CompleterFactory<Suggestion> | null,
  registry: { load(id: string): Promise<Settings> } | null,
): void {
  const { serverSettings } = app.serviceManager;
  const socket = new Socket(() => {
    const url = new URL('foretype/ws', serverSettings.wsUrl);
    if (serverSettings.appendToken && serverSettings.token) {
      url.searchParams.set('token', serverSettings.token);
    }
    return new serverSettings.WebSocket(url);
  });
  const notebooks = new Notebooks(socket);
  const provider = new Provider(socket, notebooks);
  // Now, not when the page is restored: the notebooks that are restored take the providers that there are.
  manager.registerInlineProvider(provider);

  const nextEdits = new NextEdits(tracker, notebooks, socket, KEY);
  listen(nextEdits, app);
  provider.admits = (isWanted) => nextEdits.admits(isWanted);

  if (given) {
    const completers = new Completers(given, socket);
    completers.onShown = () => nextEdits.suggested();
    void app.started.then(() => manager.setInlineCompleterFactory(completers)); // JupyterLab sets its own before
    app.commands.addCommand(ACCEPT_WORD, {
      label: 'Accept the Next Word of the Suggestion',
      execute: () => completers.acceptWord(),
      isEnabled: () => completers.active !== undefined,
    });
    // Before the editor, which has the key for a movement of its own, and keeps JupyterLab's bindings from it.
    const onKey = (event: KeyboardEvent): void => {
      const { altKey, ctrlKey, metaKey, shiftKey, key } = event;
      if (altKey && !ctrlKey && !metaKey && !shiftKey && key === 'ArrowRight' && completers.active !== undefined) {
        event.preventDefault();
        event.stopPropagation();
        completers.acceptWord();
      }
    };
    window.addEventListener('keydown', onKey, { capture: true });
  }

  tracker.forEach((panel) => notebooks.add(panel));
  tracker.widgetAdded.connect((_, panel) => notebooks.add(panel));
  const rested = new Rested(tracker, notebooks, socket);
  notebooks.onText = (cell, made) => {
    provider.changed();
    nextEdits.changed(cell, made);
    rested.typed();
    // JupyterLab asks nobody where only blanks are left of the cursor, which is where most lines begin.
    setTimeout(() => {
      tracker.forEach((panel) => {
        const active = panel.content.activeCell;
        const at = active?.model.sharedModel === cell && active.editor?.hasFocus() ? active.editor.getCursorPosition() : undefined;
        const line = at && active?.editor?.getLine(at.line);
        if (at && line !== undefined && !line.slice(0, at.column).trim()) {
          provider.asksItself = true;
          manager.inline?.invoke(panel.id);
          provider.asksItself = false;
        }
      });
    });
  };

  const options = (settings: Settings | undefined): Record<string, unknown> => ({
    suggestionGrew: true,
    ...(settings?.composite.options as Record<string, unknown> | undefined),
  });
  void registry?.load(ID).then((settings) => {
    const tell = (): void => {
      nextEdits.reset(); // its server may be gone
      socket.notify('workspace/didChangeConfiguration', { settings: { foretype: options(settings) } });
    };
    nextEdits.isOn = () => {
      const nextEdit = options(settings).nextEdit as boolean | { enabled?: boolean } | undefined;
      return typeof nextEdit === 'object' ? nextEdit.enabled !== false : nextEdit !== false;
    };
    settings.changed.connect(tell);
    const hello = socket.heard.get('foretype/hello');
    socket.heard.set('foretype/hello', (params) => {
      tell();
      hello?.(params);
    });
    if (socket.isOpen) {
      tell();
    }
  });
  const style = document.createElement('style'); // a suggestion that may grow is none that is waited for
  style.textContent = '.jp-GhostText[data-provided-by="foretype"] .jp-GhostText-streamingIndicator { display: none; }';
  document.head.append(style);
}

export default {
  id: ID,
  description: 'Suggestions of Foretype as ghost text in cells.',
  autoStart: true,
  requires: [ICompletionProviderManager, INotebookTracker],
  optional: [IInlineCompleterFactory, ISettingRegistry],
  activate,
};
