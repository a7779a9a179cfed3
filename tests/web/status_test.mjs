// The status page in Chromium, in front of the real gateway. IDEM_SHOTS, if set, is a directory for pictures of it.
import http from 'node:http';
import path from 'node:path';
import { board } from './board.mjs';
import { countFetches, fetches, freePort, listening, need, Rig, runOn, shut, timePasses } from './rig.mjs';
import { check, eq, test, until } from './tap.mjs';

const HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>';

// A backend that responds, hangs, or breaks off in the middle, depending on the path.
class Backend {
  held = [];

  async open() {
    this.server = http.createServer((request, response) => {
      request.resume().on('end', () => {
        if (request.url.includes('hang')) this.held.push(response);
        else if (request.url.includes('cut')) request.socket.destroy();
        else response.end('{}');
      });
    });
    this.port = await listening(this.server);
  }
}

class StatusRig extends Rig {
  backend = new Backend();

  async open() {
    this.makeFolder();
    await this.backend.open();
    this.port = await freePort();
    await this.openNginx(this.conf(), '/status?format=json');
    this.origin = `http://localhost:${this.port}`;
    await this.openBrowser();
  }

  conf() {
    const { folder, port } = this;
    return `
load_module ${need('IDEM_HTTP_MODULE')};
${process.getuid() === 0 ? 'user root;' : ''}
daemon off;
worker_processes 2;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log notice;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path ${folder}/body;
    proxy_temp_path ${folder}/proxy;
    fastcgi_temp_path ${folder}/fastcgi;
    uwsgi_temp_path ${folder}/uwsgi;
    scgi_temp_path ${folder}/scgi;
    idem_store lmdb:${folder}/store?sync=off;
    idem_scope $http_x_user;
    idem_label $http_x_label;
    server {
        listen 127.0.0.1:${port};
        server_name shop.example;
        location = /status { idem_status; }
        location = /admin { idem_admin allow=127.0.0.1; }
        location / { proxy_pass http://127.0.0.1:${this.backend.port}; idem replay; idem_prefix order:; }
        location /payments { proxy_pass http://127.0.0.1:${this.backend.port}; idem_preset payment; idem_prefix payment:; }
    }
}
`;
  }

  async post(where, key, { label = '', body = '{}', user = 'ann' } = {}) {
    const headers = { 'Content-Type': 'application/json', 'X-User': user, 'X-Label': label };
    if (key) headers['Idempotency-Key'] = key;
    return (await fetch(`http://127.0.0.1:${this.port}${where}`, { method: 'POST', headers, body })).status;
  }

  figures = async () => (await fetch(`http://127.0.0.1:${this.port}/status?format=json`)).json();

  // A new worker counts the records.
  async count(condition) {
    process.kill(this.nginx.pid, 'SIGHUP');
    await until('the records are counted', async () => condition((await this.figures()).stores[0].records ?? {}));
  }
}

const rig = new StatusRig();

// figures: the JSON that the page gets instead of the gateway's own.
async function open(where, { figures, ...options } = {}) {
  const context = await rig.browser.newContext(options);
  if (figures) await context.route('**/*?format=json', (asked) => asked.fulfill({ json: figures() }));
  const complaints = [];
  context.on('console', (message) => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()));
  await countFetches(context);
  await context.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => globalThis.violations.push(event.violatedDirective));
  });
  const tab = await rig.tab(where, context);
  tab.loads = 0;
  tab.on('framenavigated', () => (tab.loads += 1));
  await tab.waitForSelector('#live[data-state=live]');
  return Object.assign(tab, { complaints });
}

async function over(tab) {
  eq(tab.complaints, [], 'what the browser complains of');
  eq(await tab.evaluate(() => globalThis.violations), [], 'what the policy has refused');
  await shut(tab);
}

const shot = async (tab, name) => {
  if (process.env.IDEM_SHOTS) await tab.screenshot({ path: path.join(process.env.IDEM_SHOTS, `${name}.png`), fullPage: name.includes('-') });
};
const tile = (tab, name) => tab.locator('#tiles li', { hasText: name }).locator('b').textContent();
const route = (tab, name) => tab.locator('#routes tbody tr', { hasText: name }).locator('td').allTextContents();

test(async function a_gateway_with_nothing_to_tell_says_that_all_is_well() {
  const tab = await open('/status');
  await until('all is well', async () => (await tab.textContent('#headline h2')) === 'All well');
  eq(await tile(tab, 'uncertain'), '0', 'uncertain records');
  eq(await tab.locator('#why p').textContent(), 'Nothing was refused.');
  await over(tab);
});

