#!/usr/bin/env python3
"""An HTTP endpoint whose responses the messages choose: endpoint.py DIRECTORY [CERTIFICATE KEY]

Listens on a free port of the loopback, which it writes into DIRECTORY/port, and writes each complete
request as a line of JSON into DIRECTORY/requests. The header X-Do is JSON: act, status, headers,
body, n. The endpoint ends when its stdin does.
"""
import hashlib
import json
import os
import socket
import sys
import threading

folder = sys.argv[1]
context = None
if len(sys.argv) > 2:
    import ssl  # takes long to load
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
lock = threading.Lock()
crowd, arrived = 0, threading.Condition()


def log(entry):
    with lock, open(folder + '/requests', 'a') as file:
        file.write(json.dumps(entry) + '\n')


def read_request(conn, rest):
    while b'\r\n\r\n' not in rest:
        got = conn.recv(65536)
        if not got:
            return None
        rest += got
        if rest[0] == 0x16:  # a client tries TLS
            conn.sendall(b'HTTP/1.1 400 Bad Request\r\n\r\n')
            return None
    head, _, body = rest.partition(b'\r\n\r\n')
    lines = head.decode('latin-1').split('\r\n')
    fields = [tuple(part.strip() for part in line.split(':', 1)) for line in lines[1:]]
    named = {name.lower(): value for name, value in fields}
    length = int(named.get('content-length', 0))
    while len(body) < length:
        got = conn.recv(65536)
        if not got:
            return None
        body += got
    return lines[0], fields, named, body[:length], body[length:]


def answer(conn, do, body=None, length=None):
    body = do.get('body', '').encode() if body is None else body
    head = ['HTTP/1.1 %d Thing' % do.get('status', 200),
            'Content-Length: %d' % (len(body) if length is None else length)]
    head += ['%s: %s' % pair for pair in do.get('headers', {}).items()]
    conn.sendall('\r\n'.join(head).encode('latin-1') + b'\r\n\r\n' + body)


def act(conn, do):
    """Returns true if the connection stays open."""
    what = do.get('act', 'answer')
    if what == 'answer':
        answer(conn, do)
        return True
    if what == 'silent':
        threading.Event().wait()
    if what == 'together':  # once `n` requests wait
        global crowd
        with arrived:
            crowd += 1
            arrived.notify_all()
            arrived.wait_for(lambda: crowd >= do['n'])
        answer(conn, do)
        return True
    if what == 'hints':
        conn.sendall(b'HTTP/1.1 103 Early Hints\r\nRetry-After: 99\r\n\r\n')
        answer(conn, do)
        return True
    if what == 'huge':
        answer(conn, do, b'', do['length'])
        piece = bytes(1 << 20)
        for _ in range(do['length'] >> 20):
            conn.sendall(piece)
        return True
    if what == 'cut-head':
        conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Le')
    elif what == 'cut-body':
        answer(conn, do, b'half', 1000)
    elif what == 'garbage':
        conn.sendall(b'what?\r\n\r\n')
    elif what == 'long-head':
        conn.sendall(b'HTTP/1.1 200 OK\r\n')
        for i in range(100):
            conn.sendall(b'X-%d: %s\r\n' % (i, b'v' * 1000))
        conn.sendall(b'Content-Length: 0\r\n\r\n')
    elif what == 'chunked-cut':
        conn.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n')
    elif what == 'reset':
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
    return False  # 'close': without a response


def serve(conn, number):
    rest = b''
    try:
        if context is not None:
            conn = context.wrap_socket(conn, server_side=True)
        while True:
            request = read_request(conn, rest)
            if request is None:
                break
            line, fields, named, body, rest = request
            log({'conn': number, 'line': line, 'fields': fields, 'length': len(body),
                 'sha256': hashlib.sha256(body).hexdigest()})
            if not act(conn, json.loads(named.get('x-do', '{}'))):
                break
    except OSError:
        pass
    finally:
        conn.close()


def main():
    listener = socket.create_server(('127.0.0.1', 0), backlog=256)
    with open(folder + '/port.new', 'w') as file:
        file.write('%d\n' % listener.getsockname()[1])
    os.rename(folder + '/port.new', folder + '/port')

    def accept():
        number = 0
        while True:
            conn, _ = listener.accept()
            number += 1
            threading.Thread(target=serve, args=(conn, number), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


main()
