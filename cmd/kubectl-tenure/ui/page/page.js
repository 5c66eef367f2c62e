// The page of kubectl tenure ui. It asks its server once a second, and draws what has changed. Text
// of the cluster is only ever set as text, never as HTML.
'use strict';

const every = 1000; // milliseconds between two questions
const kinds = { // the letters of cells, as addresses.go has them
  p: 'pod', c: 'claim', q: 'pod of another node than the holder', k: 'kept: a pod has it by another IPAM',
  r: 'reserved', e: 'ceded to the cluster', '.': 'free', u: 'free, and out of reach', x: 'given to nobody',
};
const colours = { c: '--claim', q: '--request', k: '--kept', r: '--reserved', e: '--ceded', '.': '--free', u: '--unreachable', x: '--never' };

const $ = (id) => document.getElementById(id);
const view = { shown: 'map', pool: null, map: null, tag: '', cursor: null, off: new Set(), state: null, asked: 0 };

function make(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

// ask returns the answer to a question; null where it is the one that tag names.
async function ask(what, query, tag) {
  const r = await fetch('api/' + what + '?' + new URLSearchParams(query || {}), { cache: 'no-store', headers: tag ? { 'If-None-Match': tag } : {} });
  if (r.status === 304) return null;
  if (!r.ok) throw new Error((await r.text()).trim());
  const v = await r.json();
  if (tag !== undefined) v.tag = r.headers.get('ETag');
  return v;
}

// Addresses.

function addressAt(row, i) {
  if (i === 0) return row.first;
  const at = row.first.search(/[^.:]*$/);
  const head = row.first.slice(0, at), last = row.first.slice(at);
  return row.first.includes(':') ? head + (parseInt(last || '0', 16) + i).toString(16) : head + (Number(last) + i);
}

const leaseAt = (row, i) => (row.leases || []).find((l) => i >= l.at && i < l.at + l.size);

// kindAt returns the letter of a cell, and whether the filter leaves it out.
function kindAt(row, i) {
  const c = row.cells[i];
  if (c === ',' || c === '.') return [leaseAt(row, i)?.unreachable ? 'u' : '.', c === ','];
  const k = c.toLowerCase();
  return [k, c !== k];
}

function describe(row, i) {
  const [k] = kindAt(row, i), l = leaseAt(row, i);
  const holder = !l ? 'its block is not leased' : l.node ? 'held by node ' + l.node : 'held by the cluster';
  return addressAt(row, i) + ': ' + kinds[k] + '; ' + holder + (l?.unreachable ? ': ' + l.unreachable : '');
}

// Colours.

function hexOf(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const v = parseInt(text.length === 4 ? text.slice(1).replace(/./g, '$&$&') : text.slice(1), 16);
  return [v >> 16, (v >> 8) & 255, v & 255];
}

function hsl(h, s, l) {
  const f = (n) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [f(0), f(8), f(4)];
}

// palette returns the colours of the map: those of nodes are as far from each other as can be.
function palette() {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const p = { node: new Map(), kind: {}, dim: hexOf('--dim') };
  for (const [k, name] of Object.entries(colours)) p.kind[k] = hexOf(name);
  view.map.nodes.forEach((n, i) => {
    const hue = (205 + i * 137.508) % 360;
    p.node.set(n, { pod: hsl(hue, 0.6, dark ? 0.6 : 0.42), free: hsl(hue, 0.45, dark ? 0.22 : 0.9) });
  });
  return p;
}

function colourOf(p, row, i) {
  const [k, out] = kindAt(row, i);
  if (out || view.off.has(k)) return p.dim;
  const node = p.node.get(leaseAt(row, i)?.node);
  if (k === 'p') return node ? node.pod : p.kind['.'];
  return k === '.' && node ? node.free : p.kind[k];
}

// The map.

// layoutOf says how a range is drawn: so many cells in a line, each so many pixels wide.
function layoutOf(range) {
  const length = range.rows[0].cells.length, total = length * range.rows.length;
  const columns = total > 2048 ? 256 : Math.min(length, total > 64 ? 64 : 16);
  const width = Math.max(320, $('pool-view').clientWidth - 4);
  return { length, total, columns, lines: Math.ceil(total / columns), cell: Math.max(2, Math.min(18, Math.floor(width / columns))) };
}

function drawMap() {
  const box = $('map'), p = palette();
  while (box.children.length > view.map.ranges.length) box.lastChild.remove();
  view.map.ranges.forEach((range, r) => {
    let figure = box.children[r];
    if (!figure) {
      figure = make('div', { class: 'range' }, make('h3'), make('canvas', { 'aria-hidden': 'true' }));
      const at = (e) => cellOf(r, e.offsetX, e.offsetY);
      figure.lastChild.addEventListener('mousemove', (e) => { const c = at(e); if (c) moveTo(c, false); });
      figure.lastChild.addEventListener('click', (e) => { const c = at(e); if (c) { moveTo(c, true); open(c); } });
      box.append(figure);
    }
    figure.firstChild.textContent = (range.cidr || 'Leased outside of the ranges') +
      (range.whole || !range.cidr ? '' : ', those blocks of it that are leased') + (range.rows.length ? '' : ': none');
    figure.lastChild.hidden = range.rows.length === 0;
    if (range.rows.length) drawRange(figure.lastChild, range, r, p);
  });
}

function drawRange(canvas, range, r, p) {
  const l = layoutOf(range), image = new ImageData(l.columns, l.lines), data = image.data;
  for (let i = 0, at = 0; i < l.total; i++, at += 4) {
    const c = colourOf(p, range.rows[Math.floor(i / l.length)], i % l.length);
    data[at] = c[0]; data[at + 1] = c[1]; data[at + 2] = c[2]; data[at + 3] = 255;
  }
  const small = new OffscreenCanvas(l.columns, l.lines);
  small.getContext('2d').putImageData(image, 0, 0);
  const width = l.columns * l.cell, height = l.lines * l.cell;
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const g = canvas.getContext('2d');
  g.imageSmoothingEnabled = false;
  g.clearRect(0, 0, width, height);
  g.drawImage(small, 0, 0, width, height);
  if (l.cell >= 6) { // lines between the cells
    g.fillStyle = getComputedStyle(document.body).backgroundColor;
    for (let x = 1; x <= l.columns; x++) g.fillRect(x * l.cell - 1, 0, 1, height);
    for (let y = 1; y <= l.lines; y++) g.fillRect(0, y * l.cell - 1, width, 1);
  }
  if (view.cursor?.range === r) {
    g.strokeStyle = getComputedStyle(document.body).color;
    g.lineWidth = 2;
    g.strokeRect((view.cursor.index % l.columns) * l.cell, Math.floor(view.cursor.index / l.columns) * l.cell, l.cell, l.cell);
  }
}

function cellOf(r, x, y) {
  const l = layoutOf(view.map.ranges[r]), column = Math.floor(x / l.cell), index = Math.floor(y / l.cell) * l.columns + column;
  return column >= 0 && column < l.columns && index >= 0 && index < l.total ? { range: r, index } : null;
}

function rowOf(c) {
  const range = view.map.ranges[c.range], length = range.rows[0].cells.length;
  return [range.rows[Math.floor(c.index / length)], c.index % length];
}

// moveTo says what is at a cell, and puts the cursor there.
function moveTo(c, keep) {
  $('cursor').textContent = describe(...rowOf(c));
  if (keep) {
    view.cursor = c;
    drawMap();
  }
}

function onKey(e) {
  if (!view.map?.ranges.some((r) => r.rows.length)) return;
  let c = view.cursor || { range: view.map.ranges.findIndex((r) => r.rows.length), index: -1 };
  const l = layoutOf(view.map.ranges[c.range]);
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -l.columns, ArrowDown: l.columns, PageUp: -l.length, PageDown: l.length, Home: -Infinity, End: Infinity }[e.key];
  if (e.key === 'Enter' && view.cursor) open(view.cursor);
  else if (e.key === 'Escape') close();
  else if (by !== undefined) {
    let index = Math.max(0, Math.min(l.total - 1, c.index + by)), range = c.range;
    const step = (d) => { for (let n = range + d; view.map.ranges[n]; n += d) if (view.map.ranges[n].rows.length) return n; return range; };
    if (by > 0 && c.index === l.total - 1) { range = step(1); index = range === c.range ? index : 0; }
    if (by < 0 && c.index === 0) { range = step(-1); index = range === c.range ? index : layoutOf(view.map.ranges[range]).total - 1; }
    moveTo({ range, index }, true);
  } else return;
  e.preventDefault();
}

