interface SignCommon {
  /** Who signs: a key id of the server's file of secrets. */
  keyId: string;
  /** rfc9421 (Signature-Input, Signature), or classic (X-Sign): rfc9421. */
  form?: 'rfc9421' | 'classic';
  /** Names that are signed, too, as in idem_sign headers=; with rfc9421 also @scheme and the like. */
  headers?: readonly string[];
  /** Used once: 128 random bits. */
  nonce?: string;
  /** The next number, where the server counts them (idem_sign sequence=): the nonce, without a time. */
  sequence?: number | bigint | string;
  /** Seconds since 1970: now; with `sequence`, none. */
  created?: number;
}

/** For a key of WebCrypto's, which may be non-extractable. */
interface SignByKey extends SignCommon {
  /** HMAC with SHA-256, or Ed25519; to sign. */
  key: CryptoKey;
  alg?: undefined;
}

/** For the bytes of a secret. */
interface SignByBytes extends SignCommon {
  key: ArrayBuffer | ArrayBufferView;
  /** What they are for: hmac-sha256. */
  alg?: 'hmac-sha256' | 'ed25519';
}

export type SignOptions = SignByKey | SignByBytes;

/**
 * The request that fetch(input, init) would send, signed, for fetch() to send. A body that is a
 * stream is a TypeError.
 */
export function signRequest(
  input: RequestInfo | URL, how: SignOptions, init?: RequestInit): Promise<Request>;
