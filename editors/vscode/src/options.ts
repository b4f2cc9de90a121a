import * as vscode from 'vscode';

/** Names of the settings that the server knows by the same names as initialization options. */
const SHARED = ['debounceMs', 'multiLine', 'inComments', 'inStrings', 'excludedGlobs', 'gatewayUrl', 'tokenInClear', 'logLevel', 'askHowItFeels'] as const;

/** What the server gets: at start, and again whenever a setting changes. */
export function serverOptions(on: boolean, token: string): Record<string, unknown> {
  const settings = vscode.workspace.getConfiguration('foretype');
  const options: Record<string, unknown> = { suggestionGrew: true, askEarly: true, trusted: vscode.workspace.isTrusted };
  for (const name of SHARED) {
    options[name] = settings.get(name);
  }
  options.nextEdit = { enabled: settings.get('nextEdit.enabled'), eagerness: settings.get('nextEdit.eagerness') };
  options.enable = on ? settings.get('enable') : { '*': false };
  if (token) {
    options.token = token;
  }
  return options;
}
