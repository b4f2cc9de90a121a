import * as vscode from 'vscode';

/** Payload of `foretype/status` and `foretype/didChangeStatus`, as far as it is shown. */
export interface Status {
  state: 'starting' | 'ready' | 'degraded' | 'off';
  detail: string;
  model: string;
  advice?: string; // an older server has none
  gateway: string;
  problems: string[];
  counts: { lastLatencyMs: number | null; cachedShare: number | null; suggested: number; accepted: number };
}

const ICONS = { starting: '$(loading~spin)', ready: '$(sparkle)', degraded: '$(warning)', off: '$(circle-slash)' };

/** The item in the status bar: state, last latency, and for each state that is not ready the reason. */
export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem('foretype.status', vscode.StatusBarAlignment.Right, 90);
  private last: Status | undefined;

  constructor() {
    this.item.name = 'Foretype';
    this.item.command = 'foretype.showStatus';
    this.say('starting', 'starting the language server');
    this.item.show();
  }

  /** A state that the server cannot tell of itself: it is not there. */
  say(state: Status['state'], detail: string): void {
    this.last = undefined;
    this.draw(state, '', detail, []);
  }

  show(status: Status): void {
    this.last = status;
    const { counts } = status;
    const share = counts.cachedShare === null ? '' : ` · ${Math.round(counts.cachedShare * 100)} %`;
    const latency = counts.lastLatencyMs === null ? '' : ` ${Math.round(counts.lastLatencyMs)} ms${share}`;
    const lines = [
      status.model && `model: ${status.model}`,
      status.gateway && `gateway: ${status.gateway}`,
      !vscode.workspace.isTrusted && 'this folder is not trusted: nothing in it is read but what is open',
      counts.cachedShare !== null && `prompt tokens not computed: ${Math.round(counts.cachedShare * 100)} %`,
      `suggestions: ${counts.suggested}, accepted: ${counts.accepted}`,
      ...status.problems.map((problem) => `setting ${problem}`),
    ];
    // With the advice, such as that no good model is configured: who hears the item, and does not hover over it, is told, too.
    const said = [status.detail, status.advice].filter(Boolean).join('; ');
    this.draw(status.state, status.state === 'ready' ? latency : '', said, lines);
  }

  /** The state in words, for the command. */
  get text(): string {
    return this.last ? `Foretype: ${this.last.state}. ${this.lines.join('; ')}` : `Foretype: ${this.lines.join('; ')}`;
  }

  private lines: string[] = [];

  private draw(state: Status['state'], latency: string, detail: string, more: (string | false)[]): void {
    this.lines = [detail, ...more].filter((line) => typeof line === 'string' && line !== '') as string[];
    this.item.text = `${ICONS[state]} Foretype${latency}`;
    this.item.tooltip = [`Foretype: ${state}`, ...this.lines].join('\n');
    this.item.accessibilityInformation = { label: `Foretype ${state}${latency}${detail && `: ${detail}`}` };
    this.item.backgroundColor = state === 'degraded' ? new vscode.ThemeColor('statusBarItem.warningBackground') : undefined;
  }

  dispose(): void {
    this.item.dispose();
  }
}
