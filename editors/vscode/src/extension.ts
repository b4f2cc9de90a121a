import { mkdir } from 'node:fs/promises';

import * as vscode from 'vscode';
import {
  CloseAction,
  ErrorAction,
  type LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
  type ServerOptions,
} from 'vscode-languageclient/node';

import { Chat, EXPLAIN, DOCUMENT, COMPLETE, type Target } from './chat';
import { type Explained, Explainer } from './explain';
import { Grown } from './grown';
import { Installer, NotInstalled } from './install';
import { locate } from './locate';
import { chooseModel } from './models';
import { chooseEagerness, nextEditsEnabled, toggleNextEdits } from './nextEdit/settings';
import { NextEdits } from './nextEdit/nextEdits';
import { serverOptions } from './options';
import { QuietClient } from './quiet';
import { Rested } from './rested';
import { type Status, StatusItem } from './status';

const TOKEN = 'foretype.token';
const OFF = 'foretype.off';
const SELECTOR = [{ scheme: 'file' }, { scheme: 'untitled' }, { scheme: 'vscode-notebook-cell' }];
const MENDED = 'see the log, correct foretype.server.path or install it anew, then restart';
const RESTARTS_MAX = 4;
const RESTARTS_WITHIN_MS = 180_000;

/** One language server for this window. Failures are shown in the status item and the log, never as a pop-up. */
class Extension {
  private readonly log = vscode.window.createOutputChannel('Foretype', { log: true });
  private readonly status = new StatusItem();
  private readonly explainer = new Explainer();
  private readonly chat = new Chat();
  private readonly grown = new Grown();
  private readonly nextEdits = new NextEdits(() => this.client, () => this.on && nextEditsEnabled());
  private readonly installer: Installer;
  private client: LanguageClient | undefined;
  private restarts: number[] = [];
  private round = new AbortController(); // aborted when another start overtakes this one
  private asking: NodeJS.Timeout | undefined;

  constructor(private readonly context: vscode.ExtensionContext) {
    this.installer = new Installer(
      context.asAbsolutePath('server'),
      context.globalStorageUri.fsPath,
      (doing) => this.status.say('starting', doing),
      (line) => this.log.info(line),
      folders,
    );
    const commands: Record<string, () => unknown> = {
      'foretype.explainSuggestion': () => this.explain(),
      'foretype.explainCode': () => this.talk(EXPLAIN),
      'foretype.documentCode': () => this.talk(DOCUMENT),
      'foretype.completeFunction': () => this.talk(COMPLETE),
      'foretype.acceptWord': () => vscode.commands.executeCommand('editor.action.inlineSuggest.acceptNextWord'),
      'foretype.acceptLine': () => vscode.commands.executeCommand('editor.action.inlineSuggest.acceptNextLine'),
      'foretype.nextEditTab': () => this.nextEdits.tab(),
      'foretype.takeNextEdit': () => this.nextEdits.take(),
      'foretype.jumpToNextEdit': () => this.nextEdits.jump(),
      'foretype.acceptNextEdit': () => this.nextEdits.accept(),
      'foretype.dismissNextEdit': () => this.nextEdits.dismiss(),
      'foretype.toggleNextEdits': () => toggleNextEdits(),
      'foretype.chooseEagerness': () => chooseEagerness(),
      'foretype.toggle': () => this.toggle(),
      'foretype.restart': () => this.restart(),
      'foretype.openLog': () => this.log.show(),
      'foretype.showStatus': () => this.showStatus(),
      'foretype.setToken': () => this.setToken(),
      'foretype.chooseModel': () => this.chooseModel(),
    };
    context.subscriptions.push(
      this.log,
      this.status,
      this.explainer,
      this.chat,
      this.grown,
      this.nextEdits,
      new Rested((document, position) => this.rested(document, position)),
      ...Object.entries(commands).map(([name, run]) => vscode.commands.registerCommand(name, run)),
      vscode.workspace.onDidChangeConfiguration((event) => this.onConfiguration(event)),
      vscode.workspace.onDidGrantWorkspaceTrust(() => this.sendOptions()),
    );
  }

