// Chromium, a network that the test can cut, and behind it the real gateway, which issues the tokens and verifies
// signatures, in front of the shop (with its page, as `make run` serves it) and of a small backend for forms; all in a
// temporary directory, on free ports of loopback. The rig ends each process that it started by its pid.
// From the environment:
//   IDEM_HTTP_MODULE, IDEM_SHOP   the module and the shop
//   IDEM_WEB_MODULES              the directory with node_modules
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
const NAME = 'shop.test'; // not localhost: an insecure origin, like a page on a bare IP address
const PAGE = 'page.shop.test'; // the shop's own page
export const need = (name) => {
  if (!process.env[name]) throw new Error(`${name} is not set`);
  return path.resolve(process.env[name]);
};

export const listening = (server) => new Promise((resolve) =>
  server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

const listens = (...where) => new Promise((resolve) => {
  const server = net.createServer().once('error', () => resolve(undefined));
  server.listen(...where, () => resolve(server));
});

// A port on which nothing listens, and which no other test gets while this process lives: tests/port.c
// explains the scheme.
export async function freePort() {
  for (;;) {
    const port = 10000 + Math.floor(Math.random() * 10000);
    const reserved = await listens(`\0idem-test-port-${port}`);
    const probe = reserved && (await listens(port, '127.0.0.1'));
    reserved?.unref();
    if (probe) {
      await new Promise((resolve) => probe.close(resolve));
      return port;
    }
    reserved?.close();
  }
}

// The network in front of the gateway. cuts: how many more responses to a POST are lost; the request gets through.
class Network {
  cuts = 0;
  posts = 0;
  tokens = 0; // the number of requests for a token
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
        far.end(); // the bytes so far arrive
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

// A backend for forms: each form that reaches it is one order.
class Backend {
  orders = [];
  answer = undefined; // the response that replaces one order
  holds = false; // orders wait until release()
  held = [];

  async open() {
    this.server = http.createServer((request, response) => {
      let body = '';
      request.on('data', (chunk) => (body += chunk));
      request.on('end', () => {
        const serve = () => this.serve(request, response, body);
        if (this.holds && request.method === 'POST') this.held.push(serve);
        else serve();
      });
    });
    this.port = await listening(this.server);
  }

  release() {
    this.holds = false;
    for (const serve of this.held.splice(0)) serve();
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
                idem replay; idem_prefix s:; idem_scope $idem_sign_key_id; idem_wait 1h; } }
        location /orders { proxy_pass http://127.0.0.1:${shop}; idem replay; idem_prefix o:; idem_wait 1h; }
        location /busy/ { proxy_pass http://127.0.0.1:${shop}/; idem replay; idem_prefix b:; idem_lease 50s; }
        location /token { idem_token; idem_prefix f:; location = /token/brief { idem_token; idem_token_ttl 1s; } }
        location = /form { proxy_pass http://127.0.0.1:${backend}; ${proxied}
            idem replay; idem_prefix f:; idem_wait 1h; idem_key token param=token; }
        location = /fetched { proxy_pass http://127.0.0.1:${backend}; ${proxied}
            idem replay; idem_prefix f:; idem_wait 1h; idem_key token; }
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
        idem_wait 1h;
        include ${folder}/page.conf;
        location / { proxy_pass http://127.0.0.1:${shop}; ${proxied} }
    }
}
`;
}

const ended = (child) => new Promise((resolve) =>
  child.exitCode === null && child.signalCode === null ? child.once('exit', resolve) : resolve());

// The signers: a secret that both ends have, and a key pair, of which the gateway has only the public key.
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

  // The headless shell: the same engine for half the CPU time, but without a back/forward cache.
  async openBrowser() {
    this.browser = await this.launch('/usr/bin/chromium-headless-shell');
  }

  // Chromium with its user interface and a back/forward cache, with an empty profile.
  async contextWithCache() {
    this.wholeBrowser ??= await this.launch('/usr/bin/chromium');
    const context = await this.wholeBrowser.newContext();
    await this.stopClock(context);
    return context;
  }

  launch(executablePath) {
    const { chromium } = createRequire(need('IDEM_WEB_MODULES') + '/')('playwright-core');
    return chromium.launch({
      executablePath,
      chromiumSandbox: false, // it loads only pages of these tests
      args: ['--disable-gpu', `--host-resolver-rules=MAP *${NAME} 127.0.0.1, MAP localhost 127.0.0.1, ` +
        'MAP * ~NOTFOUND'],
      ignoreDefaultArgs: ['--disable-back-forward-cache'],
      timeout: 120000,
    });
  }

  start(name, command, args) {
    const log = fs.openSync(path.join(this.folder, name + '.out'), 'a');
    // The child ends with this process, however it ends.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', command, ...args], { stdio: ['ignore', log, log] });
    fs.closeSync(log);
    this.children.push(child);
    return child;
  }

  // Only the owner may read the file.
  write(name, text) {
    const file = path.join(this.folder, name);
    fs.writeFileSync(file, text, { mode: 0o600 });
    return file;
  }

  said(name) {
    return fs.readFileSync(path.join(this.folder, name), 'utf8');
  }

  async openShop() {
    this.shopProcess = this.start('shop', need('IDEM_SHOP'), ['0', path.join(this.folder, 'orders.db')]);
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

  // The gateway is up once it responds.
  async openNginx(text, where) {
    const conf = this.write('nginx.conf', text);
    const nginx = this.nginx = this.start('nginx', '/usr/sbin/nginx', ['-p', this.folder, '-c', conf]);
    await until('nginx answers', () => {
      if (nginx.exitCode !== null) throw new Error(this.said('nginx.out'));
      return fetch(`http://127.0.0.1:${this.port}${where}`).then(({ ok }) => ok, () => false);
    });
  }

  // The shop takes no orders meanwhile. setpriv(1) has become the shop, so the pid is right.
  async whileShopStops(work) {
    this.shopProcess.kill('SIGSTOP');
    try {
      await work();
    } finally {
      this.shopProcess.kill('SIGCONT');
    }
  }

  // True if the gateway has claimed a request and sent it to the shop, which is stopped and has not read it.
  async untilShopHasOne() {
    const port = ':' + this.shop.toString(16).toUpperCase().padStart(4, '0');
    await until('the shop has a request', () => fs.readFileSync('/proc/net/tcp', 'latin1').split('\n').some((line) => {
      // 01: connected; for a listening socket the numbers count connections. Then bytes to send, and to read.
      const [, local, , state, queues] = line.trim().split(/ +/);
      return local?.endsWith(port) && state === '01' && !queues.endsWith(':00000000');
    }));
  }

  // A page's time of day stands still until later(), because the time of a click decides about its meaning. On pages
  // that sign it runs, because the gateway compares the timestamp with its own time.
  async stopClock(context) {
    await context.addInitScript(([began, signs]) => {
      const real = Date.now;
      Date.now = () => {
        const now = location.hostname === signs ? real() : began;
        try {
          return now + Number(sessionStorage.getItem('clock of the test') ?? 0);
        } catch {
          return now; // a document without storage
        }
      };
    }, [Date.now(), this.secure && new URL(this.secure).hostname]);
  }

  // Opens a tab of a new person, or with `context` another tab of the same one.
  async tab(page, context) {
    if (!context) await this.stopClock((context = await this.browser.newContext()));
    const tab = await context.newPage();
    tab.setDefaultTimeout(120000);
    tab.errors = [];
    tab.on('pageerror', (error) => tab.errors.push(String(error)));
    await tab.goto(new URL(page, this.origin).href);
    return tab;
  }

  // The shop's orders of an item, read without the gateway.
  async orders(item) {
    const all = await (await fetch(`http://127.0.0.1:${this.shop}/orders`)).json();
    return all.filter((order) => order.item === item);
  }

  async close() {
    await this.browser?.close();
    await this.wholeBrowser?.close();
    this.network.server && this.network.close();
    for (const child of this.children) {
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), 60000); // sleep: no test waits for this limit
      await ended(child);
      clearTimeout(late);
    }
    this.backend.server.closeAllConnections();
    this.backend.server.close();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

