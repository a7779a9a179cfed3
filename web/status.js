// The status page: it asks for the board as JSON, and draws it. What comes from elsewhere (labels,
// reasons, names) is set as text and never as HTML, and what nobody sees of it is shown as its code.
'use strict';
const $ = (id) => document.getElementById(id);
const POLL = 2000, AWAY_MAX = 30000, ANSWER_MAX = 10000, SPAN = 15 * 60000, SHOWN = innerWidth < 704 ? 6 : 12;

// Words. What each verdict is to an operator, and what to do about it.
const VERDICTS = {
  duplicate: ['Done before', 'The first one’s result is not given out. Nothing to do.'],
  busy: ['The first one still runs', 'Normal with quick retries. idem_wait lets them wait for its answer.'],
  mismatch: ['Key used for another request', 'A client reuses its keys. Find it by label or hash: each operation needs a key of its own.'],
  uncertain: ['A run vanished', 'Find out what came of it, then settle it. With idem_probe the gateway asks by itself.'],
  dead: ['Failed for good', 'idem show --hash tells the reason. Forget it, if it must run again.'],
  no_token: ['No such token', 'Never issued, expired, or somebody else’s. If there are many: is idem_token_ttl long enough?'],
  missing: ['No key', 'A client sends none. “optional” in idem_key lets such requests pass unguarded.'],
  malformed: ['Key cannot be read', 'Repeated, too long, or not visible ASCII. The error log says which.'],
  signature_incomplete: ['Signature incomplete', 'A client does not sign all that it must. idem verify explains.'],
  signature_stale: ['Signature too old', 'Compare the clocks of client and gateway.'],
  signature_wrong: ['Signature wrong', 'A wrong secret, or somebody tries. idem verify explains why.'],
  nonce_reused: ['Nonce used before', 'Sent twice, or captured and sent again. If there are many, look who sends them.'],
  store_error: ['The store was away', 'See Stores below and the error log. Until it answers, requests are refused.'],
};
const OF_QUEUE = {
  busy: ['Another one is at it', 'Normal while a consumer still handles the first copy. It is tried again.'],
  dead: ['Failed for good', 'It is among the dead letters: idem dead list.'],
  malformed: ['No key can be made of it', 'It is among the dead letters, with the reason: idem dead show.'],
  store_error: ['The store was away', 'Messages wait in hand until it answers. See Stores below.'],
};
const words = (verdict) => (isQueue() && OF_QUEUE[verdict]) || VERDICTS[verdict] || [verdict, ''];
const RAN = ['run', 'open', 'signed'];
const COUNTS = { tokens_issued: 'tokens issued', tokens_spent: 'tokens spent', results_not_kept: 'results not kept', lost: 'superseded while they ran', cancelled: 'cancelled', unknown: 'ended unknown', shadowed: 'passed in shadow mode' };
const EVENTS = { store_error: 'errors', superseded: 'superseded', lease_lost: 'leases lost', unstored: 'ends not stored', result_dropped: 'results dropped (store full)', unguarded: 'run unguarded' };

const integer = new Intl.NumberFormat('en');
const count = (n) => integer.format(n);
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;
const rate = (n) => (n >= 10 || n === 0 ? count(Math.round(n)) : n.toFixed(n < 0.1 ? 2 : 1));
const micro = (us) => {
  if (!us) return '–';
  const [value, unit] = us < 1000 ? [us, 'µs'] : us < 1e6 ? [us / 1000, 'ms'] : [us / 1e6, 's'];
  return `${value >= 10 || unit === 'µs' ? Math.round(value) : value.toFixed(1)} ${unit}`;
};
const span = (ms) => {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
};

// What is shown: the newest answer, when it came by our own clock, and totals of the last polls.
const now = { data: null, at: 0, totals: [], tries: 0, timer: 0, error: '', all: false, acted: new Map() };
const serverTime = () => now.data.now + (Date.now() - now.at);
const ago = (ms) => (ms ? `${span(serverTime() - ms)} ago` : 'never');
const isQueue = () => now.data.door === 'queue';