  async start(): Promise<void> {
    this.round.abort();
    const { signal } = (this.round = new AbortController());
    try {
      const settings = vscode.workspace.getConfiguration('foretype');
      const command = await this.server(settings, signal);
      const options = await this.clientOptions(command);
      if (!signal.aborted) {
        const cwd = this.context.globalStorageUri.fsPath; // a Python would import from there; the library's choice is the open folder
        await mkdir(cwd, { recursive: true });
        await this.connect({ command, args: ['lsp', ...settings.get<string[]>('server.arguments', [])], options: { cwd } }, options);
      }
    } catch (error) {
      if (!signal.aborted) {
        const reason = error instanceof Error ? error.message : String(error);
        this.fail(error instanceof NotInstalled ? reason : `the language server did not start (${reason}): ${MENDED}`);
      }
    }
  }

  private async connect(server: ServerOptions & { command: string }, options: LanguageClientOptions): Promise<void> {
    this.log.info(`server: ${server.command}`);
    const client = new QuietClient('foretype', 'Foretype', server, options);
    client.onNotification('foretype/didChangeStatus', (status: Status) => this.status.show(status));
    client.onNotification('foretype/suggestionGrew', (grown: { textDocument: { uri: string } }) => this.grew(grown));
    this.client = client;
    await client.start(); // throws where the program cannot be run, or ends before it answers
  }

  /** The command of the server: as set, as found, or as this extension installs it. Throws NotInstalled. */
  private async server(settings: vscode.WorkspaceConfiguration, signal: AbortSignal): Promise<string> {
    const setting = settings.get<string>('server.path', '');
    const found = await locate(setting, ['foretype'], folders());
    if (found !== undefined) {
      return found;
    }
    if (setting) {
      throw new NotInstalled(`${setting} is no program: correct or empty foretype.server.path, which takes an absolute path`);
    }
    const installed = await this.installer.command(settings.get<string>('python.path', ''), signal);
    if (installed === undefined) {
      throw new NotInstalled("no `foretype` on the PATH or in ~/.local/bin: install it (pip install 'foretype[local]') or set foretype.server.path, then restart");
    }
    return installed;
  }

  private async explain(): Promise<void> {
    if (!this.client?.isRunning()) {
      await this.showStatus();
      return;
    }
    const asked = { command: 'foretype.explain', arguments: [] };
    await this.explainer.show(await this.client.sendRequest<Explained | null>('workspace/executeCommand', asked));
  }

  /** Explain, document or complete what is selected; `target` comes from a code action. */
  private async talk(command: string, target?: Target): Promise<void> {
    if (this.client?.isRunning()) {
      await this.chat.run(this.client, command, target);
    } else {
      await this.showStatus();
    }
  }

  private async chooseModel(): Promise<void> {
    if (this.client?.isRunning()) {
      await chooseModel(this.client);
    } else {
      await this.showStatus();
    }
  }

  async stop(): Promise<void> {
    this.round.abort();
    clearTimeout(this.asking);
    this.nextEdits.reset();
    const client = this.client;
    this.client = undefined;
    try {
      if (client?.isRunning()) {
        await client.stop();
      }
      await client?.dispose();
    } catch (error) {
      this.log.info(`stopping: ${String(error)}`); // one whose start failed refuses, and has let go of its process by itself
    }
  }

