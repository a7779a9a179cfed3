// One key for one operation, however often it is sent: docs/web.md.

const FREED = /401|407|408|42[1359]/; // not done; an earlier attempt may be
const AGAIN = /408|42[59]|50[234]/;
const OVER = /^urn:idem:(duplicate|key-|token-)/;

const tried = (act) => {
  try {
    return act();
  } catch {}
};

// Keys: in memory where a tab's storage is blocked or full. A server's program, which has many
// people's, gets no storage.
const memory = new Map();
const tabStorage = () => globalThis.document && (tried(() => sessionStorage) ?? {});

function keep(storage, operation, key, until = '') {
  const text = key + '\n' + until;
  if (tried(() => storage.setItem('idem:' + operation, text) ?? true)) return;
  forgetKey(operation, storage); // an older one, which there was room for
  memory.set(operation, text);
}

function recall(storage, operation) {
  const text = tried(() => storage.getItem('idem:' + operation)) ?? memory.get(operation);
  const [key, until] = text?.split('\n') ?? [];
  return !until || Date.now() < until ? key : undefined;
}

export function forgetKey(operation, storage = tabStorage()) {
  memory.delete(operation);
  tried(() => storage.removeItem('idem:' + operation));
}

// Texts that share a digest share a key: the gateway refuses the second.
function digest(text) {
  let a = 1, b = 2;
  for (let i = 0; i < text.length; i++) {
    a = Math.imul(a ^ text.charCodeAt(i), 0x9e3779b1);
    b = Math.imul(b ^ a ^ (a >>> 15), 0x5f356495);
  }
  return (a >>> 0) + '.' + (b >>> 0);
}

const listed = (fields) => JSON.stringify(Array.from(fields, ([name, value]) =>
  value.name ? [name, value.name, value.size, value.lastModified] : [name, value]));

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  signal?.throwIfAborted();
  setTimeout(resolve, ms);
  signal?.addEventListener('abort', () => reject(signal.reason));
});

// An answer that breaks off is none.
async function attempt(request) {
  const response = await fetch(request);
  const endless = response.headers.get('Content-Type')?.startsWith('text/event-stream');
  const text = endless ? '' : await response.clone().text();
  const problem = response.ok || tried(() => JSON.parse(text));
  return [response, /^urn:idem:/.test(problem?.type) ? problem : {}];
}

// again: may be sent again. final: nothing more will come of this key.
function judge({ status }, { type, retryable }, replayed, sign) {
  // A browser sends on a connection that it finds closed by itself again, with the nonce.
  if (type) return { again: retryable || (sign && /nonce/.test(type)), final: OVER.test(type) };
  return {
    again: !replayed && AGAIN.test(status),
    final: status < 500 && (replayed || !FREED.test(status)),
  };
}

function delayOf(response, attempts) {
  const after = response?.headers.get('Retry-After');
  const told = after > 0 ? after * 1000 : Date.parse(after) - Date.now();
  const own = Math.min(250 * 2 ** attempts, 30000) * (1 - Math.random() / 2);
  return told > 0 ? told + own / 4 : own;
}

export const signRequest = async (...all) =>
  (await import('./idem-sign.js')).signRequest(...all);

export async function idemFetch(input, options = {}) {
  let {
    operation, key, header = 'Idempotency-Key', retries = 6, timeout = 30000, linger = 1000,
    onRetry, storage = tabStorage(), signal = input.signal, sign, ...init
  } = options;
  const base = new Request(input, init);
  if (base.mode === 'no-cors') throw new TypeError('no-cors sends no key');
  const headers = new Headers(base.headers);
  const body = /^(GET|HEAD)$/.test(base.method) ? undefined : await base.blob();
  if (!key && storage) // a browser draws a form's boundary anew each time
    operation ??= digest(base.method + base.url +
      (init.body instanceof FormData ? listed(init.body) : await body?.text()));
  key = (operation && recall(storage, operation)) || key ||
    crypto.getRandomValues(new Uint32Array(4)).join('-'); // insecure origins have no randomUUID
  if (operation) keep(storage, operation, key); // before it is sent: a reload finds it

  headers.set(header, key);
  if (headers.has('Accept')) headers.append('Accept', 'application/problem+json');
  for (let attempts = 1; ; attempts++) {
    let response, error, problem;
    const limit = new AbortController();
    let request = new Request(base, {
      headers, body, signal: AbortSignal.any([limit.signal, signal ?? limit.signal]),
    });
    if (sign) request = await sign(request); // what fails here is no network
    const timer = setTimeout(() => limit.abort(new DOMException('', 'TimeoutError')), timeout);
    try {
      [response, problem] = await attempt(request);
    } catch (thrown) {
      if (signal?.aborted) throw thrown; // it may have happened: the key stays
      error = thrown;
    } finally {
      clearTimeout(timer);
    }
    const replayed = response?.headers.get('Idempotent-Replayed') === 'true';
    const { again, final } = response ? judge(response, problem, replayed, sign) : { again: true };
    const delay = delayOf(response, attempts);
    if (!again || attempts > retries || delay > 60000) {
      if (!response) throw error;
      if (final && operation && recall(storage, operation) === key) {
        // The second click may come behind the first one's answer.
        if (linger && (response.status < 400 || /duplicate/.test(problem.type)))
          keep(storage, operation, key, Date.now() + linger);
        else forgetKey(operation, storage);
      }
      return Object.assign(response, { idem: { key, operation, attempts, replayed, final } });
    }
    onRetry?.({ key, attempts, delay, response, error });
    await sleep(delay, signal);
  }
}