function sums(verdicts) {
  const sum = { ran: 0, replayed: 0, refused: 0 };
  const replays = isQueue() ? ['replay', 'duplicate'] : ['replay'];
  for (const [name, n] of Object.entries(verdicts)) {
    sum[RAN.includes(name) ? 'ran' : replays.includes(name) ? 'replayed' : 'refused'] += n;
  }
  return sum;
}
const add = (a, b) => {
  for (const name in b) a[name] = (a[name] ?? 0) + b[name];
  return a;
};
const totals = (data, of = 'verdicts') => data.rows.reduce((sum, row) => add(sum, row[of]), {});
const uncertain = (data) => data.stores.reduce((n, { records }) => n + (records?.uncertain ?? 0), 0);

// As src/base/visible.c decides: a label neither reorders its line nor looks like another one.
const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// Elements. Text is always set as text.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children.map((child) => (typeof child === 'string' ? visible(child) : child)));
  return element;
}
const say = (element, text) => {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
};
const button = (text, click, attributes) => {
  const element = make('button', { type: 'button', ...attributes }, text);
  element.addEventListener('click', click);
  return element;
};

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make('textarea', { readonly: '' }, text); // where the page has no TLS
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  return undefined;
}

function hashCell(item) {
  if (!item.hash) return make('span', { class: 'soft' }, 'no key');
  const short = item.hash.slice(0, 12) + '…';
  const element = button(short, async () => {
    await copy(item.hash);
    element.textContent = 'copied';
    setTimeout(() => (element.textContent = short), 1200);
  }, { class: 'copy', title: item.hash, 'aria-label': `Copy hash ${item.hash.slice(0, 12)}` });
  return element;
}

// A table keeps its rows, so that nobody loses the focus: each is known by its key. A column has a
// name, and either text, which is set anew, or a node, which is made once.
function table(id, items, keyOf, columns, nothing) {
  const place = $(id);
  if (!items.length) {
    if (!place.querySelector('p')) place.replaceChildren(make('p', { class: 'soft' }));
    return say(place.firstChild, nothing);
  }
  let body = place.querySelector('tbody');
  if (!body) {
    body = make('tbody', { role: 'rowgroup' });
    const head = make('tr', { role: 'row' }, ...columns.map(({ name, kind = '' }) =>
      make('th', { scope: 'col', role: 'columnheader', class: kind }, name)));
    place.replaceChildren(make('table', { role: 'table' }, make('thead', { role: 'rowgroup' }, head), body));
  }
  const have = new Map([...body.children].map((row) => [row.dataset.key, row]));
  let next = body.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const row = have.get(key) ?? rowMake(key, item, columns);
    have.delete(key);
    columns.forEach(({ text }, i) => text && cellSay(row.children[i], text(item)));
    if (row === next) next = row.nextSibling;
    else body.insertBefore(row, next);
  }
  for (const row of have.values()) row.remove();
  return undefined;
}

// On a phone what is empty is left out.
function cellSay(cell, text) {
  say(cell.firstChild, text);
  cell.toggleAttribute('data-empty', text === '–');
}

const rowMake = (key, item, columns) => make('tr', { 'data-key': key, role: 'row' }, ...columns.map(
  ({ name, kind = '', node }) => make('td', { role: 'cell', class: kind, 'data-label': name },
    node ? node(item) : make('span'))));

// Charts: the last quarter of an hour, from the left to the right.
const SVG = 'http://www.w3.org/2000/svg';
const ROOM = { left: 56, right: 6, top: 8, bottom: 22 };
const draw = (tag, attributes, text = '') => {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.textContent = text;
  return element;
};

function frame(svg, ticks, y) {
  const width = svg.clientWidth, height = svg.clientHeight, parts = [];
  const x = (ms) => ROOM.left + (width - ROOM.left - ROOM.right) * (1 - (now.data.now - ms) / SPAN);
  for (const [value, label] of ticks) {
    parts.push(draw('path', { class: 'grid', d: `M${ROOM.left} ${y(value)}H${width - ROOM.right}` }),
      draw('text', { x: ROOM.left - 6, y: y(value) + 4, 'text-anchor': 'end' }, label));
  }
  for (const minutes of [15, 10, 5, 0]) {
    parts.push(draw('text', { x: x(now.data.now - minutes * 60000), y: height - 5,
      'text-anchor': minutes === 15 ? 'start' : minutes ? 'middle' : 'end' }, minutes ? `−${minutes} min` : 'now'));
  }
  if (svg.pointed) {
    parts.push(draw('path', { class: 'point', d: `M${x(svg.pointed.at)} ${ROOM.top}V${height - ROOM.bottom}` }));
  }
  svg.replaceChildren(...parts);
  return x;
}

