// idem.js in Node, with a server that misbehaves in every way. Node has no document, so the test passes an object in
// place of the tab's sessionStorage.
import { File } from 'node:buffer';
import { execFileSync } from 'node:child_process';
import { webcrypto } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import { check, eq, pause, run, test, until } from './tap.mjs';

globalThis.crypto ??= webcrypto; // Node 18 has it, but not as a global
const SOURCE = new URL('../../web/idem.js', import.meta.url);
let { idemFetch, forgetKey } = await import(SOURCE);

// Each request gets the next step of its path's script; the last one stays.
const scripts = new Map();
const server = http.createServer((request, response) => {
  const script = scripts.get(request.url);
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    script.seen.push({ key: request.headers['idempotency-key'], headers: request.headers,
      method: request.method, body: Buffer.concat(chunks).toString(), at: Date.now() });
    (script.steps.length > 1 ? script.steps.shift() : script.steps[0])(response, request);
  });
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

let paths = 0;
function scripted(...steps) {
  const path = '/' + ++paths;
  const script = { steps, seen: [], url: `http://127.0.0.1:${server.address().port}${path}` };
  scripts.set(path, script);
  script.keys = () => script.seen.map(({ key }) => key);
  return script;
}

const says = (status, headers = {}, body = 'text') => (response) => {
  response.writeHead(status, headers);
  response.end(body);
};
const problem = (word, status, retryable, headers = {}) => says(status,
  { 'Content-Type': 'application/problem+json', ...headers },
  JSON.stringify({ type: 'urn:idem:' + word, status, retryable }));
const done = says(201, { 'Content-Type': 'application/json' }, '{"id":1}');
const replay = says(201, { 'Idempotent-Replayed': 'true' }, '{"id":1}');
const cut = (_, request) => request.socket.destroy();
const cutInBody = (response) => {
  response.writeHead(201, { 'Content-Length': 100 });
  response.write('{"id":');
  setTimeout(() => response.destroy(), 30); // sleep: the response breaks off in the middle, or before it
};
const never = () => {};

function tab(fails = false) {
  const map = new Map();
  return {
    map,
    getItem: (name) => map.get(name) ?? null,
    setItem: (name, value) => {
      if (fails) throw new Error('quota');
      map.set(name, value);
    },
    removeItem: (name) => map.delete(name),
  };
}

const post = { method: 'POST', body: '{"item":"book"}', headers: { 'Content-Type': 'application/json' } };
// Like a click: by default without retries.
const click = (script, storage, options = {}) =>
  idemFetch(script.url, { ...post, retries: 0, storage, ...options });
const fails = (promise) => promise.then(() => { throw new Error('it did not fail'); }, (error) => error);
const reloaded = async () => ({ idemFetch, forgetKey } = await import(`${SOURCE}?${++paths}`));
const different = (keys) => new Set(keys).size;

// The test controls the timeouts of idemFetch: if this process stood still for a while, they would end before it reads
// the response.
const LIMIT = 654321;
async function withLimits(body) {
  const { setTimeout: real, clearTimeout: clear } = globalThis, limits = new Set();
  globalThis.setTimeout = (end, ms, ...rest) => (ms === LIMIT ? (limits.add(end), end) : real(end, ms, ...rest));
  globalThis.clearTimeout = (timer) => limits.delete(timer) || clear(timer);
  try {
    await body(limits);
  } finally {
    Object.assign(globalThis, { setTimeout: real, clearTimeout: clear });
  }
}

test(async function it_is_smaller_than_4_KiB_compressed() {
  const size = execFileSync('gzip', ['-9n'], { input: fs.readFileSync(SOURCE) }).length;
  console.log(`# ${size} bytes`);
  check(size < 4096, `it has ${size} bytes`);
});