test(async function what_happens_is_shown_without_a_reload() {
  const tab = await open('/status');
  eq(await route(tab, '/payments'), ['shop.example /payments', 'payment:', '0', '0', '0', '–']);
  eq(await rig.post('/payments', 'p1'), 200);
  eq(await rig.post('/payments', 'p1'), 200);
  eq(await rig.post('/payments', 'p1', { body: '{"other":1}' }), 422);
  eq(await rig.post('/payments'), 400);
  await until('it is shown', async () => (await route(tab, '/payments'))[4] === '2');
  eq(await route(tab, '/payments'), ['shop.example /payments', 'payment:', '1', '1', '2', '–']);
  eq((await tab.locator('#why tbody tr td:first-child').allTextContents()).sort(), ['Key used for another request', 'No key']);
  eq(await tab.locator('#refusals tbody tr').count(), 2, 'refusals');
  eq(tab.loads, 0, 'loads of the page since it was opened');
  await over(tab);
});

test(async function hostile_text_is_shown_as_text() {
  const tab = await open('/status');
  eq(await rig.post('/hostile', 'h1', { label: HOSTILE }), 200);
  eq(await rig.post('/hostile', 'h1', { label: HOSTILE, body: '[]' }), 422);
  await until('it is shown', async () => (await tab.locator('#refusals').textContent()).includes(HOSTILE));
  eq(await tab.locator('#refusals img, #refusals script').count(), 0, 'elements made of a label');
  check((await tab.title()).includes('Idem'), 'the title is the page’s own');
  await over(tab);
});

// Headers are bytes: the label is UTF-8. The page must not show characters that reorder it, or that are invisible.
test(async function what_nobody_sees_in_a_label_is_shown_as_its_code() {
  const tab = await open('/status');
  const label = Buffer.from('order \u202e7\u200b\u{e0041}').toString('latin1');
  eq(await rig.post('/unseen', 'u1', { label }), 200);
  eq(await rig.post('/unseen', 'u1', { label, body: '[]' }), 422);
  await until('it is shown', async () => (await tab.locator('#refusals').textContent()).includes('order \\u{202e}7\\u{200b}\\u{e0041}'));
  eq(await tab.evaluate(() => /[\p{Cf}\p{Zl}\p{Zp}]/u.test(document.body.innerText + document.title)), false, 'something unseen is left');
  await over(tab);
});

test(async function a_hash_is_copied_whole() {
  const tab = await open('/status', { permissions: ['clipboard-read', 'clipboard-write'] });
  const first = tab.locator('#refusals button.copy').first();
  await first.click();
  const text = await tab.evaluate(() => navigator.clipboard.readText());
  check(/^[0-9a-f]{64}$/.test(text) && text === (await first.getAttribute('title')), `copied: ${text}`);
  await over(tab);
});

test(async function runs_that_vanished_are_told_first_and_by_their_label() {
  for (let i = 0; i < 3; i++) eq(await rig.post('/payments/cut', `cut${i}`, { label: `invoice ${4710 + i}` }), 504 - 2);
  rig.post('/payments/hang', 'hang1', { label: 'invoice 4800' }).catch(() => {});
  await until('it hangs', () => rig.backend.held.length === 1);
  await rig.count(({ uncertain, running }) => uncertain === 3 && running === 1);
  const tab = await open('/status');
  await until('they are told', async () => (await tab.textContent('#headline h2')) ===
    '3 runs vanished: nobody knows what came of them');
  check((await tab.textContent('#uncertain')).includes('invoice 4711'), 'the label is shown');
  check((await tab.textContent('#running')).includes('invoice 4800'), 'what runs is shown');
  eq(await tile(tab, 'in flight'), '1', 'in flight');
  eq(await tab.locator('#uncertain button:not(.copy)').count(), 0, 'actions, where nobody may act');
  await over(tab);
});

const row = (tab, list, label) => tab.locator(`#${list} tbody tr`, { hasText: label });
const audit = (hash) => rig.said('error.log').split('\n').filter((line) => line.includes('idem: audit') && line.includes(hash));

test(async function an_operator_settles_a_run_that_vanished() {
  const tab = await open('/admin');
  const found = row(tab, 'uncertain', 'invoice 4711');
  const hash = await found.locator('.copy').getAttribute('title');
  await found.getByRole('button', { name: 'Settle…' }).click();
  await tab.locator('#record', { hasText: 'its run vanished' }).waitFor();
  check(await tab.locator('#do').isDisabled(), 'nothing is chosen for him');
  await tab.getByLabel('It happened').check();
  await tab.locator('#status').fill('201');
  await tab.locator('#reason').fill('seen on the <bank> statement');
  await shot(tab, 'settle');
  await tab.getByRole('button', { name: 'Settle as done' }).click();
  await tab.locator('#said', { hasText: 'Settled as done.' }).waitFor();
  await tab.keyboard.press('Escape');
  eq(await row(tab, 'uncertain', 'invoice 4711').count(), 0, 'rows of what was settled');
  eq(await rig.post('/payments/cut', 'cut1'), 409);
  const lines = audit(hash);
  eq(lines.length, 3, 'lines in the log: it was looked at, begun and done');
  check(lines[1].includes('"action":"settle","result":"begun"'), lines[1]);
  check(lines[2].includes('"action":"settle","result":"done"') && lines[2].includes('"before":"uncertain","attempt":1,"after":"done","status":201') &&
    lines[2].includes('"reason":"seen on the <bank> statement"'), lines[2]);
  await over(tab);
});