export const later = (tab, ms) => tab.evaluate((more) => sessionStorage.setItem('clock of the test',
  Number(sessionStorage.getItem('clock of the test') ?? 0) + more), ms);

// Counts the requests of a page inside the page, from its beginning, because Playwright's events come late.
export const countFetches = (context) => context.addInitScript(() => {
  const real = window.fetch.bind(window);
  window.fetched = [];
  window.fetch = (what, ...rest) => {
    window.fetched.push(String(what.url ?? what));
    return real(what, ...rest);
  };
});
export const fetches = (tab, end) => tab.evaluate((last) => window.fetched.filter((url) => url.endsWith(last)).length, end);
// sleep: by the page's own timer, after its timers that are due before; the caller gives the reason
export const timePasses = (tab, ms) => tab.evaluate((time) => new Promise((resolve) => setTimeout(resolve, time)), ms);

export async function shut(...tabs) {
  for (const tab of tabs) {
    eq(tab.errors, [], 'errors of the page');
    await tab.context().close();
  }
}

// Mouse clicks in a hurry: the element below the pointer gets them, enabled or not.
export async function hurry(tab, where, times) {
  await tab.locator(where).scrollIntoViewIfNeeded();
  const { x, y } = await tab.locator(where).boundingBox();
  for (let i = 0; i < times; i++) await tab.mouse.click(x + 5, y + 5);
}

// Runs all tests of a file: each fails alone, but if the rig does not start, all fail.
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