test(async function an_answer_comes_with_its_key_and_body() {
  const script = scripted(done);
  const response = await click(script, tab());
  eq(response.status, 201);
  eq(await response.json(), { id: 1 });
  const { key, attempts, replayed, final } = response.idem;
  eq({ attempts, replayed, final }, { attempts: 1, replayed: false, final: true });
  eq(script.keys(), [key]);
  check(/^[!-~]{16,255}$/.test(key), `the key is ${key}`);
  eq(script.seen[0].body, post.body);
  eq(script.seen[0].headers['content-type'], 'application/json');
  eq(script.seen[0].headers.accept, '*/*');
});

test(async function a_replay_is_known() {
  eq((await click(scripted(replay), tab())).idem.replayed, true);
});

test(async function a_cut_connection_is_tried_again_under_the_same_key() {
  const script = scripted(cut, cut, replay), retried = [];
  const response = await click(script, tab(), { retries: 3, onRetry: (state) => retried.push(state) });
  eq(response.idem.attempts, 3);
  eq(script.seen.length, 3);
  eq(different(script.keys()), 1, 'the number of keys');
  eq(script.seen.map(({ body }) => body), Array(3).fill(post.body));
  eq(retried.map(({ attempts, key }) => [attempts, key]), [[1, response.idem.key], [2, response.idem.key]]);
  check(retried[0].error instanceof TypeError, 'the first error is told');
  check(retried[1].delay > retried[0].delay / 2 && retried[1].delay >= 500, 'it backs off');
});

test(async function an_answer_that_breaks_off_is_none() {
  const script = scripted(cutInBody, replay);
  const response = await click(script, tab(), { retries: 1 });
  eq(await response.json(), { id: 1 });
  eq(different(script.keys()), 1, 'the number of keys');
});

const askedForAgain = (options = {}) => withLimits(async (limits) => {
  const script = scripted(never, replay);
  const answer = click(script, tab(), { retries: 1, timeout: LIMIT, ...options });
  await until('it is asked', () => script.seen.length === 1);
  for (const end of limits) end();
  eq((await answer).idem.attempts, 2);
  eq(different(script.keys()), 1, 'the number of keys');
});

test(async function an_answer_that_never_comes_is_given_up_and_asked_for_again() {
  await askedForAgain();
});

test(async function a_body_that_never_ends_is_given_up() {
  const script = scripted((response) => response.writeHead(200).write('a'));
  const error = await fails(click(script, tab(), { timeout: 300 }));
  eq(error.name ?? 'TimeoutError', 'TimeoutError'); // Node 18 turns it into an empty object
});

test(async function the_time_limit_is_not_the_pages() {
  await withLimits(async (limits) => {
    const response = await click(scripted(done), tab(), { timeout: LIMIT });
    eq(limits.size, 0, 'limits that are left');
    eq(await response.json(), { id: 1 });
  });
});

test(async function a_stream_is_not_waited_for() {
  const script = scripted((response) => response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('a'));
  eq((await click(script, tab(), { timeout: 60000 })).status, 200);
});

test(async function a_server_that_stays_away_is_given_up_and_the_key_is_kept() {
  const script = scripted(cut), storage = tab();
  const error = await fails(click(script, storage, { retries: 1 }));
  check(error instanceof TypeError, `the error is ${error}`);
  eq(script.seen.length, 2);
  script.steps = [replay];
  await reloaded();
  await click(script, storage);
  eq(different(script.keys()), 1, 'the number of keys');
});

for (const [word, status] of [['in-progress', 409], ['store-unavailable', 503]])
  test({ async [word.replace('-', '_') + '_is_waited_for_as_long_as_it_says']() {
    const script = scripted(problem(word, status, true, { 'Retry-After': '1' }), replay);
    const response = await click(script, tab(), { retries: 1 });
    eq([response.status, response.idem.attempts], [201, 2]);
    const waited = script.seen[1].at - script.seen[0].at;
    check(waited >= 990, `it waited ${waited} ms`);
    eq(different(script.keys()), 1, 'the number of keys');
  } }[word.replace('-', '_') + '_is_waited_for_as_long_as_it_says']);