test(async function an_operator_forgets_one_on_a_phone_and_says_that_he_knows_what_it_means() {
  const tab = await open('/admin', { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
  await row(tab, 'uncertain', 'invoice 4712').getByRole('button', { name: 'Inspect' }).click();
  await tab.locator('#record', { hasText: 'its run vanished' }).waitFor();
  check(await tab.locator('#do').isHidden(), 'to look changes nothing');
  await tab.locator('#act').getByRole('button', { name: 'Forget…' }).click();
  check(await tab.locator('#do').isDisabled(), 'he must say so first');
  await tab.getByLabel('can then run again').check();
  await shot(tab, 'forget');
  await tab.getByRole('button', { name: 'Forget it' }).click();
  await tab.locator('#said', { hasText: 'Forgotten.' }).waitFor();
  await tab.locator('#close').click();
  eq(await rig.post('/payments/cut', 'cut2'), 502); // it ran again
  await over(tab);
});

test(async function what_runs_now_is_only_taken_by_force() {
  const tab = await open('/admin');
  await row(tab, 'running', 'invoice 4800').getByRole('button', { name: 'Settle…' }).click();
  await tab.locator('#live-lease').waitFor();
  await tab.getByLabel('It did not happen').check();
  check(await tab.locator('#do').isDisabled(), 'not without force');
  await tab.getByLabel('Take it from who is running it').check();
  await tab.getByRole('button', { name: 'Settle as failed' }).click();
  await tab.locator('#said', { hasText: 'Settled as failed.' }).waitFor();
  await over(tab);
});

test(async function a_server_that_is_away_is_told_so_and_nobody_asks_while_nobody_looks() {
  const tab = await open('/status');
  await tab.context().setOffline(true);
  await tab.locator('#live[data-state=away]', { hasText: 'what you see is old' }).waitFor();
  await tab.context().setOffline(false);
  await tab.locator('#live[data-state=live]').waitFor();
  tab.complaints.length = 0; // complaints about the network
  const asked = () => fetches(tab, '');
  const look = (hidden) => tab.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { value, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await look(true);
  const before = await asked();
  await timePasses(tab, 2300); // sleep: the page asks every second or two; only time shows that no requests come
  eq(await asked(), before, 'requests while nobody looks');
  await look(false);
  await until('it asks again', async () => (await asked()) > before);
  await over(tab);
});

// Pictures are for people; the check that nothing sticks out always runs.
const LOOKS = {
  operator: { figures: () => board({ admin: '0'.repeat(64) }), says: /^23 runs vanished/ },
  well: { figures: () => board({ uncertain: 0 }), says: /^All well|^The store was away/ },
  away: { figures: () => board({ away: true }), says: /^The store redis:.* does not answer/ },
  queue: { figures: () => board({ door: 'queue', uncertain: 1 }), says: /^1 run vanished/ },
};
const SCREENS = [[360, 'dark', true], [1280, 'light', false], ...(process.env.IDEM_SHOTS ? [[360, 'light', true], [1280, 'dark', false]] : [])];
for (const [name, { figures, says }] of Object.entries(LOOKS)) {
  const sentence = `it_fits_a_phone_and_a_desk_in_light_and_dark_${name}`;
  test({ async [sentence]() {
    const seen = [];
    for (const [width, colorScheme, mobile] of SCREENS) {
      const tab = await open('/status', { figures, viewport: { width, height: 800 }, colorScheme, isMobile: mobile, hasTouch: mobile });
      check(says.test(await tab.textContent('#headline h2')), await tab.textContent('#headline h2'));
      eq(await tab.evaluate(() => document.documentElement.scrollWidth), width, 'how wide the page is');
      check(await tab.locator('#flow .ran').evaluate((path) => path.getAttribute('d').length > 1000), 'the chart is drawn');
      const lines = await tab.locator('#time .line').evaluateAll((paths) => paths.map((path) => path.getAttribute('d')));
      check(new Set(lines).size === 3 && lines.every((d) => d.length > 1000), 'half, 95 % and 99 % are three lines');
      seen.push(await tab.evaluate(() => getComputedStyle(document.body).backgroundColor));
      await shot(tab, `${name}-${width}-${colorScheme}`);
      await over(tab);
    }
    check(seen[0] !== seen[1], `light and dark differ: ${seen}`);
  } }[sentence]);
}

runOn(rig);