function legend(id, entries) {
  const list = $(id);
  while (list.children.length < entries.length) list.append(make('li', {}, make('i'), make('span'), ' ', make('b')));
  entries.forEach(([kind, name, value], i) => {
    const [mark, text, figure] = list.children[i].children;
    mark.className = kind;
    say(text, name);
    say(figure, value);
  });
}

function flowDraw(intervals, names) {
  const svg = $('flow');
  const parts = intervals.map(({ at, ms, verdicts }) => {
    const sum = sums(verdicts);
    return { at, ms, ran: sum.ran * 1000 / ms, replayed: sum.replayed * 1000 / ms, refused: sum.refused * 1000 / ms };
  });
  const most = Math.max(1, ...parts.map((part) => part.ran + part.replayed + part.refused));
  const step = [1, 2, 5].map((n) => n * 10 ** Math.floor(Math.log10(most / 2))).reduce((best, n) => (most / n >= 2 ? n : best));
  const unit = Math.max(step, 0.5), top = Math.ceil(most / unit) * unit;
  const y = (value) => svg.clientHeight - ROOM.bottom - (svg.clientHeight - ROOM.bottom - ROOM.top) * value / top;
  const ticks = [];
  for (let value = 0; value <= top + unit / 2; value += unit) ticks.push([value, `${rate(value)}/s`]);
  const x = frame(svg, ticks, y);
  const base = parts.map(() => 0);
  for (const kind of ['ran', 'replayed', 'refused']) {
    let d = '';
    parts.forEach((part, i) => {
      if (!part[kind]) return;
      const left = Math.max(ROOM.left, x(part.at - part.ms)), right = Math.max(left, x(part.at));
      d += `M${left.toFixed(1)} ${y(base[i]).toFixed(1)}V${y(base[i] + part[kind]).toFixed(1)}H${(right + 0.4).toFixed(1)}V${y(base[i]).toFixed(1)}Z`;
      base[i] += part[kind];
    });
    svg.append(draw('path', { class: kind, d }));
  }
  const at = svg.pointed && parts.find((part) => part.at === svg.pointed.at);
  const whole = sums(intervals.reduce((sum, { verdicts }) => add(sum, verdicts), {}));
  legend('flow-legend', Object.keys(names).map((kind) => [kind, names[kind], at ? `${rate(at[kind])}/s` : count(whole[kind])]));
  svg.setAttribute('aria-label', Object.keys(names).map((kind) => `${names[kind]}: ${count(whole[kind])}`).join(', '));
}

function timeDraw(intervals) {
  const svg = $('time');
  const some = intervals.filter(({ p99_us }) => p99_us > 0);
  const low = Math.floor(Math.log10(Math.min(1000, ...some.map(({ p50_us }) => p50_us || 1000))));
  const high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(1, ...some.map(({ p99_us }) => p99_us)))));
  const y = (us) => svg.clientHeight - ROOM.bottom - (svg.clientHeight - ROOM.bottom - ROOM.top) *
    (Math.log10(Math.max(us, 10 ** low)) - low) / (high - low);
  const ticks = [];
  for (let power = low; power <= high; power++) ticks.push([10 ** power, micro(10 ** power).replace('.0', '')]);
  const x = frame(svg, ticks, y);
  for (const kind of ['p50', 'p95', 'p99']) {
    let d = '', last = 0;
    for (const part of some) {
      const left = Math.max(ROOM.left, x(part.at - part.ms));
      d += `${part.at - part.ms - last > 1000 ? `M${left.toFixed(1)} ${y(part[kind + '_us']).toFixed(1)}` : ''}L${x(part.at).toFixed(1)} ${y(part[kind + '_us']).toFixed(1)}`;
      last = part.at;
    }
    svg.append(draw('path', { class: 'line ' + kind, d }));
  }
  const shown = some.find(({ at }) => at === svg.pointed?.at) ?? now.data.last_minute;
  const within = { p50: 'half within', p95: '95 % within', p99: '99 % within' };
  legend('time-legend', Object.keys(within).map((kind) => [kind, within[kind], micro(shown?.[kind + '_us'])]));
  svg.setAttribute('aria-label', 'Over the last minute ' + Object.keys(within).map((kind) => `${within[kind]} ${micro(shown?.[kind + '_us'])}`).join(', '));
}

