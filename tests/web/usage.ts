// The code of a page in TypeScript; types_test.mjs compiles it, and does not run it. A line after @ts-expect-error
// must be an error.
import { forgetKey, guardForm, idemFetch, signRequest as lazily } from '../../web/idem.js';
import { signRequest } from '../../web/idem-sign.js';
import type { SignOptions } from '../../web/idem-sign.js';
import type { FormGuard, IdemOptions, IdemResponse, KeyStorage, RetryState } from '../../web/idem.js';

const options: IdemOptions = {
  method: 'POST',
  body: new FormData(),
  operation: 'checkout 17',
  retries: 3,
  timeout: 5000,
  linger: 0,
  signal: new AbortController().signal,
  storage: localStorage,
  onRetry: ({ attempts, delay, error }: RetryState) => console.log(attempts, delay, error),
};

export async function buy(): Promise<string> {
  const response: IdemResponse = await idemFetch(new URL('/orders', location.href), options);
  const plain: Response = response;
  if (!response.idem.final && response.idem.operation) forgetKey(response.idem.operation);
  return response.idem.replayed ? response.idem.key : plain.text();
}

export async function signed(key: CryptoKey): Promise<Response> {
  const how: SignOptions = { keyId: 'page-1', key, headers: ['Idempotency-Key'] };
  await idemFetch('/orders', { ...options, sign: (request) => lazily(request, how) });
  await signRequest('/orders', { keyId: 'a', key: new Uint8Array(32), alg: 'ed25519', sequence: 7n });
  return fetch(await signRequest(new URL('/orders', location.href), { ...how, form: 'classic' }, { method: 'POST' }));
}

const form = document.querySelector('form') as HTMLFormElement;
const guard: FormGuard = guardForm(form, {
  tokenUrl: '/token',
  fetch: true,
  text: { sending: 'Wird gesendet …' },
  headers: { 'X-Page': 'form' },
  onAnswer: (response) => console.log(response.status, response.idem.attempts),
  onError: (error) => console.error(error),
});
guard.release();

const memory: KeyStorage = { getItem: () => null, setItem: () => {}, removeItem: () => {} };
void idemFetch('/orders', { key: 'k', storage: memory });
void idemFetch(new Request('/orders'));

// @ts-expect-error: a number of attempts is a number
void idemFetch('/orders', { retries: 'many' });
// @ts-expect-error: there is no such text
guardForm(form, { text: { finished: '' } });
// @ts-expect-error: the form's token is its key
guardForm(form, { key: 'k' });
// @ts-expect-error: a form, or nothing
guardForm(document.body);
// @ts-expect-error: a name that was not declared is not known
void buy.idem;
// @ts-expect-error: a secret is bytes
void signRequest('/orders', { keyId: 'a', key: 'secret' });
// @ts-expect-error: a CryptoKey knows what it is for
void signRequest('/orders', { keyId: 'a', key: {} as CryptoKey, alg: 'ed25519' });
// @ts-expect-error: there is no such form
void lazily('/orders', { keyId: 'a', key: new Uint8Array(32), form: 'md5' });
