// The shop's page in Chromium, served as by `make run`. IDEM_SHOTS, if set, is a directory for pictures of it.
import http from 'node:http';
import path from 'node:path';
import { countFetches, fetches, hurry, later, Rig, runOn, shut, timePasses } from './rig.mjs';
import { check, eq, test, until } from './tap.mjs';

const rig = new Rig();

// random: the value of the page's Math.random; 0 is a network that loses as many responses as it may.
async function open({ random, path: where = '/', ...options } = {}) {
  const context = await rig.browser.newContext(options);
  await rig.stopClock(context);
  await countFetches(context);
  await context.addInitScript(() => { // a new row is marked for 6 s, and a busy machine may check later
    const real = window.setTimeout.bind(window);
    window.setTimeout = (work, ms, ...rest) => (ms === 6000 ? 0 : real(work, ms, ...rest));
  });
  if (random !== undefined) await context.addInitScript((value) => (Math.random = () => value), random);
  const complaints = [];
  context.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  const tab = await rig.tab(rig.page + where, context);
  if (options.javaScriptEnabled !== false) await tab.waitForSelector('html[data-ready]');
  return Object.assign(tab, { complaints, before: await all() });
}

const all = async () => (await (await fetch(`http://127.0.0.1:${rig.shop}/orders`)).json()).length;
const made = async (tab) => (await all()) - tab.before;
const number = async (tab, id) => Number(await tab.textContent('#' + id));
const counts = async (tab) => Promise.all(['clicks', 'requests', 'replays', 'orders'].map((id) => number(tab, id)));
const placed = (tab) => until('it is placed', async () =>
  /^Order (\d+) is placed/.exec(await tab.textContent('#status')));

// waitForURL fails if a click has ended the navigation of an earlier click.
async function arrived(tab, where) {
  await until('it has arrived', () => new URL(tab.url()).pathname === where);
  await tab.waitForSelector('.answer h1');
}

// Without the browser, like a program that uses the gateway.
const ask = (method, where, headers = {}, body = '') => new Promise((resolve, reject) => {
  const { host, port } = new URL(rig.page);
  http.request({ host: '127.0.0.1', port, method, path: where, agent: false, headers: {
    Host: host, 'Content-Type': 'application/x-www-form-urlencoded', 'Content-Length': body.length, ...headers,
  } }, async (response) => {
    let text = '';
    for await (const chunk of response) text += chunk;
    resolve({ status: response.statusCode, headers: response.headers, text });
  }).on('error', reject).end(body);
});
const token = async (headers) => JSON.parse((await ask('GET', '/token', headers)).text).token;

test(async function thirty_fast_clicks_on_buy_are_one_order() {
  const tab = await open();
  await hurry(tab, '#buy', 30);
  await until('every click is answered', async () => (await tab.locator('#log .made, #log .again').count()) === 30);
  await placed(tab);
  eq(await made(tab), 1, 'the number of orders');
  await until('the ledger has it', async () => (await number(tab, 'orders')) === 1);
  eq(await counts(tab), [30, 30, 29, 1], 'clicks, requests, replays, orders');
  eq(await tab.locator('#ledger .new').count(), 1, 'rows that are marked');
  eq(tab.complaints, [], 'what the browser complains of');
  await shut(tab);
});

test(async function on_a_bad_network_a_purchase_is_one_order() {
  const tab = await open({ random: 0 });
  await tab.check('#bad');
  await tab.click('#buy');
  await placed(tab);
  eq(await made(tab), 1, 'the number of orders');
  eq(await tab.locator('#log .lost').count(), 2, 'answers that were lost');
  eq((await counts(tab)).slice(0, 3), [1, 3, 1], 'clicks, requests, replays');
  await shut(tab);
});