for (const id of ['flow', 'time']) {
  const point = (event) => {
    const box = $(id).getBoundingClientRect();
    const part = (event.clientX - box.left - ROOM.left) / (box.width - ROOM.left - ROOM.right);
    const at = now.data.now - SPAN * (1 - part);
    $(id).pointed = now.data.intervals.find((interval) => interval.at >= at && interval.at - interval.ms <= at);
    chartsDraw();
  };
  $(id).addEventListener('pointermove', point);
  $(id).addEventListener('pointerleave', () => {
    $(id).pointed = undefined;
    chartsDraw();
  });
}

function chartsDraw() {
  const intervals = now.data.intervals.filter(({ at }) => at > now.data.now - SPAN);
  flowDraw(intervals, isQueue() ? { ran: 'handled', replayed: 'duplicates', refused: 'put off or refused' }
    : { ran: 'ran', replayed: 'replayed', refused: 'refused' });
  timeDraw(intervals);
}

// The state in words: the worst first, and what else there is behind it.
function judge(data) {
  const said = [];
  for (const store of data.stores) {
    if (store.failed > store.answered) {
      said.push(['bad', `The store ${store.name} does not answer`, store.answered
        ? `It last answered ${ago(store.answered)}.` : 'It has not answered since this began. The error log has the reason.']);
    }
  }
  const n = uncertain(data);
  if (n) {
    const oldest = Math.min(...data.stores.flatMap(({ records }) => (records?.oldest_uncertain ?? []).map(({ since }) => since)));
    said.push(['warn', `${plural(n, 'run', 'runs')} vanished: nobody knows what came of ${n === 1 ? 'it' : 'them'}`,
      `The oldest began ${ago(oldest)}. Find out what happened, and settle ${n === 1 ? 'it' : 'them'}.`]);
  }
  const verdicts = data.intervals.reduce((sum, interval) => add(sum, interval.verdicts), {});
  if (verdicts.store_error && !said.some(([state]) => state === 'bad')) {
    said.push(['warn', `The store was away: ${plural(verdicts.store_error, 'refusal', 'refusals')} in the last 15 minutes`, 'It answers again.']);
  }
  const { messages_unburied } = totals(data, 'counts');
  if (messages_unburied) {
    said.push(['bad', `The broker did not take ${plural(messages_unburied, 'dead letter', 'dead letters')}`, 'They are kept in hand and tried again.']);
  }
  if (said.length) return said;
  return [['good', 'All well', data.stores.length && data.stores.every(({ records }) => records)
    ? 'Every store answers, and no run has vanished.' : 'The records have not been counted yet.']];
}

function headlineDraw(data) {
  const said = judge(data), [state, text, more] = said[0];
  $('headline').dataset.state = state;
  say($('headline').querySelector('h2'), text);
  say($('headline').querySelector('p'), [more, ...said.slice(1).map(([, other]) => other + '.')].join(' '));
  document.title = visible(`${state === 'good' ? '' : '! '}Idem – ${text}`);
}

// Per second, over the last polls; at the first one by the newest sample.
function rates(data) {
  const first = now.totals[0], last = now.totals.at(-1);
  const [ms, sum] = last.at - first.at >= 1000
    ? [last.at - first.at, Object.fromEntries(Object.keys(last.sum).map((kind) => [kind, Math.max(0, last.sum[kind] - first.sum[kind])]))]
    : [data.intervals.at(-1)?.ms ?? 1, sums(data.intervals.at(-1)?.verdicts ?? {})];
  return { ran: sum.ran * 1000 / ms, replayed: sum.replayed * 1000 / ms, refused: sum.refused * 1000 / ms };
}

