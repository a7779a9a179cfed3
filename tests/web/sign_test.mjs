// Signed requests: idem-sign.js in Node, the real gateway, the C library (tests/sign/peer.c), and an independent
// implementation of RFC 9421. Each accepts the signatures of the others.
import { spawnSync } from 'node:child_process';
import { createHash, randomUUID, webcrypto } from 'node:crypto';
import { createRequire } from 'node:module';
import { need, Rig, runOn } from './rig.mjs';
import { check, eq, test } from './tap.mjs';

globalThis.crypto ??= webcrypto; // Node 18 has it, but not as a global
const { signRequest } = await import('../../web/idem-sign.js');
const { createSigner, createVerifier, httpbis } =
  createRequire(need('IDEM_WEB_MODULES') + '/')('http-message-signatures');
const { subtle } = webcrypto;
const rig = new Rig({ browser: false });
const { secret, pair } = rig.signers;

const hmac = await subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
const ed25519 = await subtle.importKey('pkcs8', pair.privateKey.export({ format: 'der', type: 'pkcs8' }),
  'Ed25519', false, ['sign']);
const SHOP = { keyId: 'shop-1', key: hmac }, PAGE = { keyId: 'page-1', key: ed25519 };
const CLASSIC = { ...SHOP, form: 'classic', headers: ['Content-Type'] };
const post = { method: 'POST', body: '{"a":1}', headers: { 'Content-Type': 'application/json' } };

const at = (path) => `http://127.0.0.1:${rig.port}${path}`;
const told = async (response) => {
  const text = await response.text();
  return response.status === 401 ? JSON.parse(text).type.slice('urn:idem:'.length) : String(response.status);
};
const answer = async (...request) => told(await fetch(...request));
const fails = (promise) => promise.then(() => { throw new Error('it did not fail'); }, (error) => error);

// A signed request passes once, and not a second time.
async function isTaken(path, how, init, what) {
  const request = await signRequest(at(path), how, init);
  const again = request.clone();
  eq([await answer(request), await answer(again)], ['201', 'nonce-reused'], what);
}

test(async function every_kind_of_key_signs() {
  await isTaken('/signed/x?b=2&a=1', SHOP, post, 'a key for HMAC');
  await isTaken('/signed/x?b=2&a=1', PAGE, post, 'a key for Ed25519');
  await isTaken('/signed/x', { keyId: 'shop-1', key: secret }, post, 'bytes');
  await isTaken('/signed/x', { keyId: 'shop-1', key: new Uint8Array(secret).buffer }, post, 'a buffer');
  const within = new Uint8Array([9, ...rig.signers.raw('d'), 9]).subarray(1, 33);
  await isTaken('/signed/x', { keyId: 'page-1', key: within, alg: 'ed25519' }, post, 'bytes for Ed25519');
  await isTaken('/signed/classic/x?b=2&a=1&b=1&&c', CLASSIC, post, 'the classic form');
  eq(await answer(await signRequest(at('/signed/x'), { ...SHOP, keyId: 'page-1' }, post)), 'signature-wrong');
});

test(async function a_body_of_every_kind_is_signed_as_it_is_sent() {
  const form = new FormData();
  form.append('a', 'ä');
  form.append('file', new Blob(['a file']), 'name.txt');
  for (const [what, body] of [
    ['text', 'ünï'], ['nothing', ''], ['bytes', new Uint8Array([0, 255, 10])],
    ['a view', new Uint8Array([1, 2, 3, 4]).subarray(1, 3)], ['parameters', new URLSearchParams({ a: 'ä b' })],
    ['a Blob', new Blob(['a', 'b'])], ['a form with a file', form], ['much', 'x'.repeat(300000)],
  ]) {
    await isTaken('/signed/body', SHOP, { method: 'POST', body }, what);
    await isTaken('/signed/classic/body', CLASSIC, { method: 'POST', body,
      headers: /bytes|view|Blob/.test(what) ? { 'Content-Type': 'a/b' } : {} }, what);
  }
  for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
    await isTaken('/signed/none?' + method, PAGE, { method }, method);
  await isTaken('/signed/x', SHOP, undefined, 'fetch(url)');
});

test(async function a_request_is_taken_as_well_as_an_address() {
  const made = new Request(at('/signed/x'), post);
  eq(await answer(await signRequest(made, SHOP)), '201');
  eq(await answer(await signRequest(new URL(at('/signed/x')), SHOP, post)), '201');
  const signed = await signRequest(at('/signed/x'), SHOP, post);
  eq(await answer(await signRequest(signed, SHOP)), '201', 'signed anew');
  const life = new AbortController();
  const stopped = await signRequest(at('/signed/x'), SHOP, { ...post, signal: life.signal });
  life.abort();
  eq((await fails(fetch(stopped))).name, 'AbortError');
});