test(async function retry_after_may_be_a_date() {
  const at = new Date(Date.now() + 2500).toUTCString();
  const script = scripted(says(503, { 'Retry-After': at }), done);
  await click(script, tab(), { retries: 1 });
  check(script.seen[1].at >= Date.parse(at) - 10, 'it did not wait until then');
});

test(async function a_wait_of_hours_is_the_callers() {
  const script = scripted(says(503, { 'Retry-After': '7200' })), storage = tab();
  eq((await click(script, storage, { retries: 3 })).status, 503);
  eq(script.seen.length, 1);
  eq(storage.map.size, 1, 'keys kept');
});

for (const status of [408, 425, 429, 502, 503, 504])
  test({ async [`a_${status}_is_tried_again`]() {
    const script = scripted(says(status), done);
    eq((await click(script, tab(), { retries: 1 })).status, 201);
    eq(different(script.keys()), 1, 'the number of keys');
  } }[`a_${status}_is_tried_again`]);

test(async function a_stored_503_is_not_asked_for_again() {
  const script = scripted(says(503, { 'Idempotent-Replayed': 'true' }), done);
  eq((await click(script, tab(), { retries: 2 })).status, 503);
  eq(script.seen.length, 1);
});

// After these failures the key stays: a second click under a new key could repeat the operation.
for (const [name, step] of [
  ['uncertain', problem('uncertain', 409, false)],
  ['an_uncertain_504', problem('uncertain', 504, false)],
  ['failed', problem('failed', 409, false)],
  ['mismatch', problem('mismatch', 422, false)],
  ['in_progress', problem('in-progress', 409, true)],
  ['store_unavailable', problem('store-unavailable', 503, true)],
  ['a_500', says(500)],
  ['a_stored_500', says(500, { 'Idempotent-Replayed': 'true' })],
  ['a_502', says(502)],
  ['a_401', says(401)],
  ['a_423', says(423)],
  ['a_429', says(429)],
  ['a_cut_connection', cut],
  ['an_answer_that_breaks_off', cutInBody],
]) {
  const sentence = name + '_keeps_the_key';
  test({ async [sentence]() {
    const script = scripted(step, replay), storage = tab();
    const first = await click(script, storage).catch(() => undefined);
    if (first) eq(first.idem.final, false, 'final');
    await reloaded();
    await click(script, storage, { linger: 0 });
    eq(different(script.keys()), 1, 'the number of keys');
    eq(storage.map.size, 0, 'keys kept after the answer');
  } }[sentence]);
}

for (const word of ['uncertain', 'failed', 'mismatch'])
  test({ async [word + '_is_not_tried_again']() {
    const script = scripted(problem(word, 409, false), done);
    eq((await click(script, tab(), { retries: 2 })).status, 409);
    eq(script.seen.length, 1);
  } }[word + '_is_not_tried_again']);

// After these responses the operation has ended: the next click is another one.
for (const [name, step] of [
  ['a_2xx', done],
  ['a_400', says(400)],
  ['a_404', says(404)],
  ['the_backends_own_409', says(409)],
  ['the_backends_own_422', says(422)],
  ['a_stored_423', says(423, { 'Idempotent-Replayed': 'true' })],
  ['duplicate', problem('duplicate', 409, false)],
  ['key_malformed', problem('key-malformed', 400, false)],
]) {
  const sentence = name + '_ends_the_operation';
  test({ async [sentence]() {
    const script = scripted(step), storage = tab();
    eq((await click(script, storage, { linger: 0 })).idem.final, true, 'final');
    eq(storage.map.size, 0, 'keys kept');
    await click(script, storage, { linger: 0 });
    eq(different(script.keys()), 2, 'the number of keys');
  } }[sentence]);
}

