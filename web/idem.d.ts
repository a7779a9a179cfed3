/** What the browser's Storage can do, as far as it is used. */
export interface KeyStorage {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

export interface IdemInfo {
  /** The key that it was sent under. */
  key: string;
  /** What the key is kept by, for forgetKey(); undefined where it was not kept. */
  operation: string | undefined;
  /** How often it was sent, this time. */
  attempts: number;
  /** The answer was stored: it had been done before. */
  replayed: boolean;
  /** Nothing more will come of this key. false: the same operation is sent under it again. */
  final: boolean;
}

export type IdemResponse = Response & { idem: IdemInfo };

export interface RetryState {
  key: string;
  /** How many attempts there were so far. */
  attempts: number;
  /** Milliseconds until the next one. */
  delay: number;
  /** Why: an answer, or an error. */
  response?: Response;
  error?: unknown;
}

/** fetch's own options, and: */
export interface IdemOptions extends RequestInit {
  /** A name for the logical operation; otherwise method, URL and body. */
  operation?: string;
  /** The key; with `operation`, the one to begin with. */
  key?: string;
  /** The header that it goes in: Idempotency-Key. */
  header?: string;
  /** How often it is sent again: 6. */
  retries?: number;
  /** Milliseconds for one attempt, its answer's last byte included: 30000. */
  timeout?: number;
  /** Milliseconds after the answer in which the same again is the second click: 1000. */
  linger?: number;
  /** Called before each wait. */
  onRetry?: (state: RetryState) => void;
  /** Where keys are kept: the tab's sessionStorage. */
  storage?: KeyStorage;
  /** What is sent instead: called for each attempt, with a request that is whole; signRequest(). */
  sign?: (request: Request) => Request | Promise<Request>;
}

/** Sends one operation under one key until it is answered. */
export function idemFetch(input: RequestInfo | URL, options?: IdemOptions): Promise<IdemResponse>;

export type { SignOptions } from './idem-sign.js';

/** That of idem-sign.js, which is loaded when it is first called. */
export const signRequest: typeof import('./idem-sign.js').signRequest;

/** The next request of that operation is a new one: it may be done a second time. */
export function forgetKey(operation: string, storage?: KeyStorage): void;

export interface FormTexts {
  sending: string;
  retrying: string;
  done: string;
  refused: string;
  failed: string;
}

/** What idemFetch takes, for `fetch: true`, and: */
export interface FormOptions
  extends Omit<IdemOptions, 'operation' | 'key' | 'header' | 'method' | 'body' | 'signal'> {
  /** Where tokens are issued: GET, JSON {token, expires_in}. */
  tokenUrl?: string | URL;
  /** The hidden field: token. */
  field?: string;
  /** Send by fetch, and stay on the page. */
  fetch?: boolean;
  /** The element that says what happens; otherwise the form's [role=status], made if missing. */
  status?: Element;
  text?: Partial<FormTexts>;
  /** Milliseconds in which the same form, sent by the browser, goes with the same token: 45000. */
  hold?: number;
  onAnswer?: (response: IdemResponse) => void;
  onError?: (error: unknown) => void;
}

export interface FormGuard {
  /** Listeners and timers end; the buttons are enabled. */
  release(): void;
}

/** One token for one submission of the form. */
export function guardForm(form: HTMLFormElement, options?: FormOptions): FormGuard;