test(async function on_a_bad_network_each_purchase_is_an_order_and_not_each_click() {
  const tab = await open();
  await tab.check('#bad');
  for (let purchase = 1; purchase <= 2; purchase++) {
    await hurry(tab, '#buy', 4);
    await until('every click is answered', async () =>
      (await tab.locator('#log .made, #log .again').count()) === 4 * purchase);
    await later(tab, 1300);
  }
  eq(await made(tab), 2, 'the number of orders');
  await until('the ledger has both', async () => (await number(tab, 'orders')) === 2);
  await shut(tab);
});

test(async function a_reload_on_a_bad_network_is_no_second_order() {
  const tab = await open({ random: 0 });
  await tab.check('#bad');
  await tab.click('#buy');
  await until('one is lost', () => tab.locator('#log .lost').count());
  await tab.reload();
  await tab.waitForSelector('html[data-ready]');
  await tab.uncheck('#bad');
  await tab.click('#buy');
  await placed(tab);
  eq(await made(tab), 1, 'the number of orders');
  eq((await counts(tab))[0], 2, 'clicks, with those before the reload');
  await shut(tab);
});

for (const javaScriptEnabled of [true, false]) {
  const sentence = `thirty_clicks_on_the_form_${javaScriptEnabled ? '' : 'without_javascript_'}end_on_the_one_orders_page`;
  test({ async [sentence]() {
    const tab = await open({ javaScriptEnabled });
    const item = 'pen-' + javaScriptEnabled;
    await tab.fill('#form [name=item]', item);
    await hurry(tab, '#form button', 30);
    await arrived(tab, '/form/orders');
    const orders = await rig.orders(item);
    eq(orders.length, 1, 'the number of orders');
    eq(await tab.textContent('h1'), `Order ${orders[0].id} is placed`);
    await tab.reload(); // this sends the form again
    eq(await tab.textContent('h1'), `Order ${orders[0].id} is placed`);
    eq((await rig.orders(item)).length, 1, 'the number of orders after a reload');
    await tab.click('text=Back to the shop');
    await tab.waitForURL(rig.page + '/');
    eq(tab.complaints, [], 'what the browser complains of');
    await shut(tab);
  } }[sentence]);
}

// A page with a token in a hidden field, for the person in this tab or for another one.
async function openHidden(tab, item, issued = undefined) {
  const [{ name, value }] = await tab.context().cookies();
  issued ??= await token({ Cookie: `${name}=${value}` });
  await tab.route('**/hidden', (route) => route.fulfill({ contentType: 'text/html', body:
    `<form method="post" action="/token/orders?sleep=1"><input name="item" value="${item}"><input name="amount" value="5">
     <input type="hidden" name="token" value="${issued}"><button>Order</button></form>` }));
  await tab.goto(rig.page + '/hidden');
  return issued;
}

test(async function a_form_with_a_token_in_a_hidden_field_needs_no_javascript() {
  const tab = await open({ javaScriptEnabled: false });
  await openHidden(tab, 'ink');
  await hurry(tab, 'button', 10);
  await arrived(tab, '/token/orders');
  const orders = await rig.orders('ink');
  eq(orders.length, 1, 'the number of orders');
  eq(await tab.textContent('h1'), `Order ${orders[0].id} is placed`);
  await shut(tab);
});

test(async function a_form_that_was_refused_is_corrected_and_sent_with_the_same_token() {
  const tab = await open({ javaScriptEnabled: false });
  await openHidden(tab, 'nib');
  await tab.fill('[name=amount]', 'five');
  await tab.click('button');
  await arrived(tab, '/token/orders');
  eq(await tab.textContent('h1'), 'Not ordered');
  await tab.goBack({ waitUntil: 'commit' });
  await tab.fill('[name=amount]', '5');
  await tab.click('button');
  await until('it is placed', async () => /^Order \d+ is placed/.test(await tab.textContent('h1').catch(() => '')));
  eq((await rig.orders('nib')).map(({ amount }) => amount), [5]);
  await shut(tab);
});