  private async clientOptions(command: string): Promise<LanguageClientOptions> {
    const token = (await this.context.secrets.get(TOKEN)) ?? '';
    return {
      documentSelector: SELECTOR,
      outputChannel: this.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: serverOptions(this.on, token),
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.closed(command),
      },
      initializationFailedHandler: () => false,
      middleware: {
        executeCommand: (command, args, next) =>
          [EXPLAIN, DOCUMENT, COMPLETE].includes(command) ? this.talk(command, args[0] as Target | undefined) : next(command, args),
        provideInlineCompletionItems: async (document, position, context, cancelled, next) => {
          const { version } = document;
          this.grown.noted(document);
          const items = await next(document, position, context, cancelled);
          this.askForStatus();
          const found = Array.isArray(items) ? items : items?.items;
          const byItself = context.triggerKind === vscode.InlineCompletionTriggerKind.Automatic;
          const gone = left(document, version, position);
          return found?.length && (gone || !this.nextEdits.admits(document, version, position, byItself)) ? [] : items;
        },
      },
    };
  }

  private closed(command: string): { action: CloseAction; handled: boolean } {
    const now = Date.now();
    this.restarts = [...this.restarts.filter((at) => now - at < RESTARTS_WITHIN_MS), now];
    if (this.restarts.length <= RESTARTS_MAX) {
      this.status.say('starting', 'the language server ended and is started again');
      return { action: CloseAction.Restart, handled: true };
    }
    this.fail(`${command} ended ${this.restarts.length} times: ${MENDED}`);
    return { action: CloseAction.DoNotRestart, handled: true };
  }

  /** The figures change with every suggestion, and the server does not tell of figures by itself. */
  private askForStatus(): void {
    this.asking ??= setTimeout(async () => {
      this.asking = undefined;
      if (this.client?.isRunning()) {
        this.status.show(await this.client.sendRequest<Status>('foretype/status'));
      }
    }, 300);
  }

  /** What is shown is a part of what is there now. */
  private grew(grown: { textDocument: { uri: string } }): void {
    const document = vscode.window.activeTextEditor?.document;
    if (document && this.client?.code2ProtocolConverter.asUri(document.uri) === grown.textDocument.uri) {
      this.grown.grew(document);
    }
  }

  private rested(document: vscode.TextDocument, position: vscode.Position): void {
    const client = this.client;
    if (client?.isRunning() && vscode.languages.match(SELECTOR, document)) {
      const textDocument = client.code2ProtocolConverter.asTextDocumentIdentifier(document);
      void client.sendNotification('foretype/cursorRested', { textDocument, position: client.code2ProtocolConverter.asPosition(position) });
    }
  }

  private get on(): boolean {
    return !this.context.globalState.get(OFF, false);
  }

  private async toggle(): Promise<void> {
    await this.context.globalState.update(OFF, this.on);
    this.nextEdits.reset();
    await this.sendOptions();
  }

  private async restart(): Promise<void> {
    this.restarts = [];
    this.status.say('starting', 'restarting the language server');
    await this.stop();
    await this.start();
  }

  private async setToken(): Promise<void> {
    const token = await vscode.window.showInputBox({
      title: 'Token for the gateway',
      prompt: 'Kept in the secret store; empty removes it',
      password: true,
      ignoreFocusOut: true,
    });
    if (token === undefined) {
      return;
    }
    await (token ? this.context.secrets.store(TOKEN, token) : this.context.secrets.delete(TOKEN));
    await this.sendOptions();
  }

  private async showStatus(): Promise<void> {
    const pick = await vscode.window.showInformationMessage(this.status.text, this.on ? 'Switch off' : 'Switch on', 'Choose a model', 'Restart', 'Open log');
    const run: Record<string, () => unknown> = {
      'Switch off': () => this.toggle(),
      'Switch on': () => this.toggle(),
      'Choose a model': () => this.chooseModel(),
      Restart: () => this.restart(),
      'Open log': () => this.log.show(),
    };
    await run[pick ?? '']?.();
  }

  private async onConfiguration(event: vscode.ConfigurationChangeEvent): Promise<void> {
    const other = event.affectsConfiguration('foretype.server') || (event.affectsConfiguration('foretype.python') && !this.client);
    if (other) {
      await this.restart();
    } else if (event.affectsConfiguration('foretype')) {
      this.nextEdits.reset();
      await this.sendOptions();
    }
  }

  private async sendOptions(): Promise<void> {
    if (this.client?.isRunning()) {
      const token = (await this.context.secrets.get(TOKEN)) ?? '';
      await this.client.sendNotification('workspace/didChangeConfiguration', {
        settings: { foretype: serverOptions(this.on, token) },
      });
    }
  }

  private fail(detail: string): void {
    this.log.error(detail);
    this.status.say('degraded', detail);
  }
}

/** What is open, as paths of this machine. */
function folders(): string[] {
  return (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
}

/** The cursor went elsewhere in the text that was asked for: VS Code would draw the answer where it was. */
function left(document: vscode.TextDocument, version: number, position: vscode.Position): boolean {
  const editor = vscode.window.activeTextEditor;
  return editor?.document === document && document.version === version && !editor.selection.active.isEqual(position);
}

let extension: Extension | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  extension = new Extension(context);
  await extension.start();
}

export async function deactivate(): Promise<void> {
  await extension?.stop();
}
