/** The playground: an editor with live ghost text, and beside it the prompt that the suggestion comes from. */
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { python } from '@codemirror/lang-python';
import { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { EditorState } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { Asking } from './asking';
import { ghostField, ghostKeys, offer, shown } from './ghost';
import { nextEdits, shown as nextShown, words } from './next';
import { Panel } from './panel';
import { type Done, type Finished, LoginNeeded, type Plan, Stream, enter, post, random } from './protocol';
import { CURSOR, SAMPLE } from './sample';

const DEBOUNCE_MS = 50;
const PAGE = random();
const find = (id: string): HTMLElement => document.getElementById(id)!;
const login = find('login') as HTMLFormElement;
const panel = new Panel();
const stream = new Stream((profile) => panel.profile(profile), () => askForLogin());

const highlighting = HighlightStyle.define([
  { tag: tags.keyword, color: 'var(--keyword)' },
  { tag: tags.string, color: 'var(--string)' },
  { tag: tags.comment, color: 'var(--comment)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--number)' },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.className)], color: 'var(--name)' },
]);
const theme = EditorView.theme({
  '&': { backgroundColor: 'var(--ground)', color: 'var(--text)' },
  '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-2px' },
  '.cm-gutters': { backgroundColor: 'var(--raised)', color: 'var(--quiet)', borderRight: '1px solid var(--line)' },
  '.cm-activeLine': { backgroundColor: 'transparent' },
  '.cm-cursor': { borderLeftColor: 'var(--text)', borderLeftWidth: '2px' },
  '.cm-content': { caretColor: 'var(--text)' },
});

/** The request that is under way or was last: what came of it, and the text that was typed since it was asked. */
interface Live {
  id?: string;
  plan: Plan;
  position: number;
  written: string;
  sent: number;
  first?: number;
  timings: Record<string, number>;
}

const asking = new Asking(() => view, (error) => report(error));

let live: Live | undefined;
let turn = 0;
let timer: number | undefined;

const view = new EditorView({
  parent: find('editor'),
  state: EditorState.create({
    doc: SAMPLE,
    selection: { anchor: CURSOR },
    extensions: [
      lineNumbers(),
      history(),
      drawSelection(),
      highlightActiveLine(),
      bracketMatching(),
      indentOnInput(),
      indentUnit.of('    '),
      python(),
      syntaxHighlighting(highlighting),
      theme,
      ghostField,
      ghostKeys(() => void ask(0), dismiss),
      nextEdits({
        refused: (next) => asking.refused(next),
        jumped: (next) => (dismiss(), asking.jumped(next)),
      }),
      keymap.of([...defaultKeymap, ...historyKeymap]),
      EditorView.contentAttributes.of({ 'aria-label': 'Python code', spellcheck: 'false', tabindex: '0' }),
      EditorView.updateListener.of((update) => {
        const away = asking.follow(update);
        if (nextShown(update.state) !== nextShown(update.startState)) {
          find('said').textContent = words(update.state);
        }
        if (away) {
          clearTimeout(timer); // one of both is on the screen
        } else if (update.docChanged && !shown(update.state)) {
          schedule();
        } else if (update.selectionSet && !update.docChanged) {
          clearTimeout(timer); // who moves the cursor reads
        }
      }),
    ],
  }),
});

/** Nothing of what is under way is shown any more. */
function dismiss(): void {
  turn += 1;
  if (live?.id) {
    stream.cancel(live.id);
  }
  live = undefined;
}

function schedule(): void {
  clearTimeout(timer);
  const { head } = view.state.selection.main;
  const delay = view.state.doc.lineAt(head).text.trim() ? DEBOUNCE_MS : 0; // at the start of a line there is nothing to wait for
  timer = setTimeout(() => void ask(delay), delay);
}