// Nothing was done under this key: the next click needs another one, however soon it comes.
for (const [word, status] of [['token-refused', 403], ['key-malformed', 400], ['key-missing', 400]]) {
  const sentence = word.replace('-', '_') + '_ends_the_operation_at_once';
  test({ async [sentence]() {
    const script = scripted(problem(word, status, false)), storage = tab();
    for (let i = 0; i < 2; i++) await click(script, storage, { linger: 60000 });
    eq(different(script.keys()), 2, 'the number of keys');
    eq(storage.map.size, 0, 'keys kept');
  } }[sentence]);
}

test(async function a_click_right_after_the_answer_is_the_same_one() {
  const script = scripted(done, problem('duplicate', 409, false), replay), storage = tab();
  const real = Date.now, begin = real();
  try {
    Date.now = () => begin;
    for (let i = 0; i < 4; i++) await click(script, storage, { linger: 400 });
    eq(different(script.keys()), 1, 'the number of keys');
    Date.now = () => begin + 450;
    await click(script, storage, { linger: 400 });
    eq(different(script.keys()), 2, 'the number of keys later');
  } finally {
    Date.now = real;
  }
});

test(async function a_corrected_request_gets_a_key_of_its_own() {
  const script = scripted(says(422), done), storage = tab();
  await click(script, storage, { operation: 'checkout' });
  await click(script, storage, { operation: 'checkout', body: '{"item":"pen"}' });
  eq(different(script.keys()), 2, 'the number of keys');
});

test(async function another_body_is_another_operation() {
  const script = scripted(cut), storage = tab();
  const bodies = ['a', 'b', 'ab', new URLSearchParams({ a: '1' }), new Uint8Array([1, 2]), new Blob(['blob'])];
  for (const body of bodies) await fails(click(script, storage, { body }));
  eq(different(script.keys()), bodies.length, 'the number of keys');
  for (const body of bodies) await fails(click(script, storage, { body }));
  eq(different(script.keys()), bodies.length, 'the number of keys, again');
});

test(async function many_bodies_have_as_many_digests() {
  const script = scripted(done), storage = tab();
  for (let i = 0; i < 300; i++) await click(script, storage, { body: `{"item":${i}}`, linger: 60000 });
  eq(storage.map.size, 300);
});

test(async function a_named_operation_keeps_its_key_whatever_is_sent() {
  const script = scripted(cut), storage = tab();
  await fails(click(script, storage, { operation: 'checkout' }));
  await fails(click(script, storage, { operation: 'checkout', body: 'other' }));
  eq(different(script.keys()), 1, 'the number of keys');
  eq([...storage.map.keys()], ['idem:checkout']);
});

// A signed request proves itself once: each attempt needs a signature of its own.
const signer = (seen = []) => Object.assign(async (request) => {
  const headers = new Headers(request.headers);
  headers.set('X-Nonce', String(seen.push(request.headers.get('Idempotency-Key'))));
  return new Request(request, { headers });
}, { seen });

test(async function each_attempt_is_signed_anew_under_the_same_key() {
  const script = scripted(cut, problem('in-progress', 409, true), replay), sign = signer();
  const { idem } = await click(script, tab(), { retries: 3, sign });
  eq(script.seen.map(({ headers }) => headers['x-nonce']), ['1', '2', '3']);
  eq([different(script.keys()), script.keys()[0]], [1, idem.key]);
  eq(sign.seen, script.keys(), 'what was signed');
  eq(script.seen.map(({ body }) => body), Array(3).fill(post.body));
});

test(async function a_nonce_that_was_sent_twice_is_drawn_anew() {
  const script = scripted(problem('nonce-reused', 401, false), replay);
  eq((await click(script, tab(), { retries: 1, sign: signer() })).status, 201);
  eq(different(script.keys()), 1, 'the number of keys');
  for (const [word, sign] of [['nonce-reused', undefined], ['signature-wrong', signer()], ['signature-stale', signer()]]) {
    const refused = scripted(problem(word, 401, false), replay), storage = tab();
    eq((await click(refused, storage, { retries: 1, sign })).status, 401);
    eq([refused.seen.length, storage.map.size], [1, 1], `what was sent and kept, ${word}`);
  }
});