function tilesDraw(data) {
  const speed = rates(data), minute = data.last_minute, counts = totals(data, 'counts');
  const counted = data.stores.some(({ records }) => records);
  const doubt = ['uncertain', counted ? count(uncertain(data)) : '–', uncertain(data) ? 'warn' : ''];
  const times = ['50', '95', '99'].map((part) => [`store p${part}`, micro(minute?.[`p${part}_us`])]);
  const tiles = isQueue()
    ? [['handled per second', rate(speed.ran)], ['in hand', count(data.in_hand)], ['being handled', count(data.handled_now)],
      ['done', count(counts.messages_done)], ['to be tried again', count(counts.messages_retried)],
      ['dead letters', count(counts.messages_buried), counts.messages_buried ? 'warn' : ''], doubt, ...times]
    : [['ran per second', rate(speed.ran)], ['replayed per second', rate(speed.replayed)], ['refused per second', rate(speed.refused)],
      ['in flight', count(data.running)], ['waiting for the first', count(data.parked)], doubt, ...times];
  const list = $('tiles');
  while (list.children.length < tiles.length) list.append(make('li', {}, make('b'), make('span', { class: 'soft small' })));
  tiles.forEach(([name, value, state = ''], i) => {
    const tile = list.children[i];
    tile.dataset.state = state;
    say(tile.firstChild, value);
    say(tile.lastChild, name);
  });
}

// Tables.
const RECORD = [
  { name: 'Record', node: hashCell, kind: 'keep' },
  { name: 'Label', text: ({ label }) => label || '–' },
  { name: 'Policy', text: ({ prefix }) => prefix, kind: 'mono' },
  { name: 'Began', text: ({ since }) => ago(since), kind: 'keep' },
  { name: 'Attempt', text: ({ attempt }) => count(attempt), kind: 'num' },
];
const REASON = { name: 'Why', text: ({ reason }) => reason || 'its lease was over' };
const ACTIONS = { name: 'Do', node: (item) => make('div', { class: 'actions' },
  button('Inspect', () => open(item, 'inspect')), button('Settle…', () => open(item, 'settle')),
  button('Forget…', () => open(item, 'forget'), { class: 'grave' })) };

// A record's own, in all stores; what was settled or forgotten here is not shown until it is counted again.
const name = ({ store, prefix, hash }) => `${store} ${prefix} ${hash}`;

function recordsDraw(data, list, columns, nothing) {
  const items = data.stores.flatMap((store) => (store.records?.[`oldest_${list}`] ?? [])
    .map((record) => ({ ...record, store: store.name })).filter((record) => !(now.acted.get(name(record)) >= store.records.counted)))
    .sort((a, b) => a.since - b.since);
  const all = data.stores.reduce((n, { records }) => n + (records?.[list] ?? 0), 0);
  const counted = data.stores.map(({ records }) => records?.counted).filter(Boolean);
  say($(list + '-note'), counted.length ? `${all > items.length ? `The oldest ${items.length} of ${count(all)}. ` : ''}Counted ${ago(Math.min(...counted))}.` : '');
  table(list, items, name,
    data.admin ? [...columns, ACTIONS] : columns, counted.length ? nothing : 'Not counted yet.');
}

const lines = (sum, words) => Object.keys(words).filter((name) => sum[name]).map((name) => `${count(sum[name])} ${words[name]}`).join(', ') || '–';