test(async function odd_addresses_are_signed_as_they_are_sent() {
  for (const place of ['?', '?#x', 'a%2Fb?c=%2F+%20', 'ä/日?ö=ü', '//double//', 'a/../b?x', "it's;a=1?q='1'",
    '?b&a&b=1&a=2&=&&c', '?a=b=c&a=a', '?#', '?B=1&a=2&A=3&a-=1&a%=1'])
    for (const [form, how] of [['', SHOP], ['classic/', CLASSIC]])
      await isTaken(`/signed/${form}${place}`, how, post, form + place);
});

test(async function headers_are_signed_where_they_must_be() {
  const how = { ...SHOP, headers: ['Content-Type', '@scheme', '@target-uri', '@method', '@request-target', '@query'] };
  await isTaken('/signed/named/x', how, post, 'what is asked for');
  await isTaken('/signed/named/x?y=1', how, post, 'what is asked for, and a query');
  eq(await answer(await signRequest(at('/signed/named/x'), SHOP, post)), 'signature-incomplete');
  const latin = { ...post, headers: { ...post.headers, 'X-Name': 'J\xfcrgen' } };
  await isTaken('/signed/x', { ...SHOP, headers: ['X-Name'] }, latin, 'a byte that is not ASCII');
  await isTaken('/signed/x', { ...SHOP, headers: ['content-digest'] }, { method: 'GET' }, 'the digest of nothing');
  await isTaken('/signed/x', { ...SHOP, headers: ['Host'] }, post, 'the host, which fetch sets itself');
  await isTaken('/signed/classic/host/x', { ...CLASSIC, headers: ['Host'] }, post, 'the host, in the classic form');
});

test(async function a_part_that_is_changed_is_refused() {
  for (const [path, how] of [['/signed/x?a=1', SHOP], ['/signed/x?a=1', PAGE], ['/signed/classic/x?a=1', CLASSIC]]) {
    const changed = async (url, init) => {
      const request = await signRequest(at(path), how, post);
      return answer(new Request(at(url), { method: 'POST', headers: request.headers, body: post.body, ...init }));
    };
    eq(await changed(path, { body: '{"a":2}' }), 'signature-wrong', 'the body');
    eq(await changed(path + '&b=2', {}), 'signature-wrong', 'the query');
    eq(await changed(path.replace('x', 'y'), {}), 'signature-wrong', 'the path');
    eq(await changed(path, { method: 'PUT' }), 'signature-wrong', 'the method');
  }
  const old = Math.floor(Date.now() / 1000) - 70;
  for (const how of [SHOP, CLASSIC])
    eq(await answer(await signRequest(at(how.form ? '/signed/classic/x' : '/signed/x'), { ...how, created: old }, post)),
      'signature-stale');
});

test(async function a_public_key_is_no_secret() {
  const known = rig.signers.raw('x');
  eq(await answer(await signRequest(at('/signed/x'), { keyId: 'page-1', key: known }, post)), 'signature-wrong');
  const request = { ...post, url: at('/signed/x') };
  for (const params of [['created', 'keyid', 'nonce'], ['created', 'keyid', 'nonce', 'alg']]) {
    const forged = await signedByThem('page-1', request, { params, key: createSigner(known, 'hmac-sha256', 'page-1') });
    eq(await fetched(forged), 'signature-wrong');
    eq(/wrong/.test(verified(forged)), true, 'by the library');
  }
  eq(await answer(await signRequest(at('/signed/classic/x'), { ...CLASSIC, keyId: 'page-1', key: known }, post)),
    'signature-wrong', 'in the classic form');
});

test(async function a_sequence_needs_no_clock() {
  const numbered = async (sequence) => {
    const request = await signRequest(at('/signed/numbers/x'), { ...SHOP, sequence }, post);
    check(!/created/.test(request.headers.get('Signature-Input')), 'it has a time');
    return answer(request);
  };
  eq([await numbered(7), await numbered(7), await numbered(6), await numbered(8n), await numbered('10')],
    ['201', 'nonce-reused', 'nonce-reused', '201', '201']);
  const request = await signRequest(at('/x'), { ...CLASSIC, sequence: 3 }, post);
  eq([request.headers.get('X-Nonce'), request.headers.get('X-Timestamp')], ['3', null]);
});