// One address.

async function open(c) {
  const [row, i] = rowOf(c), address = addressAt(row, i);
  if ($('detail').hidden) {
    $('detail').hidden = false;
    drawMap(); // it has less room
  }
  $('detail-address').textContent = address;
  $('detail-text').textContent = describe(row, i) + ' …';
  showRow(c, row, i);
  $('had').replaceChildren();
  const asked = ++view.asked, pool = view.pool;
  let text;
  try { text = (await ask('address', { pool, address })).text; } catch (err) { text = err.message; }
  if (asked === view.asked) $('detail-text').textContent = text;
}

const when = (t) => t ? new Date(t).toLocaleString() : '';

// lateNodes names the nodes that do not know of the whole time that was asked for.
function lateNodes(v) {
  const late = v.nodes.filter((n) => !n.silent && !(new Date(n.begins) <= new Date(v.from)));
  const names = late.slice(0, 10).map((n) => n.name + ' ' + (when(n.begins) || '(not known since when)'));
  return names.join(', ') + (late.length > 10 ? ' and ' + (late.length - 10) + ' more' : '');
}

// showPast asks all agents who had the address that is open.
async function showPast() {
  const box = $('had'), asked = view.asked;
  box.textContent = 'Asking the nodes …';
  let answer;
  try {
    const v = await ask('past', { address: $('detail-address').textContent });
    const silent = v.nodes.filter((n) => n.silent);
    answer = [v.holders.length === 0 ? 'Nobody, by the nodes that have answered.' : make('ul', {}, ...v.holders.map((h) => make('li', {},
      `${h.namespace ? h.namespace + '/' : ''}${h.pod} ${h.interface}, ${when(h.from) || '?'} – ${h.to ? (h.late ? 'at the latest ' : '') + when(h.to) : 'still'}, on ${h.node}`)))];
    if (silent.length > 0) answer.push(make('p', { class: 'bad' }, silent.length + ' of ' + v.nodes.length + ' nodes did not answer, and may have had it: ' + silent.map((n) => n.name + ' (' + n.silent + ')').join(', ')));
    const late = lateNodes(v);
    if (late) answer.push(make('p', { class: 'quiet' }, 'Not known is what was freed before the files of a node begin: ' + late));
  } catch (err) { answer = [err.message]; }
  if (asked === view.asked) box.replaceChildren(...answer);
}