export function guardForm(form, options = {}) {
  const {
    tokenUrl, field = 'token', fetch: byFetch, onAnswer, onError, text, status, hold = 45000,
    storage = tabStorage(), ...rest
  } = options;
  const say = {
    sending: 'Sending…',
    retrying: 'Trying again…',
    done: 'Done.',
    refused: 'Not accepted.',
    failed: 'No answer. Try again: it will not be done twice.',
    ...text,
  };
  const life = new AbortController(), { signal } = life;
  const make = (tag, attributes) =>
    form.appendChild(Object.assign(document.createElement(tag), attributes));
  const told = status ?? form.querySelector('[role=status]') ?? make('p', { role: 'status' });
  const input = form.querySelector(`[name="${field}"]`) ??
    (tokenUrl && make('input', { type: 'hidden', name: field }));
  let due = tokenUrl ? 0 : Infinity; // until then the token is valid, and unused
  let locked = [], busy, focus, timer, renewing;

  const renew = () => (renewing ??= (async () => {
    const answer = await fetch(tokenUrl, { signal });
    if (!answer.ok) throw new Error(answer.status);
    const { token, expires_in = 300 } = await answer.json();
    const ms = Math.max(500, Math.min(expires_in * 800, 2 ** 31 - 1) || 0); // a timer's limit
    input.value = token;
    due = Date.now() + ms;
    clearTimeout(timer);
    timer = setTimeout(ahead, ms);
  })().finally(() => (renewing = undefined)));
  const ahead = () => tokenUrl && !busy && renew().catch(() => {}); // a submission asks again

  const disable = () => {
    locked = [...form.elements].filter(({ type, disabled }) => type === 'submit' && !disabled);
    locked.forEach((button) => (button.disabled = true));
  };
  const unlock = (words = '') => {
    clearTimeout(timer);
    busy = false;
    form.removeAttribute('aria-busy');
    told.textContent = words;
    locked.forEach((button) => (button.disabled = false));
    if (locked.includes(focus) && document.activeElement === document.body) focus.focus();
    locked = [];
  };

  async function send(action, how, data, operation, token) {
    if (token) data.delete(field); // it goes as a header
    const response = await idemFetch(action, {
      ...rest, storage, operation, signal, method: 'POST',
      body: how('enctype') === 'multipart/form-data' ? data
        : new URLSearchParams(Array.from(data, ([name, value]) => [name, value.name ?? value])),
      ...(token && { key: token, header: 'Idempotent-Token' }),
      onRetry(state) {
        told.textContent = say.retrying;
        rest.onRetry?.(state);
      },
    });
    unlock(response.ok ? say.done : response.idem.final ? say.refused : say.failed);
    if (response.idem.final) ahead();
    onAnswer?.(response);
  }

  async function submit(event) {
    const { submitter } = event;
    const how = (name) => submitter?.getAttribute('form' + name) ?? form.getAttribute(name);
    if (/get|dialog/i.test(how('method'))) return; // nothing is ordered by it
    if (busy) event.preventDefault();
    if (event.defaultPrevented) return;
    const data = new FormData(form, submitter);
    const action = new URL(how('action') ?? '', document.baseURI).href;
    const operation = digest(action + listed([...data].filter(([name]) => name !== field)));
    let token = recall(storage, operation); // the same again, unanswered
    const stale = !token && Date.now() >= due;
    const ours = byFetch || stale;
    if (ours) event.preventDefault();
    busy = true;
    focus = document.activeElement;
    form.setAttribute('aria-busy', 'true');
    told.textContent = say.sending;
    // Later: a disabled button is no part of the submission.
    setTimeout(() => {
      if (!ours && event.defaultPrevented) unlock();
      else if (busy) disable();
    });
    try {
      if (stale) await renew();
      if (stale && !byFetch) {
        unlock();
        return form.requestSubmit(submitter);
      }
      if (!token && tokenUrl) due = 0;
      token ??= input?.value;
      if (byFetch) return await send(action, how, data, operation, token);
      if (token) {
        input.value = token;
        keep(storage, operation, token, Date.now() + hold);
      }
      timer = setTimeout(unlock, rest.timeout ?? 30000); // stopped, or a download
    } catch (error) {
      if (signal.aborted) return;
      unlock(say.failed);
      onError?.(error);
    }
  }

  form.addEventListener('submit', submit, { signal });
  addEventListener('pageshow', (event) => {
    if (!event.persisted) return;
    unlock();
    ahead();
  }, { signal });
  ahead();
  return {
    release() {
      life.abort();
      unlock();
    },
  };
}
