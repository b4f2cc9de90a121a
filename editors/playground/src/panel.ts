/** What stands beside the editor: the prompt with its token ranges, what of it was computed, and where the time went. */
import type { Done, Plan } from './protocol';

const find = (id: string): HTMLElement => document.getElementById(id)!;

const STAGES: [string, string][] = [
  ['debounce', 'quiet after the last key'],
  ['plan', 'prompt assembled'],
  ['network', 'on the way'],
  ['admit', 'admitted'],
  ['queue', 'waited for a slot'],
  ['prefill', 'prompt computed'],
  ['decode_first', 'first token'],
  ['stream', 'the other tokens'],
];

const number = (value: number): string => value.toLocaleString('en');

function element(name: string, text = '', className = ''): HTMLElement {
  const node = document.createElement(name);
  node.textContent = text;
  node.className = className;
  return node;
}

function row(...cells: (string | HTMLElement)[]): HTMLElement {
  const line = document.createElement('tr');
  for (const cell of cells) {
    const node = element('td');
    node.append(cell);
    line.append(node);
  }
  return line;
}

function table(names: string[], lines: HTMLElement[], widths: string[]): HTMLElement {
  const node = document.createElement('table');
  const columns = document.createElement('colgroup');
  for (const width of widths) {
    const column = document.createElement('col');
    column.style.width = width;
    columns.append(column);
  }
  const head = document.createElement('tr');
  for (const name of names) {
    const cell = element('th', name);
    cell.setAttribute('scope', 'col');
    head.append(cell);
  }
  node.append(columns, head, ...lines);
  return node;
}

/** Tokens of `[start, end)` that a prefix cache of `cached` tokens held. */
const cachedOf = (start: number, end: number, cached: number): number => Math.max(0, Math.min(end, cached) - start);

export class Panel {
  private requests = 0;
  private prompted = 0;
  private computed = 0;

  profile({ model, grammar, layout }: { model: string; grammar: string; layout: string }): void {
    find('model').textContent = `${model} · grammar ${grammar} · layout ${layout}`;
  }

  /** The prompt as it is asked; `done` tells what of it was computed. */
  plan(plan: Plan, done?: Done): void {
    const total = plan.complete.prompt_tokens;
    const cached = done?.usage.cached_tokens;
    const rest = done ? `${number(done.usage.cached_tokens)} cached, ${number(total - done.usage.cached_tokens)} computed` : 'asked';
    find('summary').textContent = `${number(total)} tokens of at most ${number(plan.budget_tokens)}: ${rest}`;
    const parts: HTMLElement[] = [];
    const lines = plan.complete.segments.map((segment, index) => {
      const [start, end] = plan.ranges[index]!;
      const held = cached === undefined ? 0 : cachedOf(start, end, cached);
      const pieces: [number, string][] = cached === undefined ? [[end - start, 'planned']] : [[held, 'cached'], [end - start - held, 'computed']];
      const label = element('span');
      for (const [tokens, what] of pieces) {
        if (tokens > 0) {
          const part = element('span', '', what);
          part.style.width = `${(100 * tokens) / Math.max(1, total)}%`;
          parts.push(part);
          label.append(element('span', '', `mark ${what}`));
        }
      }
      label.append(segment.kind);
      const state = cached === undefined ? '' : held === end - start ? 'cached' : held === 0 ? 'computed' : `${number(held)} cached`;
      return row(label, `${number(start)}–${number(end)}`, number(end - start), state, element('code', JSON.stringify(segment.text.slice(-80))));
    });
    const dropped = plan.dropped.map((one) => row(one.kind, 'dropped', number(one.tokens), '', one.reason));
    find('bar').replaceChildren(...parts);
    find('segments').replaceChildren(
      table(['segment', 'tokens', 'count', 'state', 'text'], [...lines, ...dropped], ['6.5rem', '6rem', '4rem', '6.5rem', 'auto']),
    );
  }

  stages(timings: Record<string, number>): void {
    const longest = Math.max(1, ...STAGES.map(([name]) => timings[name] ?? 0));
    const lines = STAGES.map(([name, meaning]) => {
      const bar = element('div', '', 'time');
      bar.style.width = `${(100 * (timings[name] ?? 0)) / longest}%`;
      return row(meaning, timings[name] === undefined ? '' : `${timings[name]!.toFixed(1)} ms`, bar);
    });
    find('stages').replaceChildren(table(['stage', 'time', 'share'], lines, ['12rem', '6rem', 'auto']));
  }

  count(done: Done): void {
    this.requests += 1;
    this.prompted += done.usage.prompt_tokens;
    this.computed += done.usage.prompt_tokens - done.usage.cached_tokens;
    const share = this.prompted ? Math.round(100 * (1 - this.computed / this.prompted)) : 0;
    find('session').textContent =
      `this page: ${number(this.requests)} requests, ${number(this.computed)} of ${number(this.prompted)} prompt tokens computed, ${share} % from the cache`;
  }

  fail(message: string): void {
    find('summary').textContent = message;
  }
}
