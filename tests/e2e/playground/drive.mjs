// Drives a page in a headless Chromium for the playground's tests: one command of JSON per line on standard input, one answer
// per line. playwright-core and axe-core come from the folder in FORETYPE_PLAYGROUND.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.env.FORETYPE_PLAYGROUND}/package.json`);
const { chromium } = require('playwright-core');
let browser;
let page;
let complaints = [];

// The page's elements are there. What it draws and when is measured in it, from its own start on.
const parsed = () =>
  page.waitForFunction(() => document.readyState !== 'loading', undefined, { timeout: 180_000, polling: 5 }).then(() => null);

const commands = {
  async launch({ path }) {
    browser = await chromium.launch({ executablePath: path, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-quic'] });
  },
  // Opens the page afresh; counts what moves by itself from the first frame on.
  async open({ url, scheme = 'light', width = 1280, height = 800 }) {
    await page?.context().close();
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height } });
    page = await context.newPage();
    complaints = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    await page.addInitScript(() => {
      // What only changed its size, as text does that is split for its colours, has not moved.
      const moves = ({ previousRect: was, currentRect: is }) => was.x !== is.x || was.y !== is.y;
      const name = ({ node }) => (node?.outerHTML ?? node?.textContent ?? '').slice(0, 80);
      window.movers = [];
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.movers.push(...entry.sources.filter(moves).map(name))))
        .observe({ type: 'layout-shift', buffered: true });
    });
    await page.goto(url, { waitUntil: 'commit' });
    await parsed();
  },
  // Milliseconds since the page was opened at which a frame showed this; null if it never did.
  shown: ({ selector, timeout = 120_000 }) =>
    page.waitForFunction(
      (wanted) => document.querySelector(wanted)?.textContent.trim() && performance.now(), selector, { timeout, polling: 'raf' },
    ).then((handle) => handle.jsonValue(), () => null),
  again: () => page.reload({ waitUntil: 'commit' }).then(parsed),
  evaluate: ({ expression }) => page.evaluate(expression),
  press: async ({ keys }) => {
    for (const key of keys) {
      await page.keyboard.press(key);
    }
  },
  click: ({ selector }) => page.click(selector),
  type: ({ text, delay = 0 }) => page.keyboard.type(text, { delay }),
  screenshot: ({ path }) => page.screenshot({ path }).then(() => path),
  axe: async () => {
    await page.evaluate(readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
    const { violations, passes } = await page.evaluate(() => window.axe.run());
    return { passes: passes.length, violations: violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' ')}`) };
  },
  complaints: () => complaints,
  cookies: () => page.context().cookies(),
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
