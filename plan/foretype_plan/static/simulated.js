'use strict';
// The page of `foretype simulate`: what runs printed, drawn. Nothing is reckoned here.

const $ = (id) => document.getElementById(id);
const NAMES = {
  ttft_p50_ms: 'first token, p50, ms', ttft_p95_ms: 'first token, p95, ms', ttft_p99_ms: 'first token, p99, ms', tpot_p50_ms: 'a token, p50, ms',
  tpot_p99_ms: 'a token, p99, ms', goodput: 'in their objective, share', refused: 'refused, share', silent: 'not asked, share',
  cancelled: 'given up, share', lost: 'lost, share', cached_share: 'prompt tokens found, share', replica_hours: 'replica hours', rate: 'requests/s',
};
const HOURLY = { rate: 'requests/s', replicas: 'replicas', ttft_p99_ms: 'first token, p99, ms', goodput: 'in their objective, share' };
const told = (value) => Number(value.toPrecision(4)).toLocaleString('en', { maximumSignificantDigits: 4 });
const escaped = (value) => String(value).replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

function table(id, caption, heads, rows) {
  const cell = (value, index) => (index === 0 ? `<th scope="row">${escaped(value)}</th>` : `<td>${escaped(value)}</td>`);
  $(id).innerHTML = `<table><caption>${escaped(caption)}</caption><thead><tr>${heads.map((head) => `<th scope="col">${escaped(head)}</th>`).join('')}</tr></thead>`
    + `<tbody>${rows.map((row) => `<tr>${row.map(cell).join('')}</tr>`).join('')}</tbody></table>`;
}

const charts = {};
function chart(id, data, series, axes, ticks) {
  const style = getComputedStyle(document.documentElement);
  const stroke = style.getPropertyValue('--text'), grid = { stroke: style.getPropertyValue('--soft') };
  charts[id]?.destroy();
  charts[id] = new uPlot({
    width: $(id).clientWidth || 600, height: 280, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: ticks ? () => [-0.5, ticks.length - 0.5] : undefined } },
    series: [{ label: axes[0], ...(ticks ? { value: (_, at) => (at === null ? '' : ticks[at] ?? '') } : {}) }, ...series],
    axes: axes.map((label, index) => ({
      label, stroke, grid, ticks: grid,
      ...(index === 0 && ticks ? { splits: () => ticks.map((_, at) => at), values: (_, splits) => splits.map((at) => ticks[at]) } : {}),
    })),
  }, data, $(id));
}
const colours = () => (matchMedia('(prefers-color-scheme: dark)').matches ? ['#8ab4f8', '#fdd663', '#f28b82'] : ['#0b57d0', '#8a5a00', '#b3261e']);

function options(id, entries) {
  const before = $(id).value;
  $(id).replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
  if (entries.some(([value]) => value === before)) $(id).value = before;
}

function showScenario() {
  const made = GIVEN.scenarios.find((one) => one.scenario === $('scenario').value);
  options('figure', Object.entries(NAMES).filter(([key]) => key in made.variants[0].figures));
  const key = $('figure').value, [blue, gold] = colours();
  $('says').textContent = `${made.says}. ${made.model} on ${made.gpu}; mean and 95 % interval over ${made.seeds} seeds.`;
  const each = made.variants.map((one) => one.figures[key]);
  const dots = (label, stroke, width) => ({ label, stroke, width: 0, paths: () => null, points: { show: true, size: width, fill: stroke } });
  chart('variants', [each.map((_, at) => at), each.map((one) => one.mean), each.map((one) => one.low), each.map((one) => one.high)],
    [dots('mean', blue, 11), dots('low', gold, 6), dots('high', gold, 6)], ['variant', NAMES[key]], made.variants.map((one) => one.name));
  const shown = Object.keys(NAMES).filter((name) => name in made.variants[0].figures);
  const cell = (one) => (one ? `${told(one.mean)} (${told(one.low)} to ${told(one.high)})` : '');
  table('variants-table', 'Variants', ['variant', ...shown.map((name) => NAMES[name])], made.variants.map((one) => [one.name, ...shown.map((name) => cell(one.figures[name]))]));
  table('compared-table', `Less ${made.variants[0].name}, seed by seed`, ['variant', ...shown.map((name) => NAMES[name])],
    made.compared.map((one) => [one.name, ...shown.map((name) => cell(one.figures[name]))]));
}

function showDay() {
  const key = $('hourly').value, regions = [...new Set(GIVEN.day.hours.map((one) => one.region))];
  const line = (region, name) => GIVEN.day.hours.filter((one) => one.region === region).map((one) => one[name]);
  chart('day', [line(regions[0], 'hour'), ...regions.map((region) => line(region, key))],
    regions.map((label, at) => ({ label, stroke: colours()[at % 3], width: 2, paths: uPlot.paths.stepped({ align: 1 }) })), ['hour, UTC', HOURLY[key]]);
  $('day-says').textContent = `${told(GIVEN.day.developers)} developers, ${told(GIVEN.day.requests_day)} requests; p50 ${told(GIVEN.day.ttft_p50_ms)} ms, p99 ${told(GIVEN.day.ttft_p99_ms)} ms, `
    + `${told(100 * GIVEN.day.goodput)} % in their objective; ${told(GIVEN.day.replica_hours)} replica hours that follow the day, ${told(GIVEN.day.replica_hours_fixed)} that do not.`;
  table('day-table', HOURLY[key], ['hour, UTC', ...regions], line(regions[0], 'hour').map((hour) => [hour, ...regions.map((region) => told(line(region, key)[hour]))]));
}

function show() {
  if (GIVEN.scenarios.length) showScenario();
  if (GIVEN.day) showDay();
}

if (GIVEN.scenarios.length) {
  $('scenarios').hidden = false;
  options('scenario', GIVEN.scenarios.map((one) => [one.scenario, one.scenario]));
}
if (GIVEN.day) {
  $('days').hidden = false;
  options('hourly', Object.entries(HOURLY));
}
if (GIVEN.pairs) {
  $('validated').hidden = false;
  table('pairs', 'Predicted and measured', ['what', 'predicted', 'measured', 'ratio'],
    GIVEN.pairs.map((one) => [one.name, told(one.predicted), told(one.measured), one.ratio.toFixed(2) + (GIVEN.missed.includes(one.name) ? ' (missed)' : '')]));
  $('left-out').textContent = Object.entries(GIVEN.left_out).map(([what, why]) => `Left out: ${what}: ${why}.`).join(' ');
}
for (const id of ['scenario', 'figure', 'hourly']) $(id).addEventListener('change', show);
addEventListener('resize', show);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
show();
