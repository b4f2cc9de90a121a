'use strict';
// The page: inputs, the formulas of formulas.js, tiles, two charts. Nothing is reckoned here that formulas.js does not say.

const $ = (id) => document.getElementById(id);
const values = { ...GIVEN.values };
const choice = { ...GIVEN.choice };

const SLIDERS = [
  ['developers', 'Developers', 1, 6, 0.05, (x) => Math.round(10 ** x), (v) => Math.log10(v), (v) => v.toLocaleString('en')],
  ['warm_share', 'Requests that find their prefix', 0, 1, 0.01, (x) => x, (v) => v, (v) => `${Math.round(100 * v)} %`],
  ['objective_s', 'Objective, first token', 0.03, 2, 0.01, (x) => x, (v) => v, (v) => `${Math.round(1000 * v)} ms`],
  ['prompt_tokens', 'Prompt, tokens', 250, 16000, 250, (x) => x, (v) => v, (v) => v.toLocaleString('en')],
  ['output_tokens', 'Answer, tokens', 5, 400, 5, (x) => x, (v) => v, (v) => String(v)],
  ['batch', 'Batch cap', 1, 64, 1, (x) => x, (v) => v, (v) => String(v)],
  ['network_s', 'Way there and back', 0, 0.1, 0.005, (x) => x, (v) => v, (v) => `${Math.round(1000 * v)} ms`],
];
const CHOICES = [
  ['model', 'Model', Object.keys(GIVEN.models)],
  ['gpu', 'GPU', Object.keys(GIVEN.hardware)],
  ['gpus_per_replica', 'GPUs in a replica', [...new Set([1, 2, 4, 8, Number(choice.gpus_per_replica)])].sort((a, b) => a - b)],
  ['weight_bits', 'Bits of a weight', [4, 8, 16]],
  ['kv_bits', 'Bits of keys and values', [8, 16]],
];

// The same order and the same functions as the Python side; throws a sentence where a number would be none.
function evaluate(given) {
  const known = { ...given };
  for (const [name, , , , needs] of QUANTITIES) {
    if (name in known) continue;
    const value = FUNCTIONS[name](...needs.map((need) => known[need]));
    if (!Number.isFinite(value)) throw new Error(`${name}: no number with these inputs`);
    known[name] = value;
  }
  return known;
}

function given(changed = {}) {
  const model = GIVEN.models[choice.model];
  const card = GIVEN.hardware[choice.gpu];
  return {
    ...values,
    parameters: model.parameters, active_parameters: model.active || model.parameters,
    layers: model.layers, heads: model.heads, kv_heads: model.kv_heads, head_dim: model.head_dim,
    weight_bits: Number(choice.weight_bits), kv_bits: Number(choice.kv_bits), gpus_per_replica: Number(choice.gpus_per_replica),
    gpu_flops: card.flops[Number(choice.weight_bits) === 8 ? '8' : '16'], gpu_bandwidth: card.bandwidth,
    gpu_memory_bytes: card.memory, gpus_per_node: card.per_node, gpu_price_per_hour: card.price,
    peak_active_share: Math.max(...GIVEN.active), mean_active_share: GIVEN.active.reduce((a, b) => a + b, 0) / 24,
    ...changed,
  };
}

const fleet = (known, share) =>
  replicas_of_hour(share, known.developers, known.requests_per_developer_s, known.headroom, known.most_per_replica, known.regions);