function tablesDraw(data) {
  recordsDraw(data, 'uncertain', [...RECORD, REASON], 'None.');
  recordsDraw(data, 'running', RECORD, 'Nothing runs.');
  const recent = data.intervals.reduce((sum, { verdicts }) => add(sum, verdicts), {}), ever = totals(data);
  table('why', Object.keys(VERDICTS).filter((verdict) => ever[verdict] && !(isQueue() && verdict === 'duplicate'))
    .sort((a, b) => (recent[b] ?? 0) - (recent[a] ?? 0)), (verdict) => verdict, [
    { name: 'Reason', text: (verdict) => words(verdict)[0] },
    { name: '15 min', text: (verdict) => count(recent[verdict] ?? 0), kind: 'num' },
    { name: 'In all', text: (verdict) => count(ever[verdict]), kind: 'num' },
    { name: 'What to do', text: (verdict) => words(verdict)[1] },
  ], 'Nothing was refused.');
  table('refusals', data.refusals.slice(0, now.all ? undefined : SHOWN), ({ hash, at, verdict }) => `${at} ${verdict} ${hash}`, [
    { name: 'When', text: ({ at }) => ago(at), kind: 'keep' },
    { name: 'Why', text: ({ verdict }) => words(verdict)[0] },
    { name: 'Record', node: hashCell, kind: 'keep' },
    { name: 'Label', text: ({ label }) => label || '–' },
    { name: isQueue() ? 'Queue' : 'Route', text: ({ route }) => route },
    ...(data.admin ? [{ name: 'Do', node: (item) => (item.hash && item.store
      ? make('div', { class: 'actions' }, button('Inspect', () => open({ ...item, prefix: item.policy }, 'inspect'))) : make('span', {}, '–')) }] : []),
  ], 'None.');
  $('more').hidden = now.all || data.refusals.length <= SHOWN;
  const shape = (name, of, kind = 'num') => ({ name, text: of, kind });
  table('routes', data.rows, ({ route, policy }) => `${route} ${policy}`, [
    { name: isQueue() ? 'Queue' : 'Route', text: ({ route }) => route || '–' },
    shape('Policy', ({ policy }) => policy || '–', 'mono'),
    ...(isQueue() ? [shape('Done', ({ counts }) => count(counts.messages_done)),
      shape('Retried', ({ counts }) => count(counts.messages_retried)),
      shape('Dead letters', ({ counts }) => count(counts.messages_buried)),
      shape('Duplicates', ({ verdicts }) => count(sums(verdicts).replayed))]
      : [shape('Ran', ({ verdicts }) => count(sums(verdicts).ran)), shape('Replayed', ({ verdicts }) => count(verdicts.replay)),
        shape('Refused', ({ verdicts }) => count(sums(verdicts).refused))]),
    { name: 'Besides', text: ({ verdicts, counts }) => lines({ ...counts, open: verdicts.open }, { ...COUNTS, open: 'run unguarded' }) },
  ], 'Nothing is guarded.');
  table('stores', data.stores, ({ name }) => name, [
    { name: 'Store', text: ({ name }) => name, kind: 'mono' },
    { name: 'Answers', text: ({ answered, failed }) => (failed > answered ? `no; last ${ago(answered)}` : answered ? 'yes' : 'not asked yet') },
    ...['claim', 'finish'].map((op) => shape(`${op === 'claim' ? 'Claims' : 'Ends'}: half, 99 %`, ({ times }) => `${micro(times[op].p50_us)}, ${micro(times[op].p99_us)}`)),
    shape('Reconnects', ({ reconnects }) => count(reconnects)),
    { name: 'Besides', text: ({ events }) => lines(events, EVENTS) },
  ], 'None.');
}

function drawAll() {
  const { data } = now;
  $('page').hidden = false;
  say($('what'), `${isQueue() ? 'messages' : 'HTTP gateway'}, version ${data.version}, counting for ${span(serverTime() - data.started)}${data.admin ? ', operator' : ''}`);
  say($('flow-title'), isQueue() ? 'Messages, last 15 minutes' : 'Requests, last 15 minutes');
  say($('why-title'), isQueue() ? 'Why messages were put off or refused' : 'Why requests were refused');
  say($('routes-title'), isQueue() ? 'Queues' : 'Routes');
  headlineDraw(data);
  tilesDraw(data);
  chartsDraw();
  tablesDraw(data);
}

// Operators.
const act = { item: null, mode: '', record: null };
const when = (ms) => `${new Date(ms).toLocaleString()} (${ms > serverTime() ? `in ${span(ms - serverTime())}` : ago(ms)})`;

async function post(body) {
  const { item } = act;
  const answer = await fetch(location.pathname, { method: 'POST', cache: 'no-store',
    headers: { 'Content-Type': 'application/json', 'Idem-Admin-Token': now.data.admin },
    body: JSON.stringify({ store: item.store, prefix: item.prefix, hash: item.hash, ...body }) });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.detail ?? `The server answered ${answer.status}.`);
  return said;
}

function recordDraw(record) {
  const { item } = act;
  const rows = record ? [
    ['State', record.state === 'uncertain' ? 'uncertain: its run vanished' : record.state], ['Attempt', count(record.attempt)],
    ['Began', when(record.changed)], ['First seen', when(record.created)], ['Expires', when(record.expires)],
    ['Status', String(record.status)], ['Reason', record.reason || '–'],
    ['Result', record.has_result ? `${count(record.result_len)} bytes` : 'none'],
    ...(record.left_ms > 0 ? [['Lease', `${span(record.left_ms)} left`]] : []),
  ] : [];
  $('record').replaceChildren(...[['Record', item.hash], ['Policy', item.prefix], ['Label', item.label || '–'], ['Store', item.store], ...rows]
    .flatMap(([name, text]) => [make('dt', {}, name), make('dd', name === 'Record' ? { class: 'mono' } : {}, text)]));
}

