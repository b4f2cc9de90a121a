import * as vscode from 'vscode';

const SCHEME = 'foretype-explain';

interface Source {
  path: string;
  start: number;
  end: number;
}

/** The answer to `foretype.explain` (docs/protocol.md), as far as it is shown. */
export interface Explained {
  origin: string;
  characters: number;
  cached_source: string;
  generated_tokens: number;
  timings_ms: Record<string, number> | null;
  plan: {
    layout: string;
    kind: string;
    prompt_tokens: number;
    budget_tokens: number;
    segments: { kind: string; scope: string; source: Source; start: number; end: number; tokens: number; cached?: number | null }[];
    dropped: { kind: string; tokens: number; reason: string; source: Source }[];
  } | null;
}

/** Shows what the last suggestion was made from, in a document that nobody has to save. */
export class Explainer implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  private text = '';

  readonly onDidChange = this.changed.event;

  provideTextDocumentContent(): string {
    return this.text;
  }

  async show(explained: Explained | null): Promise<void> {
    this.text = explained === null ? 'There was no suggestion yet, or it is forgotten by now.\n' : lines(explained).join('\n') + '\n';
    const uri = vscode.Uri.from({ scheme: SCHEME, path: 'Foretype explains.txt' });
    this.changed.fire(uri);
    await vscode.window.showTextDocument(uri, { preview: true, viewColumn: vscode.ViewColumn.Beside });
  }

  dispose(): void {
    this.registered.dispose();
    this.changed.dispose();
  }
}

function lines({ origin, characters, generated_tokens, cached_source, timings_ms, plan }: Explained): string[] {
  const told = [`suggestion of ${characters} characters, origin: ${origin}, ${generated_tokens} tokens generated`, ''];
  if (plan === null) {
    told.push('no prompt was made for it: it comes from what this machine had already');
  } else {
    told.push(`prompt: ${plan.prompt_tokens} of at most ${plan.budget_tokens} tokens, layout ${plan.layout}, ${plan.kind}`, '');
    told.push(row('tokens', 'count', 'cached', 'kind', 'scope', 'from'));
    for (const { start, end, tokens, cached, kind, scope, source } of plan.segments) {
      told.push(row(`${start}-${end}`, tokens, cached ?? '?', kind, scope, `${source.path} ${source.start}-${source.end}`));
    }
    told.push(`cached: as the ${cached_source || 'engine'} says`, ...plan.dropped.map(({ kind, tokens, reason, source }) => `left out: ${kind} ${source.path}, ${tokens} tokens: ${reason}`));
  }
  told.push('', ...Object.entries(timings_ms ?? {}).map(([stage, ms]) => `${stage.padEnd(14)}${ms.toFixed(1).padStart(9)} ms`));
  return told;
}

function row(...cells: (string | number)[]): string {
  const widths = [13, 8, 8, 12, 12, 0];
  return cells.map((cell, index) => String(cell).padEnd(widths[index] ?? 0)).join('').trimEnd();
}
