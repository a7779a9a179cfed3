// The board of a busy gateway, or a consumer, after a quarter of an hour: the tests of the page's layout use it,
// because no test can wait that long.
const MINUTE = 60000;
const VERDICTS = ['run', 'open', 'replay', 'duplicate', 'busy', 'mismatch', 'uncertain', 'dead', 'no_token', 'missing', 'malformed', 'signed',
  'signature_incomplete', 'signature_stale', 'signature_wrong', 'nonce_reused', 'store_error'];
const COUNTS = ['tokens_issued', 'tokens_spent', 'results_not_kept', 'lost', 'cancelled', 'unknown', 'shadowed', 'messages_done', 'messages_retried',
  'messages_buried', 'messages_unburied'];
const EVENTS = ['superseded', 'lease_lost', 'unstored', 'unguarded', 'store_error', 'result_dropped'];
const STORE = 'redis://cache.internal:6379/0';

const all = (names, some) => ({ ...Object.fromEntries(names.map((name) => [name, 0])), ...some });
const hash = (i) => Array.from({ length: 64 }, (_, k) => ((i * 7 + k * k * 5 + (k * i) % 11) % 16).toString(16)).join('');
const times = (p50, p95, p99) => ({ count: 90210, sum_us: 90210 * p50, p50_us: p50, p95_us: p95, p99_us: p99 });
const record = (i, since, label, reason, attempt = 1) => ({ hash: hash(i), prefix: 'payment:', label, reason, attempt, since });

function intervals(now, queue) {
  return Array.from({ length: 180 }, (_, i) => {
    const wave = 1 + Math.sin(i / 17) * 0.35 + Math.sin(i / 3) * 0.06, bad = i > 118 && i < 130;
    const verdicts = { run: Math.round(410 * wave), [queue ? 'duplicate' : 'replay']: Math.round(64 * wave), mismatch: i % 40 === 9 ? 9 : 0,
      busy: Math.round(14 * wave), store_error: bad ? 150 : 0 };
    return { at: now - (179 - i) * 5000, ms: 5000, verdicts, p50_us: 240 + (i % 7) * 12, p95_us: bad ? 88000 : 900 + (i % 11) * 60,
      p99_us: bad ? 940000 : 2600 + (i % 13) * 240 };
  });
}

export function board({ door = 'http', uncertain = 23, away = false, admin } = {}) {
  const now = Date.now(), queue = door === 'queue', parts = intervals(now, queue);
  const oldest = [record(3, now - 12 * MINUTE, 'invoice 2026-4711', 'upstream timed out after the request was sent'),
    record(4, now - 11.5 * MINUTE, 'invoice 2026-4712', 'upstream closed the connection', 2), record(5, now - 9 * MINUTE, '', ''),
    record(6, now - 2 * MINUTE, 'order 99-A, Müller & Söhne, <b>urgent</b>', 'upstream timed out after the request was sent')];
  const refusals = ['mismatch', 'busy', 'missing', 'uncertain', 'store_error', 'signature_stale', 'duplicate', 'mismatch', 'busy', 'dead', 'busy', 'busy', 'busy', 'busy']
    .map((verdict, i) => ({ hash: verdict === 'missing' ? '' : hash(20 + i), label: i % 3 ? `order ${7000 + i}` : '', route: queue ? 'orders' : 'shop.example /orders',
      policy: 'order:', store: STORE, verdict, at: now - i * i * 4000 - 1500 }));
  const rows = queue ? [{ route: 'orders', policy: 'queue:', store: STORE, verdicts: all(VERDICTS, { run: 74012, duplicate: 5210, busy: 90, dead: 7 }),
    counts: all(COUNTS, { messages_done: 73640, messages_retried: 410, messages_buried: 12 }) }]
    : [{ route: 'shop.example /orders', policy: 'order:', store: STORE, verdicts: all(VERDICTS, { run: 61210, replay: 9004, mismatch: 41, busy: 2212, missing: 12, store_error: 1650 }),
      counts: all(COUNTS, { results_not_kept: 14, unknown: 3 }) },
    { route: 'shop.example /payments', policy: 'payment:', store: STORE, verdicts: all(VERDICTS, { run: 12881, replay: 2200, uncertain: 61, dead: 5 }), counts: all(COUNTS, { lost: 1, unknown: 22 }) },
    { route: 'shop.example /partner/v2/signed-transfers', policy: 'transfer:', store: STORE, verdicts: all(VERDICTS, { run: 410, signature_stale: 18, nonce_reused: 2 }), counts: all(COUNTS) },
    { route: 'shop.example /token', policy: 'form:', store: STORE, verdicts: all(VERDICTS), counts: all(COUNTS, { tokens_issued: 4412, tokens_spent: 4105 }) }];
  return { version: '0.1.0', door, ...(admin && { admin }), now, started: now - 26 * 60 * MINUTE, running: 38, parked: 4, ...(queue && { in_hand: 64, handled_now: 12 }), rows,
    stores: [{ name: STORE, events: all(EVENTS, { superseded: 2, store_error: 1650 }), reconnects: 1, answered: away ? now - 70000 : now - 40, failed: away ? now - 200 : now - 260000,
      times: { claim: times(260, 1100, 3100), finish: times(220, 940, 2800), other: times(190, 500, 900) },
      records: { counted: now - 6000, running: 38, uncertain, oldest_running: [record(50, now - 41000, 'order 7231', ''), record(51, now - 12000, 'order 7240', '')],
        oldest_uncertain: oldest.slice(0, uncertain) } }],
    refusals, intervals: parts, last_minute: { ...parts.at(-1), p50_us: 260, p95_us: 1200, p99_us: 3400 } };
}
