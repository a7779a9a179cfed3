"""Signs requests like a client that was written from docs/sign.md and the RFCs alone, without Idem's code."""
import base64
import hashlib
import hmac
import itertools
import os
import time

KEYS = {"shop-1": b"correct horse battery staple", "shop-2": b"a secret of another kind altogether"}
FILE = "".join(f"{name} hmac-sha256 base64:{base64.b64encode(secret).decode()}\n" for name, secret in KEYS.items())
numbers = itertools.count(1)


def nonce():
    return f"n-{os.getpid()}-{next(numbers)}-{os.urandom(4).hex()}"


def target_sorted(target):
    path, mark, query = target.partition("?")
    return path + mark + "&".join(sorted(query.split("&"), key=lambda pair: pair.split("=", 1)[0].encode()))


def classic(method, target, body=b"", key="shop-1", secret=None, at=None, number=None, signed=(), timed=True):
    """Returns the four headers. `signed` are the (name, value) pairs that the server wants signed, in order."""
    number = number or nonce()
    at = str(int(time.time()) if at is None else at) if timed else ""
    lines = ["IDEM-SIGN-1", method, target_sorted(target), at, number, key,
             *(f"{name.lower()}:{value}" for name, value in signed), hashlib.sha256(body).hexdigest()]
    made = hmac.new(secret or KEYS[key], "\n".join(lines).encode(), hashlib.sha256).hexdigest()
    return [("X-Key-Id", key), *([("X-Timestamp", at)] if timed else []), ("X-Nonce", number), ("X-Sign", made)]


def digest(body, algorithm="sha-256"):
    made = hashlib.new(algorithm.replace("-", ""), body).digest()
    return f"{algorithm}=:{base64.b64encode(made).decode()}:"


def message(method, target, body=b"", key="shop-1", secret=None, at=None, number=None, signed=(), timed=True,
            host="localhost", scheme="http", components=None, algorithm="sha-256"):
    """Returns Content-Digest (with a body), Signature-Input and Signature."""
    path, mark, query = target.partition("?")
    values = {"@method": method, "@authority": host, "@path": path, "@query": "?" + query,
              "@target-uri": f"{scheme}://{host}{target}", "@request-target": target, "@scheme": scheme}
    fields = [("Content-Digest", digest(body, algorithm))] if body else []
    values |= {name.lower(): value for name, value in [*fields, *signed]}
    if components is None:
        components = ["@method", "@authority", "@path", *(["@query"] if mark else []),
                      *(["content-digest"] if body else []), *(name.lower() for name, _ in signed)]
    inner = " ".join(f'"{name}"' for name in components)
    created = f";created={int(time.time()) if at is None else at}" if timed else ""
    params = f'({inner}){created};keyid="{key}";nonce="{number or nonce()}"'
    base = "\n".join([f'"{name}": {values[name]}' for name in components] + [f'"@signature-params": {params}'])
    made = hmac.new(secret or KEYS[key], base.encode(), hashlib.sha256).digest()
    return [*fields, ("Signature-Input", f"sig={params}"), ("Signature", f"sig=:{base64.b64encode(made).decode()}:")]


FORMS = {"classic": classic, "rfc9421": message}