test(async function a_nonce_has_128_random_bits() {
  const seen = new Set();
  for (let i = 0; i < 200; i++) {
    const { headers } = await signRequest(at('/x'), CLASSIC, post);
    check(/^[0-9a-f]{32}$/.test(headers.get('X-Nonce')), headers.get('X-Nonce'));
    seen.add(headers.get('X-Nonce'));
  }
  eq(seen.size, 200);
});

test(async function what_cannot_be_signed_is_told() {
  const stream = new Response('x').body;
  const generator = (async function* () { yield 'x'; })();
  const sha512 = await subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-512' }, false, ['sign']);
  const mute = await subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
  for (const [words, how, init] of [
    ['read it first', SHOP, { method: 'POST', body: stream, duplex: 'half' }],
    ['read it first', SHOP, { method: 'POST', body: generator, duplex: 'half' }],
    ['no-cors', SHOP, { ...post, mode: 'no-cors' }],
    ['keyId', { key: hmac }, post],
    ['keyId', { ...SHOP, keyId: 'a b' }, post],
    ['key must be', { keyId: 'a', key: 'a secret of some length' }, post],
    ['key must be', { keyId: 'a' }, post],
    ['SHA-256', { keyId: 'a', key: sha512 }, post],
    ['not made to sign', { keyId: 'a', key: mute }, post],
    ['32 bytes', { keyId: 'a', key: secret.subarray(1), alg: 'ed25519' }, post],
    ['alg must be', { keyId: 'a', key: secret, alg: 'rsa' }, post],
    ['form must be', { ...SHOP, form: 'toString' }, post],
    ['hmac-sha256 only', { ...PAGE, form: 'classic' }, post],
    ['X-Missing', { ...SHOP, headers: ['X-Missing'] }, post],
    ['x-missing', { ...CLASSIC, headers: ['X-Missing'] }, post],
    ['@status', { ...SHOP, headers: ['@status'] }, post],
    ['nonce', { ...SHOP, nonce: '' }, post],
    ['sequence', { ...SHOP, sequence: 0 }, post],
    ['sequence', { ...SHOP, sequence: 'x' }, post],
    ['whole seconds', { ...SHOP, created: 1.5 }, post],
  ]) {
    const error = await fails(signRequest(at('/x'), how, init));
    check(error instanceof TypeError && error.message.toLowerCase().includes(words.toLowerCase()), `${words}: ${error}`);
  }
});

// The C library.

function peer(verb, secrets, form, names, keyId, request) {
  const { method, url, headers, body } = request;
  const { protocol, host, pathname, search } = new URL(url);
  const input = `${method} ${protocol.slice(0, -1)} ${host} ${pathname}${search}\n` +
    Object.entries(headers).map(([name, value]) => `${name}: ${value}\n`).join('') + '\n' + (body ?? '');
  const { status, stdout, stderr } = spawnSync(need('IDEM_SIGN_PEER'),
    [verb, rig.write(verb, secrets), form, names, ...(keyId ? [keyId] : [])], { input, encoding: 'utf8', timeout: 120000 });
  if (status !== 0) throw new Error(stderr);
  return stdout.trim();
}

const verified = (request, form = 'rfc9421', names = '') =>
  peer('verify', rig.signers.file('ed25519', 'x'), form, names, undefined, request);

function signedInC(request, keyId, form = 'rfc9421', names = '') {
  const lines = peer('sign', rig.signers.file('ed25519-secret', 'd'), form, names, keyId, request).split('\n');
  const made = lines.map((line) => line.split(/: (.*)/s).slice(0, 2));
  return { ...request, headers: { ...request.headers, ...Object.fromEntries(made) } };
}

const plain = async (request) => ({
  method: request.method, url: request.url, headers: Object.fromEntries(request.headers), body: post.body });
const fetched = ({ url, ...init }) => answer(url, init);

test(async function what_the_page_signs_the_library_takes() {
  for (const how of [SHOP, PAGE, CLASSIC]) {
    const request = await plain(await signRequest(at('/x?b=1&a=2'), how, post));
    const names = how.form ? 'content-type' : '';
    eq(verified(request, how.form, names), 'good');
    check(/wrong/.test(verified({ ...request, body: '{"a":2}' }, how.form, names)), 'another body');
  }
});