async function ask(debounce: number): Promise<void> {
  const mine = ++turn;
  const { doc, selection } = view.state;
  const position = selection.main.head;
  const before = doc.sliceString(0, position);
  const started = performance.now();
  try {
    const plan = await post<Plan>('plan', {
      page: PAGE, before, after: doc.sliceString(position), path: 'playground.py', language: 'python',
    });
    if (mine !== turn || view.state.doc !== doc) {
      return; // typed on: the next question is on its way
    }
    const asked: Live = { plan, position, written: '', sent: 0, timings: { debounce, plan: performance.now() - started } };
    const older = live?.id;
    live = asked;
    panel.plan(plan);
    panel.stages(asked.timings);
    asked.sent = performance.now();
    asked.id = await stream.complete(plan, older, {
      delta: (text) => grow(asked, text),
      done: (done) => void ended(asked, done),
      failed: (message) => asked === live && panel.fail(message),
    });
  } catch (error) {
    report(error);
  }
}

function report(error: unknown): void {
  if (error instanceof LoginNeeded) {
    askForLogin();
  } else {
    panel.fail(error instanceof Error ? error.message : String(error));
  }
}

/** What of a text for the place where `asked` was asked is still to come, or null if the user went another way. */
function rest(asked: Live, text: string): string | null {
  const { head } = view.state.selection.main;
  const typed = head >= asked.position ? view.state.doc.sliceString(asked.position, head) : null;
  return typed !== null && text.startsWith(typed) ? text.slice(typed.length) : null;
}

function show(asked: Live, text: string, replaces: number): void {
  const left = nextShown(view.state) ? null : rest(asked, text);
  const { head } = view.state.selection.main;
  view.dispatch({ effects: offer.of(left ? { position: head, text: left, replaces } : null) });
}

function grow(asked: Live, text: string): void {
  asked.first ??= performance.now();
  asked.written += text;
  const { healed } = asked.plan;
  if (asked === live && asked.written.startsWith(healed)) {
    show(asked, asked.written.slice(healed.length).trimEnd(), 0);
  }
}

async function ended(asked: Live, done: Done): Promise<void> {
  panel.count(done);
  if (asked !== live) {
    return;
  }
  const { admit = 0, queue = 0, prefill = 0, decode_first = 0 } = done.timings_ms;
  const atGateway = admit + queue + prefill + decode_first;
  const network: Record<string, number> =
    asked.first === undefined ? {} : { network: Math.max(0, asked.first - asked.sent - atGateway) };
  panel.plan(asked.plan, done);
  panel.stages({ ...done.timings_ms, ...asked.timings, ...network });
  if (done.finish === 'cancelled') {
    return;
  }
  const final = done.finish !== 'length';
  const { version } = asked.plan.complete;
  const finished = await post<Finished>('finish', { page: PAGE, version, text: asked.written, final }).catch(() => undefined);
  if (finished && asked === live) {
    show(asked, finished.text, finished.replaces);
    const text = shown(view.state)?.text;
    find('said').textContent = text ? `Suggestion: ${text}` : '';
  }
}

const eagerness = find('eagerness') as HTMLSelectElement;
eagerness.value = asking.level;
eagerness.addEventListener('change', () => {
  asking.level = eagerness.value;
  view.focus();
});

function askForLogin(): void {
  login.hidden = false;
  find('model').textContent = 'not logged in';
  panel.fail('log in to see suggestions');
  find('token').focus();
}

login.addEventListener('submit', async (event) => {
  event.preventDefault();
  try {
    await enter({ token: (find('token') as HTMLInputElement).value });
    (find('token') as HTMLInputElement).value = '';
    login.hidden = true;
    find('login-error').textContent = '';
  } catch (error) {
    find('login-error').textContent = error instanceof LoginNeeded ? 'This is not the token of this gateway.' : String(error);
    return;
  }
  view.focus();
  await ask(0);
});

async function start(): Promise<void> {
  panel.stages({});
  view.focus();
  // `foretype playground` opens an address with a code behind #, which works once, for a minute.
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code) {
    window.history.replaceState(null, '', location.pathname);
    await enter({ code }).catch(() => {
      // Seen only where nobody is logged in.
      find('login-error').textContent = 'This address was used before, or is older than a minute: `foretype playground` makes another.';
    });
  }
  await ask(0);
}

void start();
