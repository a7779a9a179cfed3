// The shop's page. Each click on Buy is one idemFetch, and nothing stops the next click: idem.js and the gateway
// decide which clicks are one purchase. The form with a token is guarded by guardForm. The bad network is simulated
// here, between idem.js and the real one.

const $ = (id) => document.getElementById(id);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The counts of this tab, since they were last set to 0. `before`: the last order before the first click.
const NONE = { clicks: 0, requests: 0, replays: 0, before: null };
let counts = { ...NONE };
try {
  counts = { ...NONE, ...JSON.parse(sessionStorage.getItem('shop:counts')) };
} catch {} // blocked, or of another program: counting starts here

function count(name, by = 1) {
  counts[name] += by;
  for (const each of ['clicks', 'requests', 'replays']) $(each).textContent = counts[each];
  try {
    sessionStorage.setItem('shop:counts', JSON.stringify(counts));
  } catch {}
}

// The network. A bad one lets every request through, and loses most responses; but at most two for each click, or a
// person would lose patience. A header, which ends here, names the click of a request; for a form, its token does.
const LOST_AT_MOST = 2;
const realFetch = window.fetch.bind(window);
const losses = new Map();

async function network(input, options) {
  const request = new Request(input, options);
  const click = request.headers.get('X-Click') ?? request.headers.get('Idempotent-Token');
  request.headers.delete('X-Click');
  if (request.method !== 'POST') return realFetch(request);
  count('requests');
  const response = await realFetch(request);
  if (!$('bad').checked) return response;
  ledgerRead(); // the order exists, even if its response is lost
  await pause(300 + Math.random() * 900);
  const lost = losses.get(click) ?? 0;
  if (lost === LOST_AT_MOST || Math.random() > 0.7) return response;
  losses.set(click, lost + 1);
  throw new TypeError('The answer was lost');
}
window.fetch = network;

// The ledger: read each second, while the page is visible.
let timer, reads = 0, seen; // seen: the numbers of the orders on the page

function ledgerRow({ id, item, amount }, isNew) {
  const row = document.createElement('tr');
  for (const value of [id, item, amount]) row.insertCell().textContent = value;
  if (isNew) {
    row.className = 'new';
    setTimeout(() => row.classList.remove('new'), 6000);
  }
  return row;
}

function ledgerShow(orders) {
  const last = orders.at(-1)?.id ?? 0;
  if (last < Math.max(...(seen ?? [0]))) return location.reload(); // the shop has restarted
  if (counts.before === null || counts.before > last) counts = { ...NONE, before: last }; // another shop
  count('clicks', 0);
  const rows = orders.filter(({ id }) => !seen?.has(id))
    .map((order) => ledgerRow(order, seen !== undefined)).reverse();
  seen = new Set(orders.map(({ id }) => id));
  if (orders.length) $('ledger').querySelector('.none')?.remove();
  else $('ledger').querySelector('.none td').textContent = 'No order yet.';
  $('ledger').prepend(...rows);
  $('orders').textContent = orders.filter(({ id }) => id > counts.before).length;
  $('ledger-note').textContent = `${orders.length} in all, the newest first. Read anew each second.`;
}

async function ledgerRead() {
  clearTimeout(timer);
  const turn = ++reads;
  try {
    const answer = await realFetch('/orders', { cache: 'no-store' });
    if (!answer.ok) throw new Error(answer.status);
    const orders = await answer.json();
    if (turn === reads) ledgerShow(orders); // otherwise a later read shows it
  } catch {
    $('ledger-note').textContent = 'The ledger cannot be read at the moment.';
  }
  clearTimeout(timer);
  if (!document.hidden && turn === reads) timer = setTimeout(ledgerRead, 1000);
}

// The log: a line for each click, the newest first.
function logLine(name) {
  const make = (tag, more) => Object.assign(document.createElement(tag), more);
  const line = make('li'), chips = make('div');
  const chip = (text, kind = '') => {
    chips.querySelector('.wait')?.remove();
    chips.append(make('span', { className: 'chip ' + kind, textContent: text }), ' ');
  };
  line.append(make('b', { textContent: name }), ' ', chips);
  chip('sent', 'wait');
  $('log').prepend(line);
  $('log').hidden = false;
  $('log-note').hidden = true;
  return chip;
}