test(async function a_token_that_is_used_in_two_tabs_is_one_order_and_anothers_is_refused() {
  const first = await open({ javaScriptEnabled: false });
  const second = await rig.tab(rig.page, first.context());
  const thief = await open({ javaScriptEnabled: false });
  const issued = await openHidden(first, 'stamp');
  await openHidden(second, 'stamp', issued);
  await openHidden(thief, 'stamp', issued);
  await Promise.all([first.click('button'), second.click('button')]);
  for (const tab of [first, second]) await arrived(tab, '/token/orders');
  const orders = await rig.orders('stamp');
  eq(orders.length, 1, 'the number of orders');
  for (const tab of [first, second]) eq(await tab.textContent('h1'), `Order ${orders[0].id} is placed`);
  await thief.click('button');
  await thief.waitForSelector('h1');
  eq([await thief.title(), (await rig.orders('stamp')).length], ['This token is not valid', 1]);
  await shut(first, thief);
});

test(async function the_plain_form_in_two_tabs_is_one_order() {
  const first = await open();
  const second = await rig.tab(rig.page, first.context());
  for (const tab of [first, second]) await tab.fill('#form [name=item]', 'tape');
  await Promise.all([first.click('#form button'), second.click('#form button')]);
  for (const tab of [first, second]) await arrived(tab, '/form/orders');
  eq((await rig.orders('tape')).length, 1, 'the number of orders');
  eq(await first.textContent('h1'), await second.textContent('h1'), 'the page of the second tab');
  await shut(first);
});

const TOKEN_BUTTON = '#token-form button';
const tokenStatus = (tab) => tab.textContent('#token-status');

test(async function the_form_with_a_token_is_locked_while_it_is_sent_and_thirty_clicks_are_one_order() {
  const tab = await open();
  await until('a token', () => tab.inputValue('#token-form [name=token]'));
  await tab.fill('#token-form [name=item]', 'wax');
  await rig.whileShopStops(async () => {
    await hurry(tab, TOKEN_BUTTON, 30);
    await tab.waitForSelector(TOKEN_BUTTON + ':disabled'); // a timer disables it, and the browser runs that after the clicks
    eq(await tokenStatus(tab), 'Sending…', 'while it is sent');
  });
  await tab.waitForSelector(TOKEN_BUTTON + ':enabled');
  const [{ id }] = await rig.orders('wax');
  await until('it is told', async () => (await tokenStatus(tab)).startsWith(`Order ${id} is placed: 1 click`));
  await later(tab, 1200);
  await tab.click(TOKEN_BUTTON); // another token
  await until('it is ordered again', async () => (await rig.orders('wax')).length === 2);
  await until('both are told', async () => (await tokenStatus(tab)).startsWith(`Order ${id + 1} is placed`));
  eq((await counts(tab)).slice(0, 3), [2, 2, 0], 'clicks, requests, replays');
  eq(tab.complaints, [], 'what the browser complains of');
  await shut(tab);
});

test(async function on_a_bad_network_the_form_with_a_token_is_one_order() {
  const tab = await open({ random: 0 });
  await tab.check('#bad');
  await tab.fill('#token-form [name=item]', 'seal');
  await tab.click(TOKEN_BUTTON);
  await until('it is being asked for again', async () => /same token/.test(await tokenStatus(tab)));
  await until('it is placed', async () => /^Order \d+ is placed: 1 click, 3 requests, 1 replay/.test(await tokenStatus(tab)));
  eq((await rig.orders('seal')).length, 1, 'the number of orders');
  eq(await tab.locator('#log .lost').count(), 2, 'answers that were lost');
  await shut(tab);
});

test(async function the_form_with_a_token_can_be_sent_again_after_an_error() {
  const tab = await open();
  await tab.fill('#token-form [name=item]', 'glue');
  await tab.route('**/token/orders*', (route) => route.fulfill({ status: 500, body: 'no' }));
  await tab.click(TOKEN_BUTTON);
  await until('it is told', async () => /Try again/.test(await tokenStatus(tab)));
  await tab.unroute('**/token/orders*');
  await tab.click(TOKEN_BUTTON);
  await until('it is placed', async () => /^Order \d+ is placed/.test(await tokenStatus(tab)));
  eq((await rig.orders('glue')).length, 1, 'the number of orders');
  await shut(tab);
});