test(async function what_the_library_signs_the_gateway_takes() {
  const read = signedInC({ method: 'GET', headers: {}, url: at('/signed/digest/x') }, 'page-1', 'rfc9421', 'content-digest');
  eq([await fetched(read), await fetched(read)], ['201', 'nonce-reused'], 'the digest of nothing');
  const request = { ...post, url: at('/signed/x?b=1&a=2') };
  for (const keyId of ['shop-1', 'page-1']) {
    const signed = signedInC(request, keyId);
    eq([await fetched(signed), await fetched(signed)], ['201', 'nonce-reused'], keyId);
  }
  const signed = signedInC({ ...request, url: at('/signed/classic/x?b=1&a=2') }, 'shop-1', 'classic', 'content-type');
  eq([await fetched(signed), await fetched(signed)], ['201', 'nonce-reused'], 'classic');
});

// The independent implementation.

const THEIRS = {
  'shop-1': { alg: 'hmac-sha256', signs: secret, verifies: secret },
  'page-1': { alg: 'ed25519', signs: pair.privateKey, verifies: pair.publicKey },
};
const FIELDS = ['@method', '@authority', '@path', '@query', 'content-digest', 'content-type'];
const digests = (body, ...names) => names.map((name) =>
  `${name}=:${createHash(name.replace('-', '')).update(body).digest('base64')}:`).join(', ');

const signedByThem = (keyId, request, { fields = FIELDS, digest = ['sha-256'], params = ['created', 'keyid', 'nonce', 'alg'], ...more } = {}) =>
  httpbis.signMessage({
    key: createSigner(THEIRS[keyId].signs, THEIRS[keyId].alg, keyId), fields, params,
    paramValues: { nonce: randomUUID() }, ...more,
  }, { ...request, headers: { ...request.headers, 'Content-Digest': digests(request.body, ...digest) } });

const takenByThem = ({ method, url, headers }, more = {}) => httpbis.verifyMessage({
  async keyLookup({ keyid }) {
    const { alg, verifies } = THEIRS[keyid];
    return { id: keyid, algs: [alg], verify: createVerifier(verifies, alg) };
  },
  requiredFields: FIELDS.slice(0, 5), requiredParams: ['created', 'keyid', 'nonce', 'alg'], maxAge: 60, ...more,
}, { method, url, headers });

test(async function what_they_sign_is_taken_here() {
  const request = { ...post, url: at('/signed/x?b=%202&a=1') };
  for (const keyId of Object.keys(THEIRS))
    for (const [what, options] of Object.entries({
      'sha-256': {}, 'sha-512': { digest: ['sha-512'] }, both: { digest: ['sha-512', 'sha-256'] },
      'other parameters': { params: ['nonce', 'keyid', 'created', 'expires', 'alg', 'tag'],
        paramValues: { nonce: randomUUID(), tag: 'idem' } },
      'no alg': { params: ['created', 'keyid', 'nonce'] },
      'another name': { name: 'theirs' },
      'the whole address': { fields: ['@method', '@target-uri', 'content-digest'] },
      'bytes and a parameter': { fields: [...FIELDS, '@scheme', 'content-type;bs', '@query-param;name="a"'] },
    })) {
      const signed = await signedByThem(keyId, request, options);
      eq(verified(signed), 'good', `${keyId}, ${what}, by the library`);
      eq([await fetched(signed), await fetched(signed)], ['201', 'nonce-reused'], `${keyId}, ${what}`);
      const changed = await signedByThem(keyId, request, options);
      eq(await fetched({ ...changed, body: '{"a":2}' }), 'signature-wrong', `${keyId}, ${what}, another body`);
      eq(await fetched({ ...changed, method: 'PUT' }), 'signature-wrong', `${keyId}, ${what}, another method`);
    }
});

test(async function what_is_signed_here_is_taken_by_them() {
  const request = { ...post, url: at('/signed/x?b=%202&a=1') };
  for (const keyId of Object.keys(THEIRS)) {
    const how = keyId === 'page-1' ? PAGE : SHOP;
    const page = await plain(await signRequest(request.url, { ...how, headers: ['Content-Type'] }, post));
    const library = signedInC(request, keyId, 'rfc9421', 'content-type');
    for (const [who, signed] of [['the page', page], ['the library', library]]) {
      eq(await takenByThem(signed), true, `${keyId} of ${who}`);
      eq(await takenByThem({ ...signed, method: 'PUT' }), false, `${keyId} of ${who}, another method`);
      const digest = Object.entries(signed.headers).find(([name]) => name.toLowerCase() === 'content-digest');
      eq(digest[1], digests(post.body, 'sha-256'), `${keyId} of ${who}, the digest`);
    }
  }
});

await runOn(rig);