// showRow draws the row of an address large: a button for each.
function showRow(c, row, chosen) {
  const zoom = $('zoom'), p = palette();
  $('detail-row').textContent = 'The addresses from ' + row.first;
  while (zoom.children.length > row.cells.length) zoom.lastChild.remove();
  for (let i = 0; i < row.cells.length; i++) {
    let b = zoom.children[i];
    if (!b) {
      b = make('button', { role: 'gridcell', tabindex: '-1' });
      zoom.append(b);
    }
    const to = { range: c.range, index: c.index - chosen + i };
    b.onclick = () => { moveTo(to, true); open(to); };
    b.style.background = 'rgb(' + colourOf(p, row, i).join() + ')';
    b.title = describe(row, i);
    b.setAttribute('aria-label', b.title);
    b.setAttribute('aria-selected', i === chosen);
  }
}

function close() {
  view.asked++;
  if ($('detail').hidden) return;
  $('detail').hidden = true;
  if (view.map && view.shown === 'map') drawMap();
}

// The table: the same data, in words and numbers.

function count(row) {
  const n = {};
  for (let i = 0; i < row.cells.length; i++) {
    const [k, out] = kindAt(row, i);
    if (!out && !view.off.has(k)) n[k] = (n[k] || 0) + 1;
  }
  return n;
}