// Buying.
const purchases = new Map(); // by key: the result of its clicks
let pending = 0;
const UNANSWERED = 'No answer came. Try again: it will not be ordered twice.';
const INVITATION = 'Click it twice, or thirty times, and watch the ledger.';
const many = (n, one) => `${n} ${one}${n === 1 ? '' : 's'}`;
const say = (text) => {
  if ($('status').textContent !== text) $('status').textContent = text;
};

async function answered(response, chip) {
  const { key, attempts, replayed, final } = response.idem;
  if (replayed) count('replays');
  if (!response.ok) {
    chip(`refused: ${response.status}`, 'lost');
    return final ? 'The shop did not take it.' : UNANSWERED;
  }
  const [, id] = /(?:"id":|<title>Order )(\d+)/.exec(await response.text()); // JSON, or the page that responds to a form
  const sum = purchases.get(key) ?? { clicks: 0, requests: 0, replays: 0 };
  purchases.set(key, sum);
  sum.clicks += 1;
  sum.requests += attempts;
  sum.replays += replayed ? 1 : 0;
  chip(replayed ? 'replay' : 'ordered', replayed ? 'again' : 'made');
  chip(`order ${id}`);
  return `Order ${id} is placed: ${many(sum.clicks, 'click')}, ${many(sum.requests, 'request')}, ` +
    `${many(sum.replays, 'replay')}.`;
}

function retried({ response, delay }, chip) {
  chip(response ? `told to wait: ${response.status}` : 'answer lost', 'lost');
  chip(`again in ${(delay / 1000).toFixed(1)} s`, 'wait');
}

async function buy(idemFetch) {
  count('clicks');
  const click = counts.clicks, chip = logLine(`Click ${click}`);
  let outcome;
  pending += 1;
  say('Sending…');
  try {
    outcome = await answered(await idemFetch('/orders', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Click': click },
      body: JSON.stringify({ item: 'book', amount: 42 }),
      onRetry(state) {
        retried(state, chip);
        say('An answer was lost. Asking again, under the same key…');
      },
    }), chip);
  } catch {
    chip('no answer', 'lost');
    outcome = UNANSWERED;
  }
  pending -= 1;
  if (!pending) say(outcome); // one sentence for thirty clicks, because screen readers read it out
  ledgerRead();
}

// The form with a token. The page stays, so that its result can be seen.
function guardTokenForm(guardForm) {
  const form = $('token-form'), status = $('token-status');
  let chip;
  form.addEventListener('submit', () => {
    if (form.hasAttribute('aria-busy')) return; // the form is on its way
    count('clicks');
    chip = logLine(`Click ${counts.clicks}`);
  });
  guardForm(form, {
    tokenUrl: '/token', fetch: true, status,
    text: { retrying: 'An answer was lost. Asking again, with the same token…', done: '', failed: UNANSWERED },
    onRetry: (state) => retried(state, chip),
    async onAnswer(response) {
      status.textContent = await answered(response, chip);
      ledgerRead();
    },
    onError: () => chip('no answer', 'lost'),
  });
  form.querySelector('button').disabled = false;
}

function reset() {
  counts = { ...NONE };
  $('log').replaceChildren();
  $('log').hidden = true;
  $('log-note').hidden = false;
  $('token-status').textContent = '';
  say(INVITATION);
  ledgerRead();
}

// A plain form leaves the page: until its response comes, the page shows its clicks.
$('form').addEventListener('submit', () => {
  count('clicks');
  count('requests');
  logLine(`Click ${counts.clicks}`)('form sent');
});
$('reset').addEventListener('click', reset);
document.addEventListener('visibilitychange', () => document.hidden || ledgerRead());
await ledgerRead();
try {
  const { idemFetch, guardForm } = await import('/idem.js');
  guardTokenForm(guardForm);
  $('buy').addEventListener('click', () => buy(idemFetch));
  for (const id of ['buy', 'bad', 'reset']) $(id).disabled = false;
  say(INVITATION);
} catch {
  say('This is the shop itself, and nothing guards it. Open this page at the gateway’s address.');
}
document.documentElement.dataset.ready = 'yes';