const tell = (state, text) => {
  $('said').dataset.state = state;
  say($('said'), text);
};

// What may be pressed now.
function modeDraw() {
  const { mode, record } = act, live = Boolean(record?.live);
  const to = document.querySelector('[name=to]:checked')?.value;
  say($('act-title'), { inspect: 'The record', settle: 'Settle a record', forget: 'Forget a record' }[mode]);
  $('settle').hidden = mode !== 'settle';
  $('forget').hidden = mode !== 'forget';
  $('live-lease').hidden = mode === 'inspect' || !live;
  $('to-settle').hidden = $('to-forget').hidden = mode !== 'inspect' || !record;
  $('do').hidden = mode === 'inspect' || !record;
  $('do').className = mode === 'forget' ? 'grave' : '';
  say($('do'), mode === 'settle' ? `Settle as ${to ?? '…'}` : 'Forget it');
  $('do').disabled = (live && !$('force').checked) || (mode === 'settle' ? !to : !$('sure').checked);
}

async function open(item, mode) {
  Object.assign(act, { item, mode, record: null });
  for (const input of document.querySelectorAll('#act input')) input.checked = false;
  $('reason').value = '';
  $('status').value = 0;
  recordDraw(null);
  tell('', 'Asking the store…');
  modeDraw();
  $('act').showModal();
  try {
    act.record = (await post({ action: 'inspect' })).before;
    recordDraw(act.record);
    tell('', '');
  } catch (error) {
    tell('bad', error.message);
  }
  modeDraw();
}

async function perform() {
  const { mode, record } = act;
  $('do').disabled = true;
  tell('', 'Asking the store…');
  try {
    const said = await post(mode === 'settle' ? { action: 'settle', to: document.querySelector('[name=to]:checked').value,
      status: Number($('status').value) || 0, reason: $('reason').value, attempt: record.attempt, force: $('force').checked }
      : { action: 'forget', force: $('force').checked });
    now.acted.set(name(act.item), serverTime());
    act.record = null;
    recordDraw(said.after);
    tablesDraw(now.data);
    tell('good', mode === 'settle' ? `Settled as ${said.after?.state ?? 'asked'}.` : 'Forgotten.');
    act.mode = 'inspect';
  } catch (error) {
    tell('bad', error.message);
  }
  modeDraw();
}

$('act').addEventListener('input', modeDraw);
$('do').addEventListener('click', perform);
$('close').addEventListener('click', () => $('act').close());
for (const mode of ['settle', 'forget']) {
  $('to-' + mode).addEventListener('click', () => {
    act.mode = mode;
    modeDraw();
  });
}
$('more').addEventListener('click', () => {
  now.all = true;
  tablesDraw(now.data);
});

// Asking: every two seconds, more seldom while nobody answers, and not while nobody looks.
async function ask() {
  clearTimeout(now.timer);
  now.timer = 0;
  try {
    const answer = await fetch('?format=json', { cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MAX) });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    const data = await answer.json();
    if (now.data?.started !== data.started) now.totals = [];
    Object.assign(now, { data, at: Date.now(), tries: 0, error: '' });
    now.totals = [...now.totals.slice(-5), { at: data.now, sum: sums(totals(data)) }];
    drawAll();
  } catch (error) {
    now.tries += 1;
    now.error = /^it answers/.test(error.message) ? error.message : 'no answer';
  }
  if (!document.hidden) now.timer = setTimeout(ask, Math.min(AWAY_MAX, POLL * 2 ** Math.max(0, now.tries - 1)));
  stateDraw();
}

function stateDraw() {
  $('live').dataset.state = now.tries ? 'away' : 'live';
  say($('state'), now.tries ? `The server is away (${now.error}); what you see is old` : 'Live');
  say($('since'), now.at ? `updated ${span(Date.now() - now.at)} ago` : '');
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(now.timer);
  if (!document.hidden) ask();
});
setInterval(() => !document.hidden && stateDraw(), 1000);
addEventListener('resize', () => now.data && chartsDraw());
ask();
