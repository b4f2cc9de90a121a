// Drives JupyterLab or Notebook 7 in a headless Chromium for test_jupyter*.py: one command of JSON per line on standard input, one
// answer per line. playwright-core comes from the folder in FORETYPE_PLAYWRIGHT. Texts come from the page's model, ghost text from the screen.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.env.FORETYPE_PLAYWRIGHT}/package.json`);
const { chromium } = require('playwright-core');

const GHOST = '.jp-GhostText:not(.jp-GhostText-lineSpacer):not(.jp-GhostText-letterSpacer)';
const PANEL = '.jp-NotebookPanel:not(.lm-mod-hidden)';
const KINDS = {
  'foretype-next-old': 'struck', 'foretype-next-gone': 'struck', 'foretype-next-new': 'added', 'foretype-next-below': 'below', 'foretype-next-way': 'hint',
};
let browser;
let page;
let complaints = [];

const commands = {
  async launch({ path }) {
    browser = await chromium.launch({ executablePath: path, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-quic'] });
  },
  // A page of its own, in a profile of its own: nobody is logged in. Without a cell it is no notebook.
  async open({ url, cells = 1, width = 1100, height = 700 }) {
    await page?.context().close();
    page = await (await browser.newContext({ viewport: { width, height } })).newPage();
    page.setDefaultNavigationTimeout(180_000);
    complaints = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    await page.goto(url, { waitUntil: 'domcontentloaded' });
    await page.waitForFunction(
      ([selector, wanted]) => document.querySelectorAll(`${selector} .jp-Cell .cm-content`).length >= wanted, [PANEL, cells], { timeout: 180_000 },
    );
  },
  // Into the text of a cell, behind its last character.
  async focus({ cell }) {
    await page.click(`${PANEL} .jp-Cell >> nth=${cell} >> .cm-content`, { timeout: 180_000 });
    await page.keyboard.press('Control+End');
  },
  // What the notebook in front holds: the type and the text of each cell.
  cells: () => page.evaluate(() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map((cell) => [cell.cell_type, cell.getSource()])),
  // The active cell: its text and where in it the cursor is.
  active: () => page.evaluate(() => {
    const { activeCell } = window.jupyterapp.shell.currentWidget.content;
    return { text: activeCell.model.sharedModel.getSource(), offset: activeCell.editor.getOffsetAt(activeCell.editor.getCursorPosition()) };
  }),
  ghost: () => page.evaluate((selector) => {
    const shown = document.querySelector(selector);
    return shown === null ? '' : shown.innerText.replaceAll('\u200b', '').replaceAll('\u00a0', ' ');
  }, GHOST),
  // Each line of the notebook's cells on screen (cells and lines from 0): what of it is kept, struck and added by a next edit, the lines
  // that this puts below, and the hint at its end.
  lines: () => page.evaluate((kinds) => window.jupyterapp.shell.currentWidget.content.widgets.flatMap(({ editor }, cell) =>
    [...(editor?.host.querySelectorAll('.cm-line') ?? [])].map((line) => {
      const read = { kept: [], struck: [], added: [], below: [], hint: [] };
      const pieces = [];
      const walk = (node, kind) => {
        if (node.nodeType === Node.TEXT_NODE) {
          read[kind].push(node.data);
          pieces.push([kind, node.data]);
        }
        node.childNodes.forEach((child) => walk(child, kinds[[...(child.classList ?? [])].find((name) => name in kinds)] ?? kind));
      };
      const gone = line.classList.contains('foretype-next-gone');
      walk(line, gone ? 'struck' : 'kept');
      const number = editor.editor.state.doc.lineAt(editor.editor.posAtDOM(line)).number - 1;
      const inside = pieces.filter(([kind]) => kind !== 'below' && kind !== 'hint');
      return { cell, line: number, gone, pieces: inside, below: read.below.join(''), hint: read.hint.join('') };
    }),
  ), KINDS),
  // Runs a command of JupyterLab by its id.
  execute: ({ id, args = {} }) => page.evaluate(([command, given]) => window.jupyterapp.commands.execute(command, given).then(() => null), [id, args]),
  evaluate: ({ expression }) => page.evaluate(expression),
  press: async ({ keys }) => {
    for (const key of keys) {
      await page.keyboard.press(key);
    }
  },
  type: ({ text, delay = 0 }) => page.keyboard.type(text, { delay }),
  // From the key to the first frame with ghost text on screen (`taken`, null if there is none in time) and until now (`ago`), in milliseconds.
  async key_to_ghost({ key, timeout = 3000 }) {
    await page.evaluate((selector) => {
      const state = (window.__ghost = { start: undefined, end: undefined });
      addEventListener('keydown', () => { state.start ??= performance.now(); }, { capture: true, once: true });
      const look = () => {
        const shown = document.querySelector(selector)?.textContent.trim();
        if (state.start !== undefined && shown) {
          state.end = performance.now();
        } else if (window.__ghost === state) {
          requestAnimationFrame(look);
        }
      };
      requestAnimationFrame(look);
    }, GHOST);
    await page.keyboard.press(key);
    await page.waitForFunction(() => window.__ghost.end !== undefined, undefined, { timeout, polling: 'raf' }).catch(() => undefined);
    return page.evaluate(() => {
      const { start, end } = window.__ghost;
      return { ago: performance.now() - start, taken: end === undefined ? null : end - start };
    });
  },
  complaints: () => complaints,
  screenshot: ({ path, x = 0, y = 0, width = 1100, height = 700 }) => page.screenshot({ path, clip: { x, y, width, height } }).then(() => path),
  close: () => browser?.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...options } = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await commands[command](options)) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
  if (command === 'close') {
    process.exit(0);
  }
}