test(async function what_cannot_be_signed_is_not_sent_and_not_tried_again() {
  const script = scripted(done), storage = tab();
  let calls = 0;
  const sign = () => { calls += 1; throw new TypeError('no key'); };
  eq((await fails(click(script, storage, { retries: 3, sign }))).message, 'no key');
  eq([calls, script.seen.length, storage.map.size], [1, 0, 1]);
});

test(async function a_request_that_is_signed_has_its_time_limit() {
  await askedForAgain({ sign: signer() });
});

test(async function signRequest_is_loaded_when_it_is_called() {
  const key = { keyId: 'shop-1', key: new Uint8Array(32), form: 'classic' };
  const { signRequest } = await import(SOURCE);
  const { headers } = await signRequest(scripted(done).url, key, post);
  check(/^[0-9a-f]{64}$/.test(headers.get('X-Sign')), `X-Sign: ${headers.get('X-Sign')}`);
  const script = scripted(cut, done);
  await click(script, tab(), { retries: 1, sign: (request) => signRequest(request, key) });
  for (const name of ['x-nonce', 'x-sign'])
    eq(different(script.seen.map((one) => one.headers[name])), 2, name);
});

test(async function a_forgotten_operation_gets_a_new_key() {
  const script = scripted(problem('uncertain', 409, false)), storage = tab();
  const { idem } = await click(script, storage);
  forgetKey(idem.operation, storage);
  await click(script, storage);
  eq(different(script.keys()), 2, 'the number of keys');
});

test(async function a_late_answer_does_not_forget_the_next_operations_key() {
  let answer;
  const script = scripted((response) => (answer = () => done(response)), cut), storage = tab();
  const first = click(script, storage, { operation: 'o', linger: 0 });
  await until('it is asked', () => answer);
  forgetKey('o', storage);
  await fails(click(script, storage, { operation: 'o' }));
  answer();
  await first;
  await fails(click(script, storage, { operation: 'o' }));
  const [, second, third] = script.keys();
  eq(third, second, 'the key');
});

test(async function a_given_key_is_sent_and_not_kept() {
  const script = scripted(cut), storage = tab();
  await fails(click(script, storage, { key: 'mine', header: 'Idempotent-Token' }));
  eq(script.seen[0].headers['idempotent-token'], 'mine');
  eq(storage.map.size, 0, 'keys kept');
});

test(async function a_given_key_is_the_first_of_its_operation() {
  const script = scripted(cut), storage = tab();
  await fails(click(script, storage, { operation: 'o', key: 'one two' }));
  await fails(click(script, storage, { operation: 'o', key: 'three' }));
  eq(script.keys(), ['one two', 'one two']);
});

test(async function an_abort_keeps_the_key_and_is_not_tried_again() {
  const control = new AbortController();
  const script = scripted(() => control.abort(), done), storage = tab();
  let retried = 0;
  const onRetry = () => (retried += 1);
  eq((await fails(click(script, storage, { signal: control.signal, retries: 5, onRetry }))).name, 'AbortError');
  eq([script.seen.length, retried], [1, 0]);
  await reloaded();
  await click(script, storage);
  eq(different(script.keys()), 1, 'the number of keys');
});

test(async function an_abort_ends_the_wait() {
  const script = scripted(says(503, { 'Retry-After': '30' })), storage = tab(), control = new AbortController();
  const onRetry = () => setTimeout(() => control.abort(), 50); // sleep: by then the call waits, or is about to
  eq((await fails(click(script, storage, { signal: control.signal, retries: 5, onRetry }))).name, 'AbortError');
  eq(script.seen.length, 1, 'requests');
  eq(storage.map.size, 1, 'keys kept');
});