test(async function without_javascript_the_form_with_a_token_says_what_it_needs() {
  const tab = await open({ javaScriptEnabled: false });
  check(await tab.isDisabled(TOKEN_BUTTON), 'it can be sent');
  // Playwright's browser does not run scripts, but does not show a noscript element either.
  check(/fetches its token by JavaScript/.test(await tab.textContent('#token-form noscript')), 'it does not say why');
  await shut(tab);
});

test(async function a_token_that_is_used_twice_is_one_order() {
  const ann = { 'X-User': 'ann' }, body = `item=chalk&amount=1&token=${await token(ann)}`;
  const [one, two] = await Promise.all([1, 2].map(() => ask('POST', '/token/orders', ann, body)));
  eq([one.status, two.status, one.text === two.text], [201, 201, true]);
  eq((await rig.orders('chalk')).length, 1, 'the number of orders');
  const other = await ask('POST', '/token/orders', { 'X-User': 'bob' }, body);
  eq([other.status, /token-refused/.test(other.text)], [403, true], "somebody else's token");
});

test(async function a_visitor_gets_a_session_once_that_scripts_cannot_read() {
  const tab = await open();
  const first = await tab.context().cookies();
  eq(first.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]), [['session', true, 'Lax']]);
  check(/^[0-9a-f]{32}$/.test(first[0].value), first[0].value);
  await tab.reload();
  eq((await tab.context().cookies())[0].value, first[0].value, 'the session after a reload');
  const { headers } = await ask('GET', '/', { Cookie: 'my_session=1' });
  check(headers['set-cookie'], 'a cookie of another name was taken for a session');
  eq((await ask('POST', '/form/orders', {}, 'item=glue&amount=1')).status, 400, 'without one');
  await shut(tab);
});

test(async function what_a_person_wrote_is_shown_and_not_run() {
  const tab = await open();
  await tab.fill('#form [name=item]', '<img src=x onerror=alert(1)>&"');
  await tab.click('#form button');
  await arrived(tab, '/form/orders');
  check((await tab.textContent('p')).includes('<img src=x onerror=alert(1)>&"'), await tab.content());
  eq(await tab.locator('img').count(), 0, 'images');
  await tab.goto(rig.page);
  await tab.waitForSelector('html[data-ready]');
  check((await tab.textContent('#ledger')).includes('<img src=x'), 'the ledger has it');
  eq(await tab.locator('img').count(), 0, 'images in the ledger');
  eq(tab.complaints, [], 'what the browser complains of');
  await shut(tab);
});

test(async function a_form_that_is_wrong_is_refused_with_a_page() {
  const ann = { 'X-User': 'ann' };
  for (const body of ['item=ink', 'item=&amount=1', 'item=ink&amount=x', 'item=%zz&amount=1', 'item=%00&amount=1',
    `item=${'x'.repeat(300)}&amount=1`]) {
    const { status, headers, text } = await ask('POST', '/form/orders', ann, body);
    eq([status, headers['content-type'], /Not ordered/.test(text)], [400, 'text/html; charset=utf-8', true], body);
  }
});

test(async function the_keyboard_and_a_screen_reader_are_enough() {
  const tab = await open();
  await tab.keyboard.press('Tab');
  check(await tab.getByRole('button', { name: 'Buy' }).evaluate((e) => e === document.activeElement), 'Buy is not first');
  await tab.keyboard.press('Enter');
  await placed(tab);
  await tab.keyboard.press('Tab');
  await tab.keyboard.press('Space');
  check(await tab.getByRole('switch', { name: 'Bad network' }).isChecked(), 'the switch is off');
  check(/^Order \d+ is placed/.test(await tab.getByRole('status').first().textContent()), 'the status says nothing');
  for (const name of ["The shop's ledger", 'What your clicks did', 'A plain form', 'A form with a token'])
    eq(await tab.getByRole('heading', { name }).count(), 1, name);
  for (const name of ['Item', 'Amount']) eq(await tab.getByLabel(name, { exact: true }).count(), 2, name);
  await shut(tab);
});

