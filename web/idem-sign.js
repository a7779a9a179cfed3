// Signed requests, by WebCrypto: docs/web.md says how to use it, docs/sign.md what is signed.

const ALGORITHMS = { HMAC: 'hmac-sha256', Ed25519: 'ed25519' };
// What stands before the 32 bytes of a private key in PKCS#8, which is how WebCrypto takes one.
const PKCS8 = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];

const wrong = (text) => {
  throw new TypeError('signRequest: ' + text);
};

// Headers and URLs have no characters beyond a byte: each is sent as that byte.
const bytesOf = (text) => Uint8Array.from(text, (character) => character.charCodeAt(0));
const hexOf = (bytes) => Array.from(new Uint8Array(bytes), (byte) =>
  byte.toString(16).padStart(2, '0')).join('');
const base64Of = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)));
const quoted = (text) => `"${text.replace(/["\\]/g, '\\$&')}"`;

async function keyOf({ key, alg = 'hmac-sha256' }) {
  const { subtle } = globalThis.crypto ?? {};
  if (!subtle) wrong('there is no WebCrypto here: a page needs https, or localhost');
  if (!key?.algorithm) {
    if (!(key instanceof ArrayBuffer || ArrayBuffer.isView(key)))
      wrong('key must be a CryptoKey, or bytes');
    if (alg === 'hmac-sha256')
      return subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    if (alg !== 'ed25519') wrong('alg must be hmac-sha256 or ed25519');
    const raw = new Uint8Array(key.buffer ?? key, key.byteOffset ?? 0, key.byteLength);
    if (raw.length !== 32) wrong('a private key for ed25519 has 32 bytes');
    return subtle.importKey('pkcs8', Uint8Array.of(...PKCS8, ...raw), 'Ed25519', false, ['sign']);
  }
  const { name, hash } = key.algorithm;
  if (!ALGORITHMS[name] || (hash && hash.name !== 'SHA-256'))
    wrong('a key must be for HMAC with SHA-256, or for Ed25519');
  if (!key.usages.includes('sign')) wrong('the key was not made to sign');
  return key;
}

function read(input, init) {
  const body = init?.body;
  if (body?.getReader || body?.[Symbol.asyncIterator])
    wrong('a stream cannot be signed before it has ended: read it first, with new Response(stream).blob()');
  let request = new Request(input, init);
  // A question mark with nothing behind it is sent by browsers, and not by Node.
  if (/\?(#|$)/.test(request.url) && !(input instanceof Request))
    request = new Request(request.url.replace(/\?(?=#|$)/, ''), init);
  if (request.mode === 'no-cors') wrong('with no-cors no signature is sent');
  return request;
}

// As it is sent: without a fragment.
function placeOf(request) {
  const { origin, host, protocol } = new URL(request.url);
  const uri = request.url.replace(/#.*/s, '');
  const target = uri.slice(origin.length);
  const mark = target.indexOf('?');
  const path = mark < 0 ? target : target.slice(0, mark);
  return { uri, target, path, query: mark < 0 ? undefined : target.slice(mark + 1), host, protocol };
}

function valueOf(headers, { host }, name) {
  const value = headers.get(name) ?? (name === 'host' ? host : null);
  if (value === null)
    wrong(`${name} is to be signed, and is not set here: what the browser sets itself cannot be signed`);
  return value;
}

async function message({ request, headers, place, names, keyId, nonce, created, hash, length }, key) {
  if (!headers.has('Content-Digest') && (length || names.includes('content-digest')))
    headers.set('Content-Digest', `sha-256=:${base64Of(hash)}:`);
  const derived = {
    '@method': request.method,
    '@authority': place.host,
    '@path': place.path,
    '@query': '?' + (place.query ?? ''),
    '@scheme': place.protocol.slice(0, -1),
    '@target-uri': place.uri,
    '@request-target': place.target,
  };
  const covered = [...new Set([
    '@method', '@authority', '@path', ...(place.query === undefined ? [] : ['@query']),
    ...(length ? ['content-digest'] : []), ...names,
  ])];
  const parameters = `(${covered.map(quoted).join(' ')})` +
    (created === undefined ? '' : ';created=' + created) +
    `;keyid=${quoted(keyId)};nonce=${quoted(nonce)};alg="${ALGORITHMS[key.algorithm.name]}"`;
  const lines = covered.map((name) => `${quoted(name)}: ${derived[name] ??
    (name[0] === '@' ? wrong(name + ' is not known') : valueOf(headers, place, name))}`);
  const made = await crypto.subtle.sign(key.algorithm.name, key,
    bytesOf([...lines, '"@signature-params": ' + parameters].join('\n')));
  headers.set('Signature-Input', 'sig=' + parameters);
  headers.set('Signature', `sig=:${base64Of(made)}:`);
}

// By name; those of one name keep their order.
function sorted(query) {
  const named = query.split('&').map((pair) => [pair.split('=', 1)[0], pair]);
  return named.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([, pair]) => pair).join('&');
}

async function classic({ request, headers, place, names, keyId, nonce, created, hash }, key) {
  if (key.algorithm.name !== 'HMAC') wrong('the classic form has hmac-sha256 only');
  const { path, query } = place;
  const made = await crypto.subtle.sign('HMAC', key, bytesOf([
    'IDEM-SIGN-1', request.method, query === undefined ? path : `${path}?${sorted(query)}`,
    created ?? '', nonce, keyId, ...names.map((name) => `${name}:${valueOf(headers, place, name)}`),
    hexOf(hash),
  ].join('\n')));
  headers.set('X-Key-Id', keyId);
  if (created !== undefined) headers.set('X-Timestamp', created);
  headers.set('X-Nonce', nonce);
  headers.set('X-Sign', hexOf(made));
}

const FORMS = { rfc9421: message, classic };

export async function signRequest(input, how, init) {
  const key = await keyOf(how);
  const {
    keyId = '', form = 'rfc9421', sequence, headers: names = [],
    nonce = String(sequence ?? hexOf(crypto.getRandomValues(new Uint8Array(16)))),
    created = sequence === undefined ? Math.floor(Date.now() / 1000) : undefined,
  } = how;
  if (!/^[!-~]{1,128}$/.test(keyId)) wrong('keyId must be 1 to 128 visible ASCII characters');
  if (!/^[!-~]{1,255}$/.test(nonce)) wrong('nonce must be 1 to 255 visible ASCII characters');
  if (sequence !== undefined && !/^[1-9]\d*$/.test(nonce)) wrong('sequence must be a number from 1 on');
  if (created !== undefined && !(Number.isInteger(created) && created > 0))
    wrong('created must be whole seconds since 1970');
  if (!Object.hasOwn(FORMS, form)) wrong('form must be rfc9421 or classic');
  const request = read(input, init);
  const body = /^(GET|HEAD)$/.test(request.method) ? undefined : await request.arrayBuffer();
  const headers = new Headers(request.headers);
  await FORMS[form]({
    request, headers, names: names.map((name) => name.toLowerCase()), keyId, nonce, created,
    place: placeOf(request), length: body?.byteLength,
    hash: await crypto.subtle.digest('SHA-256', body ?? new ArrayBuffer(0)),
  }, key);
  return new Request(request, { headers, body });
}