function workedOut(changed = {}) {
  const of = given(changed);
  const weights = of.parameters * of.weight_bits / 8;
  const each = of.gpu_memory_bytes * of.memory_share - of.reserved_bytes;
  if (each * of.gpus_per_replica <= weights) {
    throw new Error(`${choice.model} in ${of.weight_bits} bits has ${(weights / 1e9).toFixed(1)} GB of weights: `
      + `${Math.floor(weights / each) + 1} GPUs in a replica, or fewer bits`);
  }
  if (of.objective_s <= of.network_s + of.overhead_s) {
    throw new Error(`Network and gateway alone take ${Math.round(1000 * (of.network_s + of.overhead_s))} ms: a longer objective, or a shorter way`);
  }
  const first = evaluate({ ...of, billed_share: 1 });
  const hours = GIVEN.active.map((share) => fleet(first, share));
  const known = evaluate({ ...of, billed_share: hours.reduce((a, b) => a + b, 0) / 24 / Math.max(...hours) });
  return { known, hours: hours.map((replicas) => replicas * known.gpus_per_replica) };
}
window.plan = { evaluate, workedOut };

const ms = (s) => `${(1000 * s).toFixed(s < 0.1 ? 1 : 0)} ms`;
const many = (n) => n.toLocaleString('en', { maximumFractionDigits: n < 100 ? 1 : 0 });
const money = (n) => `$${n.toLocaleString('en', { maximumFractionDigits: n < 10 ? 4 : 0 })}`;

function table(id, caption, heads, rows, text = []) {
  const cell = (value, index) => index === 0 ? `<th scope="row">${escaped(value)}</th>` : `<td${text.includes(index) ? ' class="text"' : ''}>${escaped(value)}</td>`;
  $(id).innerHTML = `<table><caption>${escaped(caption)}</caption><thead><tr>${heads.map((head) => `<th scope="col">${escaped(head)}</th>`).join('')}</tr></thead>`
    + `<tbody>${rows.map((row) => `<tr>${row.map(cell).join('')}</tr>`).join('')}</tbody></table>`;
}
const escaped = (value) => String(value).replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

const charts = {};
function chart(id, data, series, axes) {
  const style = getComputedStyle(document.documentElement);
  const stroke = style.getPropertyValue('--text'), grid = { stroke: style.getPropertyValue('--soft') };
  charts[id]?.destroy();
  charts[id] = new uPlot({
    width: $(id).clientWidth || 400, height: 260, cursor: { drag: { x: false, y: false } }, scales: { x: { time: false } },
    series: [{ label: axes[0] }, ...series], axes: axes.map((label) => ({ label, stroke, grid, ticks: grid })),
  }, data, $(id));
}

const colours = () => (matchMedia('(prefers-color-scheme: dark)').matches ? ['#8ab4f8', '#fdd663', '#f28b82'] : ['#0b57d0', '#8a5a00', '#b3261e']);