const heads = [['p', 'Pods'], ['c', 'Claims'], ['q', 'Requests'], ['k', 'Kept'], ['r', 'Reserved'], ['e', 'Ceded'], ['.', 'Free'], ['u', 'Out of reach']];

function drawTable() {
  const body = make('tbody');
  view.map.ranges.forEach((range) => range.rows.forEach((row) => {
    const n = count(row), holders = [...new Set((row.leases || []).map((l) => l.node || 'the cluster'))];
    const expand = make('button', { 'aria-expanded': 'false', onclick: () => toggle(expand, row) }, row.first);
    body.append(make('tr', {}, make('td', {}, expand), make('td', {}, holders.join(', ') || '–'), ...heads.map(([k]) => make('td', { class: 'n' }, String(n[k] || 0)))));
  }));
  $('table').replaceChildren(make('table', {},
    make('thead', {}, make('tr', {}, make('th', {}, 'From'), make('th', {}, 'Held by'), ...heads.map(([, name]) => make('th', { class: 'n' }, name)))), body));
}

async function toggle(button, row) {
  const line = button.closest('tr');
  if (button.getAttribute('aria-expanded') === 'true') {
    button.setAttribute('aria-expanded', 'false');
    line.nextSibling.remove();
    return;
  }
  button.setAttribute('aria-expanded', 'true');
  const cell = make('td', { colspan: heads.length + 2 }, '…');
  line.after(make('tr', {}, cell));
  try {
    const all = await ask('addresses', { pool: view.pool, first: row.first });
    cell.replaceChildren(all.length === 0 ? 'Nobody has an address of these.' : make('table', {}, make('tbody', {},
      ...all.map((a) => make('tr', {}, make('td', {}, a.address), make('td', {}, kinds[a.cell]), make('td', {}, a.owner), make('td', {}, a.node || ''))))));
  } catch (err) { cell.textContent = err.message; }
}

// Pools, pods that wait, findings.

function drawPools() {
  const list = $('pools'), all = view.state.pools;
  if (all.length === 0) list.replaceChildren('There is no pool yet.');
  else list.replaceChildren(...all.map((p) => {
    const c = p.counts, taken = c ? c.capacity - c.free : 0;
    const use = c && c.capacity > 0 ? Math.round(taken / c.capacity * 100) : 0;
    return make('li', {}, make('button', { 'aria-pressed': p.name === view.pool ? 'true' : 'false', onclick: () => choose(p.name) }, p.name,
      make('small', {}, c ? `${use} % of ${c.capacity < 2 ** 53 ? c.capacity : 'more than 2^53'} taken` + (p.pressure ? ', pressure ' + p.pressure : '') : 'not counted yet'),
      make('meter', { min: 0, max: 100, high: 80, optimum: 0, value: use, 'aria-label': 'taken' }), ...(p.trouble || []).map((t) => make('small', { class: 'bad' }, t))));
  }));
  $('hidden').textContent = view.state.hidden ? 'You may not read, so the page does not show: ' + view.state.hidden.join('; ') + '.' : '';
}

// keepingFocus keeps the focus where it was, by the text of the button that has it.
function keepingFocus(draw) {
  const had = document.activeElement, text = had?.tagName === 'BUTTON' && had.closest('#pools, #waiting, #table') ? had.firstChild?.textContent : null;
  draw();
  if (text !== null && !had.isConnected) [...document.querySelectorAll('#pools button, #waiting button, #table button')].find((b) => b.firstChild?.textContent === text)?.focus();
}