test(async function an_abort_when_it_is_told_of_the_wait_ends_it() {
  const script = scripted(says(503, { 'Retry-After': '30' })), control = new AbortController();
  eq((await fails(click(script, tab(), { signal: control.signal, retries: 5, onRetry: () => control.abort() }))).name,
    'AbortError');
  eq(script.seen.length, 1, 'requests');
});

test(async function where_no_key_could_be_sent_nothing_is() {
  const script = scripted(done);
  check((await fails(click(script, tab(), { mode: 'no-cors' }))) instanceof TypeError, 'the error');
  eq(script.seen.length, 0, 'requests without a key');
});

test(async function a_form_with_a_file_is_the_same_bytes_again() {
  const script = scripted(cut, cut, replay), storage = tab();
  const form = () => {
    const data = new FormData();
    data.append('na"me', 'a\r\nb ✓');
    data.append('file', new File(['contents'], 'a "b".txt', { type: 'text/plain', lastModified: 1 }));
    return data;
  };
  await fails(click(script, storage, { body: form(), headers: {}, retries: 1 }));
  await reloaded();
  await click(script, storage, { body: form(), headers: {} });
  eq(different(script.keys()), 1, 'the number of keys');
  eq(script.seen[0].body, script.seen[1].body);
  // After a reload the boundary differs, which the gateway does not compare.
  const bare = ({ body, headers }) => body.replaceAll(/boundary=(.*)/.exec(headers['content-type'])[1], '');
  eq(different(script.seen.map(bare)), 1, 'the number of bodies');
  const { body, headers } = script.seen[0];
  check(body.includes('name="na%22me"') && body.includes('filename="a %22b%22.txt"'), body);
  const [text, file] = [...(await new Response(body,
    { headers: { 'Content-Type': headers['content-type'] } }).formData()).values()];
  eq([text, file.type, await file.text()], ['a\r\nb ✓', 'text/plain', 'contents']);
});

test(async function a_request_object_is_sent_as_it_is() {
  const script = scripted(cut, done);
  const request = new Request(script.url, { ...post, headers: { 'X-User': 'ann' } });
  await idemFetch(request, { retries: 1, storage: tab() });
  eq(script.seen.map(({ method, body, headers }) => [method, body, headers['x-user']]),
    Array(2).fill(['POST', post.body, 'ann']));
});

test(async function a_page_for_people_is_not_asked_of_the_gateway() {
  const script = scripted(done);
  await click(script, tab(), { headers: { Accept: 'text/html' } });
  eq(script.seen[0].headers.accept, 'text/html, application/problem+json');
});

test(async function a_storage_that_is_full_is_done_without() {
  const script = scripted(cut), storage = tab(true);
  await fails(click(script, storage));
  await fails(click(script, storage));
  eq(different(script.keys()), 1, 'the number of keys');
});

test(async function a_storage_that_fills_up_is_not_believed_any_more() {
  const script = scripted(done), storage = tab();
  const { setItem } = storage;
  // The storage has room for the key, but none for the time that it lingers.
  storage.setItem = (name, value) => {
    if (/\n./.test(value)) throw new Error('quota');
    setItem(name, value);
  };
  await click(script, storage, { linger: 100 });
  await pause(150); // sleep: longer than the key lingers
  await click(script, storage, { linger: 0 });
  eq(different(script.keys()), 2, 'the number of keys');
});

test(async function without_a_tab_two_calls_are_two_operations() {
  const script = scripted(cut);
  await fails(click(script, undefined));
  await fails(click(script, undefined));
  eq(different(script.keys()), 2, 'the number of keys');
});

test(async function nothing_of_the_request_is_kept_but_its_digest() {
  const script = scripted(cut), storage = tab();
  script.url += '?card=visa';
  scripts.set(new URL(script.url).pathname + '?card=visa', script);
  await fails(click(script, storage, { body: 'secret' }));
  check(!/visa|secret/.test(JSON.stringify([...storage.map])), JSON.stringify([...storage.map]));
});

await run(async () => server.close());
