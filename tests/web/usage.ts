// What a page in TypeScript writes; types_test.mjs compiles it, and does not run it. What is said to be
// an error must be one.
import { forgetKey, guardForm, idemFetch } from '../../web/idem.js';
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
// @ts-expect-error: what was never said is not known
void buy.idem;