function drawWaiting() {
  const all = view.state.waiting, box = $('waiting');
  $('waiting-count').textContent = all.length;
  const had = new Map([...box.querySelectorAll('tr[data-pod]')].map((tr) => [tr.dataset.pod, tr]));
  if (all.length === 0) { box.replaceChildren('No pod waits for a network' + (view.state.hidden ? ', of those that you may read.' : '.')); return; }
  box.replaceChildren(make('table', {}, make('thead', {}, make('tr', {}, ...['Pod', 'Node', 'Waits since', 'Networks', 'Why'].map((h) => make('th', {}, h)))),
    make('tbody', {}, ...all.slice(0, 500).map((w, i) => {
      const key = w.namespace + '/' + w.name, row = had.get(key);
      if (row) { row.children[1].textContent = w.node || 'not scheduled'; return row; }
      const cell = make('td'), look = async () => {
        cell.textContent = '…';
        try {
          const why = await ask('why', { namespace: w.namespace, name: w.name });
          cell.replaceChildren(make('ul', {}, ...why.map((t) => make('li', {}, t))), make('button', { onclick: look }, 'Look again'));
        } catch (err) { cell.textContent = err.message; }
      };
      cell.append(make('button', { onclick: look }, 'Why?'));
      if (i < 10 && view.shown === 'waiting') look();
      return make('tr', { 'data-pod': key }, make('td', {}, key), make('td', {}, w.node || 'not scheduled'), make('td', {}, new Date(w.since).toLocaleTimeString()), make('td', {}, w.networks.join(', ')), cell);
    }))));
}

async function look() {
  const box = $('found');
  box.textContent = 'Reading the whole cluster, twice: some seconds …';
  $('look').disabled = true;
  try {
    const r = await ask('findings');
    box.replaceChildren(make('p', {}, r.findings.length ? `Wrong ${r.wrong}, notes ${r.notes}, on their way back ${r.settling}.` : 'All is as it must be.'),
      ...r.findings.map((f) => make('div', { class: 'finding' + (f.wrong ? ' wrong' : '') },
        make('strong', {}, f.rule + ': ' + f.object + (f.address ? ', address ' + f.address : '')), make('p', {}, f.what), make('p', {}, f.remedy))));
  } catch (err) { box.textContent = err.message; }
  $('look').disabled = false;
}

// The whole.

// fullest returns the name of the pool of which most is taken: that one is looked at first.
function fullest(pools) {
  const share = (p) => p.counts?.capacity > 0 ? 1 - p.counts.free / p.counts.capacity : 0;
  return pools.reduce((a, b) => (a === null || share(b) > share(a) ? b : a), null)?.name || null;
}

function choose(pool) {
  if (view.pool !== pool) Object.assign(view, { pool, map: null, tag: '', cursor: null });
  close();
  $('filters').reset();
  $('map').replaceChildren();
  tick();
}

function options(select, names) {
  const chosen = select.value;
  if ([...select.options].slice(1).map((o) => o.value).join('\n') === names.join('\n')) return;
  if (chosen && !names.includes(chosen)) names = [...names, chosen].sort();
  select.replaceChildren(select.options[0], ...names.map((n) => make('option', { value: n }, n)));
  select.value = chosen;
}

function show() {
  const map = view.shown === 'map' || view.shown === 'table';
  $('pool-view').hidden = !map;
  $('map').hidden = view.shown !== 'map';
  $('cursor').hidden = $('keys').hidden = view.shown !== 'map';
  $('table').hidden = view.shown !== 'table';
  $('waiting').hidden = view.shown !== 'waiting';
  $('findings').hidden = view.shown !== 'findings';
  for (const b of document.querySelectorAll('nav button')) b.setAttribute('aria-pressed', b.dataset.view === view.shown);
  if (!map) close();
  if (view.map && view.shown === 'map') drawMap();
  if (view.map && view.shown === 'table') keepingFocus(drawTable);
  if (view.state && view.shown === 'waiting') drawWaiting();
}

