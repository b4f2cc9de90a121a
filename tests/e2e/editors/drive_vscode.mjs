// Drives VS Code in a headless Chromium for test_vscode.py: one command of JSON per line on standard input, one answer per line.
// Needs playwright-core from the folder in FORETYPE_PLAYWRIGHT; ghost text is what is on screen, the buffer what is saved.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.env.FORETYPE_PLAYWRIGHT}/package.json`);
const { chromium } = require('playwright-core');

const GHOST = '.ghost-text-decoration, .ghost-text, .ghost-text-decoration-preview, .ghost-text-multi-line .view-line, .suggest-preview-text';
const INPUT = '.editor-instance .native-edit-context, .editor-instance textarea.inputarea';
let context;
let page;

const commands = {
  async open({ url, browser, profile, width = 1000, height = 700 }) {
    context = await chromium.launchPersistentContext(profile, {
      executablePath: browser,
      headless: true,
      viewport: { width, height },
      args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    context.setDefaultNavigationTimeout(180_000);
    page = context.pages()[0] ?? (await context.newPage());
    await page.goto(url, { waitUntil: 'domcontentloaded' });
    await page.waitForSelector('.monaco-editor .view-line', { timeout: 180_000 });
  },
  reload: async () => {
    await page.reload({ waitUntil: 'domcontentloaded' });
    await page.waitForSelector('.monaco-editor .view-line', { timeout: 180_000 });
  },
  // Not by a click: on a busy machine something may lie over the text for a while.
  focus: () =>
    page.waitForFunction((selector) => {
      const input = document.querySelector(selector);
      input?.focus();
      return input !== null && document.activeElement === input;
    }, INPUT, { timeout: 180_000 }).then(() => null),
  // Into the text of the first cell of the notebook that is open.
  cell: async () => {
    await page.click('.notebookOverlay .code-cell-row .view-line', { timeout: 180_000 });
  },
  palette: ({ shown }) =>
    page.waitForFunction((wanted) => {
      const widget = document.querySelector('.quick-input-widget');
      const open = widget !== null && widget.offsetParent !== null;
      return wanted ? open && widget.contains(document.activeElement) : !open;  // it is seen before it takes keys
    }, shown, { timeout: 180_000 }).then(() => null),
  // The palette's first row is this one.
  picked: ({ text }) => page.locator('.quick-input-list .monaco-list-row').first().filter({ hasText: text }).waitFor({ timeout: 180_000 }),
  // Whether it is, within so many milliseconds.
  first: ({ text, timeout }) =>
    page.locator('.quick-input-list .monaco-list-row').first().filter({ hasText: text }).waitFor({ timeout }).then(() => true, () => false),
  // What the palette, or a menu in its place, offers: the text of each row.
  rows: () => page.evaluate(() => [...document.querySelectorAll('.quick-input-list .monaco-list-row')].map((row) => row.textContent)),
  press: async ({ keys }) => {
    for (const key of keys) {
      await page.keyboard.press(key);
    }
  },
  type: async ({ text, delay = 0 }) => page.keyboard.type(text, { delay }),
  // At once, as from the clipboard.
  insert: ({ text }) => page.keyboard.insertText(text),
  // Milliseconds since the key came, and from it to the first frame with ghost text on screen; null if there is none in time.
  async key_to_ghost({ key, timeout = 3000 }) {
    await page.evaluate((selector) => {
      const state = (window.__ghost = { start: undefined, end: undefined });
      addEventListener('keydown', () => { state.start ??= performance.now(); }, { capture: true, once: true });
      const look = () => {
        const shown = [...document.querySelectorAll(selector)].some((node) => node.textContent.trim());
        if (state.start !== undefined && shown) {
          state.end = performance.now();
        } else if (window.__ghost === state) {
          requestAnimationFrame(look);
        }
      };
      requestAnimationFrame(look);
    }, GHOST);
    await page.keyboard.press(key);
    await page.waitForFunction(() => window.__ghost.end !== undefined, undefined, { timeout }).catch(() => undefined);
    return page.evaluate(() => {
      const { start, end } = window.__ghost;
      return { ago: performance.now() - start, taken: end === undefined ? null : end - start };
    });
  },
  ghost: () =>
    page.evaluate(
      (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent).join('').replaceAll('\u00a0', ' '),
      GHOST,
    ),
  // What is drawn of a next edit: for each line on screen its number, its pieces (kept, struck, added), lines drawn below it, a hint.
  drawn: () =>
    page.evaluate(() => {
      const said = (node, which) => {
        const style = getComputedStyle(node, which);
        const text = style.content.startsWith('"') ? style.content.slice(1, -1).replace(/\\(.)/g, '$1').replaceAll('\u00a0', ' ') : '';
        return { text, isBelow: style.position === 'absolute', top: parseFloat(style.top) };
      };
      const cell = document.activeElement?.closest('.notebookOverlay .monaco-editor');
      const editor = cell ?? document.querySelector('.part.editor .editor-group-container.active .monaco-editor');
      const numbers = new Map([...editor.querySelectorAll('.margin-view-overlays > div')].map((row) => [row.style.top, row.textContent.trim()]));
      return [...editor.querySelectorAll('.view-line')].map((line) => {
        const shown = { line: Number(numbers.get(line.style.top)), pieces: [], below: [], hint: '' };
        for (const node of line.querySelectorAll(':scope > span > span')) {
          const text = node.textContent.replaceAll('\u00a0', ' ').replaceAll('\u200b', '');
          if (text) {
            shown.pieces.push([getComputedStyle(node).textDecorationLine.includes('line-through') ? 'struck' : 'kept', text]);
          }
          const after = said(node, '::after');
          if (after.isBelow && after.text) {
            shown.below.push([after.top, after.text]);
          } else if (after.text.startsWith('→ next edit')) {
            shown.hint = after.text;
          } else if (after.text) {
            shown.pieces.push(['added', after.text]);
          }
        }
        return { ...shown, below: shown.below.sort(([one], [other]) => one - other).map(([, text]) => text) };
      }).sort((one, other) => one.line - other.line);
    }),
  // With the mouse, behind the text of a line.
  click: async ({ line }) => {
    const rows = page.locator('.part.editor .editor-group-container.active .margin-view-overlays > div').filter({ hasText: new RegExp(`^\\s*${line}\\s*$`) });
    const { y, height } = await rows.first().boundingBox();
    const text = await page.locator('.part.editor .editor-group-container.active .view-lines').first().boundingBox();
    await page.mouse.click(text.x + 300, y + height / 2);
  },
  menu: () => page.evaluate(() => [...document.querySelectorAll('.suggest-widget.visible .monaco-list-row')].map((row) => row.textContent)),
  renaming: () => page.evaluate(() => document.activeElement?.closest('.rename-box') != null),
  // Line and column of the cursor, and the first line on screen.
  cursor: () =>
    page.evaluate(() => {
      const [, line, column] = /Ln (\d+), Col (\d+)/.exec(document.getElementById('status.editor.selection')?.textContent ?? '') ?? [];
      const rows = [...document.querySelectorAll('.part.editor .editor-group-container.active .margin-view-overlays > div')];
      const visible = rows.filter((row) => row.getBoundingClientRect().top >= row.closest('.monaco-editor').getBoundingClientRect().top);
      return { line: Number(line), column: Number(column), top: Math.min(...visible.map((row) => Number(row.textContent.trim()))) };
    }),
  // What all editors of the window show.
  text: () => page.evaluate(() => [...document.querySelectorAll('.view-line')].map((node) => node.textContent).join('\n').replaceAll('\u00a0', ' ')),
  // What the editor shows that keys go to.
  active: () => page.evaluate(() => document.activeElement?.closest('.editor-instance, .notebookOverlay .monaco-editor')?.querySelector('.view-lines')?.textContent.replaceAll('\u00a0', ' ') ?? ''),
  // The button of the editor for workspace trust.
  trust: async () => {
    await page.locator('.workspace-trust-editor .workspace-trust-buttons-row .monaco-button', { hasText: /^Trust/ }).first().click({ timeout: 180_000 });
  },
  // Name of the file that the active tab shows.
  tab: () => page.evaluate(() => document.querySelector('.tab.active')?.getAttribute('data-resource-name') ?? ''),
  // Whether the file in front is not as it lies on disk.
  dirty: () => page.evaluate(() => document.querySelector('.editor-group-container.active .tab.active')?.classList.contains('dirty') ?? false),
  status: () => page.evaluate(() => document.querySelector('[id="foretype.foretype.foretype.status"], [id*="foretype.status"]')?.getAttribute('aria-label') ?? null),
  // Notifications that popped up: there must never be any of ours, but for a question.
  notifications: () => page.evaluate(() => [...document.querySelectorAll('.notification-list-item-message')].map((node) => node.textContent)),
  // Press the button with this text of a notification.
  answer: ({ text }) => page.locator('.notification-list-item-buttons-container .monaco-button', { hasText: text }).first().click(),
  size: ({ width, height }) => page.setViewportSize({ width, height }),
  screenshot: ({ path }) => page.screenshot({ path }).then(() => path),
  close: () => context?.close(),
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