function show() {
  let made;
  try {
    made = workedOut();
    $('wrong').textContent = made.known.reachable < 1 ? 'No queue is short enough: too many prompts miss the objective by themselves.' : '';
  } catch (error) {
    $('wrong').textContent = error.message;
    return;
  }
  const { known, hours } = made;
  $('tiles').innerHTML = [
    ['warm; cold', `${ms(known.warm_s)}; ${ms(known.cold_s)}`],
    ['p50; p95; p99', [known.ttft_p50_s, known.ttft_p95_s, known.ttft_p99_s].map(ms).join('; ')],
    ['sessions on a GPU', many(known.sessions_per_gpu)],
    ['GPUs: mean; peak; one failure', [known.gpus_mean, known.gpus_peak, known.gpus_with_failure].map(many).join('; ')],
    ['a month, following the day', money(known.cost_month)],
    ['a month, fixed', money(known.cost_month_fixed)],
    ['1,000 accepted tokens', money(known.cost_per_1k_accepted)],
    ['the wall that binds', GIVEN.walls[known.wall]],
    ['prompts and answers', known.split_could_pay ? 'apart could pay' : !known.chunk_tokens_most ? 'answers pause too long by themselves' : `together, steps of up to ${many(known.chunk_tokens_most)} tokens`],
  ].map(([name, value]) => `<div><dt>${escaped(name)}</dt><dd>${escaped(value)}</dd></div>`).join('');

  const shares = Array.from({ length: 41 }, (_, index) => index / 40);
  // At the fleet that is planned: a hit rate that falls in a fleet of a size meets queues.
  const at = shares.map((share) => evaluate({ ...given({ warm_share: share }), billed_share: 1, replicas_peak: known.replicas_peak }));
  const lines = ['ttft_p50_s', 'ttft_p95_s', 'ttft_p99_s'].map((name) => at.map((one) => 1000 * one[name]));
  const [blue, gold, red] = colours();
  const seen = lines.map((line) => line.map((value) => Math.min(value, 5000 * values.objective_s)));
  chart('cliff', [shares.map((x) => 100 * x), ...seen, shares.map(() => 1000 * values.objective_s)], [
    { label: 'p50', stroke: blue, width: 2 }, { label: 'p95', stroke: gold, width: 2 }, { label: 'p99', stroke: red, width: 2 },
    { label: 'objective', stroke: 'gray', dash: [4, 4] },
  ], ['hit rate, %', 'ms']);
  table('cliff-table', 'ms to the first token', ['hit rate, %', 'p50', 'p95', 'p99'],
    shares.filter((_, index) => index % 4 === 0).map((x, index) => [Math.round(100 * x), ...lines.map((line) => many(line[4 * index]))]));
  const hour = hours.map((_, index) => index);
  chart('day', [hour, hours, hours.map(() => known.gpus_with_failure)], [
    { label: 'follows the day', stroke: blue, width: 2, paths: uPlot.paths.stepped({ align: 1 }) }, { label: 'fixed', stroke: red, dash: [4, 4] },
  ], ['hour, UTC', 'GPUs']);
  table('day-table', 'GPUs by the hour', ['hour', 'GPUs'], hours.map((gpus, index) => [index, many(gpus)]));
  table('numbers', 'Every number', ['name', 'value', 'unit', 'formula', 'says'],
    QUANTITIES.map(([name, unit, says, text]) => [name, Number(known[name].toPrecision(4)).toLocaleString('en', { maximumSignificantDigits: 4 }), unit, text, says]), [2, 3, 4]);
  table('given', 'What is given', ['name', 'value', 'from'],
    Object.entries(given()).filter(([name]) => name in GIVEN.sources).map(([name, value]) => [name, value, GIVEN.sources[name]]), [2]);
}

function build() {
  $('of').textContent = GIVEN.of;
  for (const [name, label, options] of CHOICES) {
    const box = document.createElement('label');
    box.textContent = label;
    const select = document.createElement('select');
    select.id = name;
    for (const one of options) select.add(new Option(one, one, false, String(one) === String(choice[name])));
    select.addEventListener('change', () => { choice[name] = select.value; show(); });
    box.append(select);
    $('inputs').append(box);
  }
  for (const [name, label, low, high, step, toValue, toSlider, said] of SLIDERS) {
    const box = document.createElement('label');
    const told = document.createElement('output');
    const slider = Object.assign(document.createElement('input'), { type: 'range', id: name, min: low, max: high, step });
    slider.value = toSlider(values[name]);
    const tell = () => { told.textContent = said(values[name]); slider.setAttribute('aria-valuetext', said(values[name])); };
    slider.addEventListener('input', () => { values[name] = toValue(Number(slider.value)); tell(); show(); });
    tell();
    box.append(told, label, slider);
    $('inputs').append(box);
  }
  const rounded = (value) => Number(value.toPrecision(4)).toLocaleString('en', { maximumSignificantDigits: 4 });
  table('cases', 'Case studies', ['case', 'quantity', 'expected', 'got', 'ratio', 'remark'],
    GIVEN.cases.map((one) => [one.case, one.quantity, rounded(one.expected), rounded(one.got), one.ratio.toFixed(2), one.remark]), [1, 5]);
  table('measured', 'Published measurements', ['what', 'measured', 'predicted', 'ratio', 'remark', 'from'],
    GIVEN.measured.map((one) => [one.what, rounded(one.measured), rounded(one.predicted), one.ratio.toFixed(2), one.remark, one.source]), [4, 5]);
  addEventListener('resize', show);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  show();
}
build();
