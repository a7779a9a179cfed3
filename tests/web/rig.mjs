// Chromium, a network that can be cut, and behind it the real gateway, which issues the tokens and asks
// for signatures, before the shop (with its page, as `make run` serves it) and before a small backend for
// forms; all in a temporary folder, on free ports of loopback. What was started is ended by its pid.
// From the environment:
//   IDEM_HTTP_MODULE, IDEM_SHOP   the module and the shop
//   IDEM_WEB_MODULES              the folder with node_modules
import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { eq, report, run, until } from './tap.mjs';

const HERE = path.dirname(new URL(import.meta.url).pathname);
const NAME = 'shop.test'; // not loopback's own name: an insecure origin, as a page on a bare IP is
const PAGE = 'page.shop.test'; // the shop's own page
export const need = (name) => {
  if (!process.env[name]) throw new Error(`${name} is not set`);
  return path.resolve(process.env[name]);
};

export const listening = (server) => new Promise((resolve) =>
  server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

export async function freePort() {
  const server = net.createServer();
  const port = await listening(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

// The way to the gateway. cuts: how many answers to a POST are lost yet; the request gets through.
class Network {
  cuts = 0;
  posts = 0;
  tokens = 0; // asked for
  sockets = new Set();

  async open(target) {
    this.server = net.createServer((near) => this.join(near, target));
    this.port = await listening(this.server);
  }

  join(near, target) {
    const far = net.connect(target, '127.0.0.1');
    let cut = false;
    for (const socket of [near, far]) {
      this.sockets.add(socket);
      socket.on('error', () => {}).on('close', () => {
        this.sockets.delete(socket);
        near.destroy();
        far.end(); // what was sent arrives
      });
    }
    near.on('data', (data) => {
      if (data.toString('latin1').startsWith('GET /token')) this.tokens += 1;
      if (data.toString('latin1').startsWith('POST ')) {
        this.posts += 1;
        cut = this.cuts > 0;
        this.cuts -= cut ? 1 : 0;
      }
      far.write(data);
    });
    far.on('data', (data) => (cut ? near.resetAndDestroy() : near.write(data)));
  }

  close() {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }
}

// Takes forms: one order for each that reaches it.
class Backend {
  orders = [];
  answer = undefined; // instead of an order, once
  delay = 0;

  async open() {
    this.server = http.createServer((request, response) => {
      let body = '';
      request.on('data', (chunk) => (body += chunk));
      request.on('end', () => setTimeout(() => this.serve(request, response, body),
        request.method === 'POST' ? this.delay : 0));
    });
    this.port = await listening(this.server);
  }

  serve(request, response, body) {
    const say = (status, type, text, headers) => {
      response.writeHead(status, { 'Content-Type': type, ...headers });
      response.end(text);
    };
    if (this.answer) {
      say(this.answer, 'text/html', '<h1>Refused</h1>');
      this.answer = undefined;
      return undefined;
    }
    this.orders.push(body);
    return say(201, 'text/html', `<!doctype html><title>Order ${this.orders.length}</title>` +
      `<h1>Order ${this.orders.length}</h1>`);
  }
}

function nginxConf(folder, port, shop, backend) {
  const proxied = `proxy_http_version 1.1; proxy_set_header Connection "";`;
  const sign = `idem_sign secret_file=${folder}/secrets`;
  return `
load_module ${need('IDEM_HTTP_MODULE')};
${process.getuid() === 0 ? 'user root;' : ''}
daemon off;
worker_processes 1;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log info;
events { worker_connections 512; }
http {
    access_log ${folder}/access.log;
    client_body_temp_path ${folder}/body;
    proxy_temp_path ${folder}/proxy;
    fastcgi_temp_path ${folder}/fastcgi;
    uwsgi_temp_path ${folder}/uwsgi;
    scgi_temp_path ${folder}/scgi;
    types { text/html html; text/javascript js; }
    add_header Content-Security-Policy "default-src 'self'";
    idem_store lmdb:${folder}/store?sync=off;
    idem_scope none;
    server {
        listen 127.0.0.1:${port};
        location / { root ${HERE}/pages; }
        location = /idem.js { alias ${HERE}/../../web/idem.js; }
        location = /idem-sign.js { alias ${HERE}/../../web/idem-sign.js; }
        location /signed/ { ${sign}; proxy_pass http://127.0.0.1:${backend}; ${proxied}
            location /signed/named/ { ${sign} headers=Content-Type,@scheme,@target-uri; proxy_pass http://127.0.0.1:${backend}; }
            location /signed/numbers/ { ${sign} sequence=increasing; proxy_pass http://127.0.0.1:${backend}; }
            location /signed/classic/ { ${sign} form=classic headers=Content-Type; proxy_pass http://127.0.0.1:${backend}; }
            location /signed/classic/host/ { ${sign} form=classic headers=Host; proxy_pass http://127.0.0.1:${backend}; }
            location /signed/digest/ { ${sign} headers=Content-Digest; proxy_pass http://127.0.0.1:${backend}; }
            location = /signed/forms { ${sign} headers=Idempotency-Key; proxy_pass http://127.0.0.1:${backend}; idem replay; idem_prefix m:; }
            location = /signed/orders { ${sign} headers=Idempotency-Key; proxy_pass http://127.0.0.1:${shop}/orders;
                idem replay; idem_prefix s:; idem_scope $idem_sign_key_id; idem_wait 10s; } }
        location /orders { proxy_pass http://127.0.0.1:${shop}; idem replay; idem_prefix o:; idem_wait 10s; }
        location /busy/ { proxy_pass http://127.0.0.1:${shop}/; idem replay; idem_prefix b:; idem_lease 2s; }
        location /token { idem_token; idem_prefix f:; location = /token/brief { idem_token; idem_token_ttl 1s; } }
        location = /form { proxy_pass http://127.0.0.1:${backend}; ${proxied}
            idem replay; idem_prefix f:; idem_wait 10s; idem_key token param=token; }
        location = /fetched { proxy_pass http://127.0.0.1:${backend}; ${proxied}
            idem replay; idem_prefix f:; idem_wait 10s; idem_key token; }
        location = /upload { proxy_pass http://127.0.0.1:${backend}; ${proxied}
            idem_preset submit; idem_prefix u:; idem_scope $remote_addr; }
    }
    server {
        listen 127.0.0.1:${port};
        server_name ${PAGE};
        add_header X-Page shop; # and not the policy from above: the page has its own
        idem replay;
        idem_prefix order:;
        idem_scope $cookie_session$http_x_user;
        idem_wait 10s;
        include ${folder}/page.conf;
        location / { proxy_pass http://127.0.0.1:${shop}; ${proxied} }
    }
}
`;
}

const ended = (child) => new Promise((resolve) =>
  child.exitCode === null && child.signalCode === null ? child.once('exit', resolve) : resolve());

// Who signs: a secret that both ends have, and a pair, of which the gateway has the public key only.
class Signers {
  secret = randomBytes(32);
  pair = generateKeyPairSync('ed25519');

  // `d` the private, `x` the public part; raw.
  raw(part) {
    return Buffer.from(this.pair.privateKey.export({ format: 'jwk' })[part], 'base64url');
  }

  file(alg, part) {
    return `shop-1 hmac-sha256 base64:${this.secret.toString('base64')}\n` +
      `page-1 ${alg} base64:${this.raw(part).toString('base64')}\n`;
  }
}

export class Rig {
  network = new Network();
  backend = new Backend();
  signers = new Signers();
  children = [];

  constructor({ browser = true } = {}) {
    this.wantsBrowser = browser;
  }

  async open() {
    this.makeFolder();
    await this.backend.open();
    await this.openShop();
    await this.openGateway();
    await this.network.open(this.port);
    this.origin = `http://${NAME}:${this.network.port}`;
    this.page = `http://${PAGE}:${this.network.port}`;
    this.secure = `http://localhost:${this.network.port}`; // there browsers have WebCrypto without TLS
    if (this.wantsBrowser) await this.openBrowser();
  }

  async openBrowser() {
    const { chromium } = createRequire(need('IDEM_WEB_MODULES') + '/')('playwright-core');
    this.browser = await chromium.launch({
      executablePath: '/usr/bin/chromium',
      chromiumSandbox: false, // it sees no pages but ours
      args: ['--disable-gpu', `--host-resolver-rules=MAP *${NAME} 127.0.0.1, MAP localhost 127.0.0.1, ` +
        'MAP * ~NOTFOUND'],
      ignoreDefaultArgs: ['--disable-back-forward-cache'],
      timeout: 30000,
    });
  }

  start(name, command, args) {
    const log = fs.openSync(path.join(this.folder, name + '.out'), 'a');
    // It ends with us, however we end.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', command, ...args], { stdio: ['ignore', log, log] });
    fs.closeSync(log);
    this.children.push(child);
    return child;
  }

  // For its owner's eyes only.
  write(name, text) {
    const file = path.join(this.folder, name);
    fs.writeFileSync(file, text, { mode: 0o600 });
    return file;
  }

  said(name) {
    return fs.readFileSync(path.join(this.folder, name), 'utf8');
  }

  async openShop() {
    this.start('shop', need('IDEM_SHOP'), ['0', path.join(this.folder, 'orders.db')]);
    const [, port] = await until('the shop says its port', () => /:(\d+), orders/.exec(this.said('shop.out')));
    this.shop = Number(port);
  }

  makeFolder() {
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'idem-web-'));
    fs.chmodSync(this.folder, 0o755);
  }

  async openGateway() {
    this.port = await freePort();
    const page = fs.readFileSync(path.join(HERE, '../../examples/shop/gateway.conf'), 'utf8');
    fs.writeFileSync(path.join(this.folder, 'page.conf'), page.replaceAll('@SHOP@', `127.0.0.1:${this.shop}`));
    this.write('secrets', this.signers.file('ed25519', 'x'));
    await this.openNginx(nginxConf(this.folder, this.port, this.shop, this.backend.port), '/idem.js');
  }

  // It is there once it answers for a path.
  async openNginx(text, where) {
    const conf = this.write('nginx.conf', text);
    const nginx = this.nginx = this.start('nginx', '/usr/sbin/nginx', ['-p', this.folder, '-c', conf]);
    await until('nginx answers', () => {
      if (nginx.exitCode !== null) throw new Error(this.said('nginx.out'));
      return fetch(`http://127.0.0.1:${this.port}${where}`).then(({ ok }) => ok, () => false);
    });
  }

  // A tab of a new person's, unless it is another one of a person who is there.
  async tab(page, context) {
    const tab = await (context ?? (await this.browser.newContext())).newPage();
    tab.setDefaultTimeout(10000);
    tab.errors = [];
    tab.on('pageerror', (error) => tab.errors.push(String(error)));
    await tab.goto(new URL(page, this.origin).href);
    return tab;
  }

  // What the shop has of an item, asked past the gateway.
  async orders(item) {
    const all = await (await fetch(`http://127.0.0.1:${this.shop}/orders`)).json();
    return all.filter((order) => order.item === item);
  }

  async close() {
    await this.browser?.close();
    this.network.server && this.network.close();
    for (const child of this.children) {
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), 5000);
      await ended(child);
      clearTimeout(late);
    }
    this.backend.server.closeAllConnections();
    this.backend.server.close();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

export async function shut(...tabs) {
  for (const tab of tabs) {
    eq(tab.errors, [], 'errors of the page');
    await tab.context().close();
  }
}

// Mouse clicks of a person in a hurry: what is below the pointer gets them, enabled or not.
export async function hurry(tab, where, times) {
  await tab.locator(where).scrollIntoViewIfNeeded();
  const { x, y } = await tab.locator(where).boundingBox();
  for (let i = 0; i < times; i++) await tab.mouse.click(x + 5, y + 5);
}

// All tests of a file: each fails alone, but a rig that does not start fails them all.
export async function runOn(rig) {
  process.on('SIGTERM', () => rig.close().finally(() => process.exit(1)));
  try {
    await rig.open();
  } catch (error) {
    report(false, 'the_rig_starts', error.stack);
    await rig.close().catch(() => {});
    console.log('1..1');
    process.exit(1);
  }
  await run(async () => {
    const bad = rig.said('error.log').split('\n').filter((line) => /\[(alert|emerg|crit)\]/.test(line));
    report(!bad.length, 'nginx_logs_nothing_bad', bad.join('\n'));
    await rig.close();
  });
}
