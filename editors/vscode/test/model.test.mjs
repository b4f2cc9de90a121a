// `npm run unit`: what of next edits knows no editor.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { drawing, hint, isNear, trimmed, typedAlong } from '../out/model.mjs';

const lines = (text) => text.split(/\r\n|\r|\n/);

/** Offset of a place, and a place of an offset, in a text whose lines end with `\n`. */
const placed = (text, offset) => {
  const above = lines(text.slice(0, offset));
  return { line: above.length - 1, character: above.at(-1).length };
};

/** Does what is drawn, and nothing else: what a user who trusts the drawing expects. */
function done(text, { struck, gone, added, below }) {
  return lines(text).flatMap((line, number) => {
    const go = struck.find((one) => one.line === number);
    const come = added.find((one) => one.line === number);
    const kept = go ? [line.slice(0, go.from), line.slice(go.to)] : come ? [line.slice(0, come.at), line.slice(come.at)] : [line];
    const now = kept.join(come?.text ?? '');
    return [...(gone.includes(number) ? [] : [now]), ...(below?.line === number ? below.lines : [])];
  }).join('\n');
}

function drawn(text, start, end, by) {
  return drawing((line) => lines(text)[line], placed(text, start), placed(text, end), by);
}

const TEXT = 'one = 1\n\ttwo = one\nthree(one, two)\n\n😀 = two';

test('what is drawn is what is applied, for every place and many texts', () => {
  const texts = ['', 'x', 'one', '\n', 'a\nb', 'one = 1\n', '\n\n', '\tq\n', '😁', 'two = one\nthree', 'a\nb\nc\nd\ne\nf\ng'];
  let seen = 0;
  for (let start = 0; start <= TEXT.length; start += 1) {
    for (let end = start; end <= TEXT.length; end += 1) {
      for (const by of texts) {
        const whole = drawn(TEXT, start, end, by);
        assert.equal(done(TEXT, whole), TEXT.slice(0, start) + by + TEXT.slice(end), JSON.stringify([start, end, by]));
        seen += 1;
      }
    }
  }
  assert.ok(seen > 5000);
});

test('a word that is replaced is struck as a whole, one that grows only gets what comes', () => {
  const { struck, added } = drawn('print(count)', 6, 11, 'amount');
  assert.deepEqual([struck, added], [[{ line: 0, from: 6, to: 11 }], [{ line: 0, at: 11, text: 'amount' }]]);
  assert.deepEqual(drawn('print(count)', 6, 11, 'counter').added, [{ line: 0, at: 11, text: 'er' }]);
  assert.deepEqual(drawn('print(count)', 6, 11, 'counter').struck, []);
});

test('of a word that the user types what is typed stays', () => {
  const { struck, added } = drawing(() => 'return tocount', { line: 0, character: 9 }, { line: 0, character: 14 }, 'tal', true);
  assert.deepEqual([struck, added], [[{ line: 0, from: 9, to: 14 }], [{ line: 0, at: 14, text: 'tal' }]]);
});

test('lines that only come are drawn below the line before them', () => {
  assert.deepEqual(drawn('a\nb', 2, 2, 'x\ny\n'), { struck: [], gone: [], added: [], below: { line: 0, lines: ['x', 'y'] } });
  assert.deepEqual(drawn('a\nb', 3, 3, '\nx').below, { line: 1, lines: ['x'] });
});

test('a line with its break that goes is gone', () => {
  assert.deepEqual(drawn('a\nb\nc', 2, 4, ''), { struck: [], gone: [1], added: [], below: undefined });
});

test('near is on the line or two below, and on screen', () => {
  const visible = [{ first: 0, last: 20 }];
  assert.deepEqual([4, 5, 6, 7, 8].map((line) => isNear(5, line, visible)), [false, true, true, true, false]);
  assert.equal(isNear(20, 21, visible), false);
  assert.equal(isNear(20, 21, [...visible, { first: 21, last: 40 }]), true);
});

test('the hint names line, direction or file, and the key', () => {
  assert.equal(hint(3, 119, undefined, 'Tab'), '→ next edit: line 120 ↓ (Tab)');
  assert.equal(hint(130, 119, undefined, 'Alt+J'), '→ next edit: line 120 ↑ (Alt+J)');
  assert.equal(hint(3, 0, 'util.py', 'Tab'), '→ next edit: util.py, line 1 (Tab)');
});

test('typed along: insertion, replacement, deletion', () => {
  const type = (edit, start, end, text) => typedAlong(edit, { start, end, text });
  const come = { start: 10, old: '', text: 'total' };
  assert.deepEqual(type(come, 10, 10, 'to'), { start: 12, old: '', text: 'tal' });
  assert.deepEqual(type(come, 10, 10, 'total'), { start: 15, old: '', text: '' });
  assert.equal(type(come, 10, 10, 'x'), null);
  assert.equal(type(come, 9, 9, 't'), null);
  const replace = { start: 10, old: 'count', text: 'amazing' };
  assert.deepEqual(type(replace, 10, 15, 'a'), { start: 11, old: '', text: 'mazing' });
  assert.deepEqual(type(replace, 10, 10, 'a'), { start: 11, old: 'count', text: 'mazing' });
  assert.deepEqual(type(replace, 14, 15, ''), { start: 10, old: 'coun', text: 'amazing' });
  assert.deepEqual(type(replace, 10, 15, ''), { start: 10, old: '', text: 'amazing' });
  assert.equal(type(replace, 15, 15, 's'), null);
  assert.equal(type(replace, 9, 12, ''), null);
  assert.equal(type(replace, 10, 10, 'c'), null);
});

test('typed along from the left, a key at a time, it is always the rest; the end is nothing', () => {
  for (const [old, text] of [['count', 'total'], ['', 'aaa'], ['aa', 'aab'], ['abc', 'abcabc'], ['x', '😀y'], ['b', 'bb']]) {
    let edit = trimmed({ start: 7, old, text });
    let buffer = `1234567${old}!`;
    for (let step = 0; edit && (edit.old || edit.text) && step < 20; step += 1) {
      const key = [...edit.text][0] ?? '';
      const change = key ? { start: edit.start, end: edit.start, text: key } : { start: edit.start, end: edit.start + 1, text: '' };
      buffer = buffer.slice(0, change.start) + change.text + buffer.slice(change.end);
      edit = typedAlong(edit, change);
      assert.equal(buffer.slice(0, edit.start) + edit.text + buffer.slice(edit.start + edit.old.length), `1234567${text}!`);
    }
    assert.equal(buffer, `1234567${text}!`);
  }
});

test('no character is cut in two, nor a line break', () => {
  assert.deepEqual(trimmed({ start: 0, old: 'a😀b', text: 'a😁b' }), { start: 1, old: '😀', text: '😁' });
  assert.deepEqual(trimmed({ start: 0, old: 'a\r\n', text: 'b\n' }), { start: 0, old: 'a\r\n', text: 'b\n' });
});