const drawn = {};

// isNew reports whether a part of the page would be drawn otherwise than it is.
function isNew(part, of) {
  const before = drawn[part];
  drawn[part] = JSON.stringify(of);
  return drawn[part] !== before;
}

let ticking = false;

async function tick() {
  if (ticking || document.hidden) return;
  ticking = true;
  try {
    view.state = await ask('state');
    $('cluster').textContent = view.state.cluster;
    if (!view.state.pools.some((p) => p.name === view.pool)) Object.assign(view, { pool: fullest(view.state.pools), map: null, tag: '', cursor: null });
    if (isNew('pools', [view.state.pools, view.state.hidden, view.pool])) keepingFocus(drawPools);
    if (isNew('waiting', view.state.waiting)) keepingFocus(drawWaiting);
    const pool = view.pool, form = new FormData($('filters'));
    const map = pool && await ask('map', { pool, namespace: form.get('namespace'), node: form.get('node') }, view.tag);
    if (map && pool === view.pool) {
      Object.assign(view, { map, tag: map.tag });
      if (view.cursor && !(view.cursor.index < view.map.ranges[view.cursor.range]?.rows.length * view.map.ranges[view.cursor.range]?.rows[0]?.cells.length)) view.cursor = null;
      options($('filters').namespace, map.namespaces);
      options($('filters').node, map.nodes);
      if (view.shown === 'map') drawMap();
      if (view.shown === 'table' && !$('table').querySelector('[aria-expanded=true]')) keepingFocus(drawTable);
      if (view.cursor && !$('detail').hidden) showRow(view.cursor, ...rowOf(view.cursor));
    }
    $('trouble').hidden = !view.state.silent;
    $('trouble').textContent = view.state.silent || '';
    $('live').textContent = view.state.silent ? 'not live' : 'live, ' + new Date().toLocaleTimeString();
  } catch (err) {
    $('trouble').hidden = false;
    $('trouble').textContent = err instanceof TypeError ? 'kubectl tenure ui has ended: start it again, and open the address that it prints.' : err.message;
    $('live').textContent = 'not live';
  }
  ticking = false;
}

for (const [k, name] of Object.entries(kinds)) {
  const box = make('input', { type: 'checkbox', checked: true, onchange: () => { box.checked ? view.off.delete(k) : view.off.add(k); show(); } });
  const swatch = make('span', { class: 'swatch' });
  swatch.style.background = k === 'p' ? 'linear-gradient(90deg, hsl(205 60% 42%) 50%, hsl(342 60% 42%) 50%)' : `var(${colours[k]})`;
  $('legend').append(make('label', {}, box, swatch, k === 'p' ? 'pod, in the colour of the node' : name));
}
for (const b of document.querySelectorAll('nav button')) {
  b.addEventListener('click', () => {
    view.shown = b.dataset.view;
    show();
    if (view.shown === 'findings' && !$('found').hasChildNodes()) look();
  });
}
$('filters').addEventListener('change', (e) => { if (e.target.tagName === 'SELECT') { view.tag = ''; tick(); } });
$('filters').addEventListener('submit', (e) => e.preventDefault());
$('map').addEventListener('keydown', onKey);
$('detail').addEventListener('keydown', (e) => { if (e.key === 'Escape') { close(); $('map').focus(); } });
$('past').addEventListener('click', showPast);
$('look').addEventListener('click', look);
$('close').addEventListener('click', () => { close(); $('map').focus(); });
addEventListener('resize', () => { if (view.map && view.shown === 'map') drawMap(); });
document.addEventListener('visibilitychange', tick);
setInterval(tick, every);
tick();