test(async function the_keyboard_goes_from_one_thing_to_the_next_and_back_to_the_button_it_pressed() {
  const tab = await open();
  const focus = () => tab.evaluate(() => {
    const { id, name, type, form } = document.activeElement;
    return (form?.id ?? '') + '/' + (id || name || type || document.activeElement.className);
  });
  const seen = [];
  for (let i = 0; i < 10; i++) {
    await tab.keyboard.press('Tab');
    seen.push(await focus());
  }
  eq(seen, ['/buy', '/bad', '/scroll', '/reset', 'form/item', 'form/amount', 'form/submit', 'token-form/item',
    'token-form/amount', 'token-form/submit']);
  check(await tab.evaluate(() => getComputedStyle(document.activeElement).outlineStyle) === 'solid', 'it is not seen where one is');
  await tab.keyboard.press('Enter');
  await until('it is told', async () => /^Order \d+ is placed/.test(await tokenStatus(tab)));
  eq(await focus(), 'token-form/submit', 'where the focus is after the answer');
  await shut(tab);
});

test(async function the_ledger_is_not_read_while_nobody_looks() {
  const tab = await open();
  const reads = () => fetches(tab, '/orders');
  const look = (hidden) => tab.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { value, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await until('it is read', reads);
  await look(true);
  await timePasses(tab, 1200); // sleep: a read that was due comes within this time, if at all
  const before = await reads();
  await timePasses(tab, 1200); // sleep: longer than the interval; only time shows that no reads come
  eq(await reads(), before, 'the number of reads');
  await look(false);
  await until('it is read again', async () => (await reads()) > before + 1);
  await shut(tab);
});

test(async function at_the_shop_itself_the_page_says_that_nothing_guards_it() {
  const tab = await rig.tab(rig.page.replace(/\d+$/, rig.shop) + '/');
  await tab.waitForSelector('html[data-ready]');
  check(/nothing guards it/.test(await tab.textContent('#status')), 'it does not say so');
  check(await tab.isDisabled('#buy'), 'Buy can be clicked');
  await shut(tab);
});

const SHOTS = process.env.IDEM_SHOTS;
for (const [name, width, height] of [['phone', 375, 740], ['desk', 1280, 900]]) {
  const sentence = `nothing_is_cut_off_on_a_${name}`;
  test({ async [sentence]() {
    for (const colorScheme of ['light', 'dark']) {
      const tab = await open({ viewport: { width, height }, colorScheme, random: 0.2, deviceScaleFactor: 1 });
      const shot = (what) => SHOTS && tab.screenshot({ path: path.join(SHOTS, `${name}-${colorScheme}-${what}.png`),
        fullPage: true });
      await shot('first');
      await hurry(tab, '#buy', 6);
      await placed(tab);
      await later(tab, 1200);
      await tab.check('#bad');
      await hurry(tab, '#buy', 2);
      await until('one is lost', () => tab.locator('#log .lost').count());
      await shot('retry');
      await until('all are answered', async () => (await tab.locator('#log .made, #log .again').count()) === 8);
      if (SHOTS) await tab.screenshot({ path: path.join(SHOTS, `${name}-${colorScheme}-clicks.png`) }); // README's
      await tab.uncheck('#bad');
      await tab.click(TOKEN_BUTTON);
      await shot('token');
      await until('the form is answered', async () => /^Order/.test(await tokenStatus(tab)));
      await shot('after');
      eq(await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0, 'what is wider than the page');
      await tab.click('#form button');
      await arrived(tab, '/form/orders');
      await shot('confirmation');
      await shut(tab);
    }
  } }[sentence]);
}

await runOn(rig);
