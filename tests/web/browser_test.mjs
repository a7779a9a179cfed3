// idem.js in Chromium, with the real gateway. Every page has a Content-Security-Policy that allows only its own
// scripts, and an insecure origin.
import { hurry, later, Rig, runOn, shut } from './rig.mjs';
import { check, eq, pause, test, until } from './tap.mjs';

const rig = new Rig();
const BUY = '#buy', BUTTON = 'button[name=buy]';
let items = 0;

async function shopPage(options = {}, context = undefined) {
  const item = options.item ?? 'item-' + ++items;
  const tab = await rig.tab('/buy.html?' + new URLSearchParams({ ...options, item }), context);
  await ready(tab);
  return Object.assign(tab, { item });
}

const ready = (tab) => tab.waitForSelector('html[data-ready]');
const answers = async (tab) => (await tab.locator('#answers').innerText()).split('\n')
  .filter(Boolean).map((line) => JSON.parse(line));
const answered = (tab, n) => until(`${n} answers`, async () => {
  const all = await answers(tab);
  return all.length >= n && all;
});

async function formPage(options = {}, field = 'item-' + ++items, context = undefined) {
  rig.backend.orders = [];
  const tab = await rig.tab('/form.html?' + new URLSearchParams(options), context);
  await ready(tab);
  await tab.fill('[name=item]', field);
  return tab;
}

// Waits until the page's work is done: its tasks in a row, and a request after all earlier ones.
const barrier = (tab) => tab.evaluate(async () => {
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setTimeout(resolve)); // sleep: none, a turn of its loop
  await fetch('/buy.html', { cache: 'no-store' });
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setTimeout(resolve)); // sleep: none, a turn of its loop
});

// A page from the back/forward cache is not loaded again.
async function back(tab) {
  const from = tab.url();
  await tab.evaluate(() => setTimeout(() => history.back())); // sleep: none, but after this call
  await until('it has gone back', () => tab.url() !== from);
}

test(async function thirty_fast_clicks_are_one_order() {
  const tab = await shopPage();
  await hurry(tab, BUY, 30);
  const all = await answered(tab, 30);
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  eq(new Set(all.map(({ status, id }) => `${status} ${id}`)).size, 1, 'the number of different answers');
  eq(all.filter(({ replayed }) => !replayed).length, 1, 'answers that are no replays');
  await shut(tab);
});

test(async function thirty_clicks_on_a_slow_shop_are_one_order() {
  const tab = await shopPage(), before = rig.network.posts;
  await rig.whileShopStops(async () => {
    await hurry(tab, BUY, 30);
    await until('some are sent', () => rig.network.posts >= before + 6); // the rest wait for a connection
  });
  const all = await answered(tab, 30);
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  eq(new Set(all.map(({ id }) => id)).size, 1, 'the number of different answers');
  await shut(tab);
});

test(async function a_click_while_it_runs_is_told_so_and_comes_to_the_same_order() {
  const tab = await shopPage({ path: '/busy/orders', retries: 200 });
  await tab.evaluate(() => { // the page has to wait for a whole lease; once a second it may ask, too
    const { get } = Headers.prototype;
    Headers.prototype.get = function (name) {
      return get.call(this, name) && (name === 'Retry-After' ? '1' : get.call(this, name));
    };
  });
  await rig.whileShopStops(async () => {
    await hurry(tab, BUY, 2);
    await until('one is refused', () => / 409 /.test(rig.said('access.log')));
  });
  const all = await answered(tab, 2);
  eq(all.map(({ replayed }) => replayed).sort(), [false, true]);
  check(all.some(({ attempts }) => attempts > 1), 'nobody was told to wait');
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  await shut(tab);
});

test(async function a_lost_answer_is_asked_for_again() {
  const tab = await shopPage();
  rig.network.cuts = 2;
  await tab.click(BUY);
  const [{ status, replayed }] = await answered(tab, 1);
  eq({ status, replayed }, { status: 201, replayed: true });
  eq(rig.network.cuts, 0, 'answers to lose');
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  await shut(tab);
});

test(async function cut_off_then_reloaded_then_clicked_is_one_order() {
  const tab = await shopPage({ retries: 0 });
  rig.network.cuts = 20; // Chromium itself retries on a connection that it had kept
  await tab.click(BUY);
  eq(await answered(tab, 1), [{ error: 'TypeError' }]);
  await until('the order is there', async () => (await rig.orders(tab.item)).length === 1);
  rig.network.cuts = 0;
  await tab.reload();
  await ready(tab);
  await tab.click(BUY);
  const [{ status, replayed, final }] = await answered(tab, 1);
  eq({ status, replayed, final }, { status: 201, replayed: true, final: true });
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  await shut(tab);
});

test(async function a_reload_in_mid_request_is_one_order() {
  const tab = await shopPage();
  const before = rig.network.posts;
  await rig.whileShopStops(async () => {
    await tab.click(BUY);
    await rig.untilShopHasOne();
    await tab.reload();
    await ready(tab);
    await tab.click(BUY);
    await until('it is sent again', () => rig.network.posts > before + 1);
  });
  const [{ status, replayed }] = await answered(tab, 1);
  eq({ status, replayed }, { status: 201, replayed: true });
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  await shut(tab);
});

test(async function the_next_purchase_is_an_order_of_its_own() {
  const tab = await shopPage();
  await tab.click(BUY);
  await answered(tab, 1);
  await later(tab, 1300);
  await tab.click(BUY);
  const all = await answered(tab, 2);
  eq(all.map(({ replayed }) => replayed), [false, false]);
  eq((await rig.orders(tab.item)).length, 2, 'the number of orders');
  await shut(tab);
});

test(async function two_tabs_are_two_operations() {
  const first = await shopPage();
  const second = await shopPage({ item: first.item }, first.context());
  await Promise.all([first.click(BUY), second.click(BUY)]);
  await Promise.all([answered(first, 1), answered(second, 1)]);
  eq((await rig.orders(first.item)).length, 2, 'the number of orders');
  await shut(first);
});

test(async function a_tab_that_is_duplicated_has_the_same_operation() {
  const first = await shopPage();
  const before = rig.network.posts;
  let second;
  await rig.whileShopStops(async () => {
    await first.click(BUY);
    await rig.untilShopHasOne();
    // Like a browser's "duplicate tab": copies the session storage.
    [second] = await Promise.all([first.waitForEvent('popup'),
      first.evaluate(() => void window.open(location.href))]);
    await ready(second);
    await second.click(BUY);
    await until('it is sent again', () => rig.network.posts > before + 1);
  });
  const [[one], [two]] = await Promise.all([answered(first, 1), answered(second, 1)]);
  eq([one.id, two.replayed], [two.id, true]);
  eq((await rig.orders(first.item)).length, 1, 'the number of orders');
  await shut(first);
});

test(async function back_and_forward_keep_what_is_not_answered() {
  const tab = await shopPage({ retries: 0 });
  rig.network.cuts = 20;
  await tab.click(BUY);
  await answered(tab, 1);
  rig.network.cuts = 0;
  await tab.goto(rig.origin + '/form.html');
  await back(tab);
  await ready(tab);
  await tab.click(BUY);
  const last = (await until('it is answered', async () => {
    const all = await answers(tab);
    return all.at(-1)?.status && all;
  })).at(-1);
  eq([last.status, last.replayed], [201, true]);
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  await shut(tab);
});

test(async function thirty_clicks_on_a_form_end_on_the_one_orders_page() {
  const tab = await formPage();
  const before = rig.network.posts;
  rig.backend.holds = true;
  await hurry(tab, BUTTON, 30);
  await until('one has reached it', () => rig.backend.held.length);
  rig.backend.release();
  await tab.waitForSelector('h1');
  eq(await tab.title(), 'Order 1');
  eq(rig.backend.orders.length, 1, 'the number of orders');
  eq(rig.network.posts - before, 1, 'the number of submissions');
  check(/^item=item-\d+&buy=now&token=[\w-]{22,}$/.test(rig.backend.orders[0]), rig.backend.orders[0]);
  await shut(tab);
});

// The browser chooses another boundary for each click.
test(async function clicks_on_a_plain_form_with_a_file_are_one_order() {
  const tab = await rig.tab('/buy.html');
  rig.backend.orders = [];
  await tab.route('**/plain', (route) => route.fulfill({ contentType: 'text/html', body:
    '<form method="post" action="/upload" enctype="multipart/form-data"><input type="file" name="picture">' +
    '<button name="buy">Buy</button></form>' }));
  await tab.goto(rig.origin + '/plain');
  await tab.setInputFiles('[name=picture]', { name: 'a.png', mimeType: 'image/png', buffer: Buffer.from('\x89PNG') });
  const before = rig.network.posts;
  const { x, y } = await tab.locator(BUTTON).boundingBox();
  rig.backend.holds = true;
  for (let clicks = 1; clicks <= 3; clicks++) { // a hurried browser sends only the last one
    await tab.mouse.click(x + 5, y + 5);
    await until(`click ${clicks} is sent`, () => rig.network.posts >= before + clicks);
  }
  await until('one has reached it', () => rig.backend.held.length);
  rig.backend.release();
  await tab.waitForSelector('h1');
  eq([rig.backend.orders.length, await tab.title()], [1, 'Order 1']);
  await shut(tab);
});

test(async function submissions_in_one_breath_are_one() {
  const tab = await formPage({ fetch: 1 });
  await until('a token', () => tab.inputValue('[name=token]'));
  const before = rig.network.posts;
  await tab.evaluate(() => {
    for (let i = 0; i < 5; i++) document.forms[0].requestSubmit();
  });
  await answered(tab, 1);
  await barrier(tab);
  eq(rig.network.posts - before, 1, 'the number of submissions');
  await shut(tab);
});

test(async function a_form_that_is_gone_back_to_gives_the_same_order() {
  const tab = await formPage({}, 'pen', await rig.contextWithCache());
  await tab.click(BUTTON);
  await tab.waitForSelector('h1');
  const before = rig.network.tokens;
  await back(tab);
  await tab.waitForSelector('html[data-shown=again]');
  await tab.waitForSelector(BUTTON + ':enabled');
  eq(await tab.locator('form').getAttribute('aria-busy'), null, 'aria-busy');
  await until('a new token', () => rig.network.tokens > before);
  await tab.click(BUTTON);
  await tab.waitForSelector('h1');
  eq(await tab.title(), 'Order 1');
  eq(rig.backend.orders.length, 1, 'the number of orders');
  await back(tab);
  await tab.waitForSelector('html[data-shown=again]');
  await tab.fill('[name=item]', 'pencil');
  await tab.click(BUTTON);
  await tab.waitForSelector('h1');
  eq(await tab.title(), 'Order 2', 'the page of another item');
  await shut(tab);
});

test(async function a_form_that_is_gone_back_to_later_is_an_order_of_its_own() {
  const tab = await formPage({ hold: 300 }, 'paper', await rig.contextWithCache());
  await tab.click(BUTTON);
  await tab.waitForSelector('h1');
  await later(tab, 400);
  await back(tab);
  await tab.waitForSelector('html[data-shown=again]');
  await tab.click(BUTTON);
  await tab.waitForSelector('h1');
  eq([await tab.title(), rig.backend.orders.length], ['Order 2', 2]);
  await shut(tab);
});

test(async function a_form_is_locked_while_it_is_sent_and_says_so() {
  const tab = await formPage({ fetch: 1 });
  const busy = () => tab.evaluate(() => {
    const form = document.querySelector('form');
    return {
      busy: form.getAttribute('aria-busy'), buy: form.buy.disabled,
      other: form.querySelector('[type=button]').disabled,
      status: form.querySelector('[role=status]').textContent,
    };
  });
  rig.backend.holds = true;
  await tab.focus(BUTTON);
  await tab.keyboard.press('Enter');
  await until('it is locked', async () => (await busy()).buy);
  eq(await busy(), { busy: 'true', buy: true, other: false, status: 'Sending…' });
  const before = rig.network.tokens;
  await until('it has reached the backend', () => rig.backend.held.length);
  rig.backend.release();
  await answered(tab, 1);
  await until('the next token', () => rig.network.tokens > before);
  await until('it is open again', async () => !(await busy()).buy);
  eq(await busy(), { busy: null, buy: false, other: false, status: 'Done.' });
  check(await tab.locator(BUTTON).evaluate((button) => button === document.activeElement),
    'the button has lost the focus');
  check(/^item=item-\d+&buy=now$/.test(rig.backend.orders[0]), rig.backend.orders[0]);
  await shut(tab);
});

for (const multipart of [false, true]) {
  const sentence = `a_${multipart ? 'multipart_' : ''}form_without_an_answer_is_sent_again_by_hand`;
  test({ async [sentence]() {
    const tab = await formPage({ fetch: 1, retries: 0, ...(multipart && { multipart: 1 }) }, 'ink');
    rig.network.cuts = 20;
    await tab.click(BUTTON);
    eq(await answered(tab, 1), [{ error: 'TypeError' }]);
    check(/not be done twice/.test(await tab.innerText('[role=status]')), 'the person is not told');
    await until('the order is there', () => rig.backend.orders.length === 1);
    rig.network.cuts = 0;
    await tab.reload();
    await ready(tab);
    await tab.fill('[name=item]', 'ink');
    await tab.click(BUTTON);
    const [{ status, replayed }] = await answered(tab, 1);
    eq({ status, replayed }, { status: 201, replayed: true });
    eq(rig.backend.orders.length, 1, 'the number of orders');
    await later(tab, 1300);
    await tab.click(BUTTON);
    eq((await answered(tab, 2))[1].replayed, false, 'the next one is a replay');
    eq(rig.backend.orders.length, 2, 'the number of orders later');
    await shut(tab);
  } }[sentence]);
}

test(async function a_form_that_is_changed_after_a_lost_answer_has_a_token_of_its_own() {
  const tab = await formPage({ fetch: 1, retries: 0 }, 'chalk');
  rig.network.cuts = 20;
  await tab.click(BUTTON);
  await answered(tab, 1);
  await until('the order is there', () => rig.backend.orders.length === 1);
  rig.network.cuts = 0;
  await tab.fill('[name=item]', 'cheese');
  await tab.click(BUTTON);
  const { status, replayed } = (await answered(tab, 2))[1];
  eq({ status, replayed }, { status: 201, replayed: false });
  await shut(tab);
});

test(async function a_refused_form_can_be_corrected_and_sent() {
  const tab = await formPage({ fetch: 1 });
  rig.backend.answer = 422;
  await tab.click(BUTTON);
  await answered(tab, 1);
  eq(await tab.innerText('[role=status]'), 'Not accepted.');
  await tab.click(BUTTON); // a new operation, even without a correction
  eq((await answered(tab, 2)).map(({ status, replayed }) => [status, replayed]), [[422, false], [201, false]]);
  await shut(tab);
});

// The button was locked, and is free again; watch() comes before the click.
const watch = (tab) => tab.evaluate((where) => {
  const button = document.querySelector(where);
  new MutationObserver(() => (window.locked ||= button.disabled)).observe(button, { attributes: true });
}, BUTTON);
async function unlocked(tab) {
  await until('it was locked', () => tab.evaluate(() => window.locked));
  await tab.waitForSelector(BUTTON + ':enabled');
}

test(async function a_form_whose_answer_is_no_page_is_not_locked_for_ever() {
  const tab = await formPage({ timeout: 1500 });
  rig.backend.answer = 204;
  await watch(tab);
  await tab.click(BUTTON);
  await unlocked(tab);
  eq(await tab.locator('form').getAttribute('aria-busy'), null, 'aria-busy');
  await shut(tab);
});

test(async function a_form_that_a_later_listener_stops_can_be_sent() {
  const tab = await formPage();
  await until('a token', () => tab.inputValue('[name=token]'));
  await tab.evaluate(() => document.forms[0].addEventListener('submit', (event) => event.preventDefault(), { once: true }));
  await tab.click(BUTTON);
  await barrier(tab);
  eq(await tab.locator('form').getAttribute('aria-busy'), null, 'aria-busy');
  await tab.waitForSelector(BUTTON + ':enabled');
  await tab.click(BUTTON);
  await tab.waitForSelector('h1');
  eq(rig.backend.orders.length, 1, 'the number of orders');
  await shut(tab);
});

test(async function a_file_is_its_name_where_a_form_is_not_multipart() {
  const tab = await formPage({ fetch: 1 }, 'pin');
  await tab.evaluate(() => {
    const input = document.createElement('input');
    document.forms[0].append(Object.assign(input, { type: 'file', name: 'file' }));
  });
  await tab.setInputFiles('[name=file]', { name: 'a b.txt', mimeType: 'text/plain', buffer: Buffer.from('x') });
  await tab.click(BUTTON);
  await answered(tab, 1);
  eq(rig.backend.orders, ['item=pin&buy=now&file=a+b.txt']);
  await shut(tab);
});

test(async function after_an_answer_there_is_a_new_token() {
  const tab = await formPage({ fetch: 1 });
  const token = () => tab.inputValue('[name=token]');
  const first = await until('a token', token);
  await tab.click(BUTTON);
  await answered(tab, 1);
  await until('another token', async () => (await token()) !== first);
  await shut(tab);
});

test(async function a_token_is_renewed_before_it_ends() {
  const tab = await formPage({ token: '/token/brief' });
  const token = () => tab.inputValue('[name=token]');
  const first = await until('a token', token);
  await until('another token', async () => (await token()) !== first);
  await shut(tab);
});

for (const said of ['{"token":"t","expires_in":99999999}', '{"token":"t"}', '{"token":"t","expires_in":0}',
  '{"token":"t","expires_in":"soon"}']) {
  const sentence = 'a_server_is_not_flooded_by_' + said.replace(/\W+/g, '_');
  test({ async [sentence]() {
    const tab = await rig.tab('/buy.html');
    const begin = performance.now(), step = /:(0|"soon")/.test(said) ? 500 : Infinity; // the shortest time between two requests
    let asked = 0;
    await tab.route('**/token', (route) => {
      asked += 1;
      return route.fulfill({ contentType: 'application/json', body: said });
    });
    await tab.goto(rig.origin + '/form.html');
    await ready(tab);
    await pause(300); // sleep: only time shows that no flood comes
    await tab.click(BUTTON); // refused: the gateway did not issue the token
    await pause(700); // sleep: as above
    check(asked > 0 && asked < 6 + (performance.now() - begin) / step, `it was asked ${asked} times`);
    await shut(tab);
  } }[sentence]);
}

for (const how of ['dialog', 'get']) {
  const sentence = `a_button_whose_method_is_${how}_places_no_order`;
  test({ async [sentence]() {
    const tab = await formPage({ fetch: 1 });
    await until('a token', () => tab.inputValue('[name=token]'));
    await tab.evaluate((method) => {
      const button = document.querySelector('button[name=buy]');
      Object.assign(button, { formMethod: method, formAction: '/buy.html' });
    }, how);
    const before = rig.network.posts;
    await tab.click(BUTTON);
    await until('it has gone where it goes', () => new URL(tab.url()).pathname === (how === 'get' ? '/buy.html' : '/form.html'));
    await barrier(tab);
    eq(rig.network.posts - before, 0, 'the number of submissions');
    eq(new URL(tab.url()).pathname, how === 'get' ? '/buy.html' : '/form.html');
    await shut(tab);
  } }[sentence]);
}

test(async function a_form_is_sent_before_its_token_has_come() {
  const tab = await rig.tab('/buy.html');
  rig.backend.orders = [];
  let token;
  const clicked = new Promise((resolve) => (token = resolve));
  await tab.route('**/token', async (route) => {
    await clicked;
    await route.continue();
  });
  await tab.goto(rig.origin + '/form.html');
  await ready(tab);
  await tab.click(BUTTON);
  token();
  await tab.waitForSelector('h1');
  eq(rig.backend.orders.length, 1, 'the number of orders');
  check(/&buy=now&token=[\w-]{22,}$/.test(rig.backend.orders[0]), rig.backend.orders[0]);
  await shut(tab);
});

test(async function a_form_whose_token_cannot_be_had_says_so() {
  const tab = await rig.tab('/buy.html');
  rig.backend.orders = [];
  await tab.route('**/token', (route) => route.abort());
  await tab.goto(rig.origin + '/form.html?fetch=1');
  await ready(tab);
  await tab.click(BUTTON);
  eq(await answered(tab, 1), [{ error: 'TypeError' }]);
  await tab.waitForSelector(BUTTON + ':enabled');
  await tab.unroute('**/token');
  await tab.click(BUTTON);
  eq((await answered(tab, 2))[1].status, 201);
  eq(rig.backend.orders.length, 1, 'the number of orders');
  await shut(tab);
});

test(async function a_form_whose_token_is_refused_is_sent_with_another() {
  const tab = await rig.tab('/buy.html');
  let tokens = 0;
  rig.backend.orders = [];
  await tab.route('**/token', (route) => (tokens++ ? route.continue()
    : route.fulfill({ json: { token: '0'.repeat(32), expires_in: 300 } })));
  await tab.goto(rig.origin + '/form.html?fetch=1');
  await ready(tab);
  await until('a token', () => tab.inputValue('[name=token]'));
  await tab.click(BUTTON);
  eq((await answered(tab, 1))[0].status, 403);
  eq(await tab.innerText('[role=status]'), 'Not accepted.');
  await tab.click(BUTTON); // at once
  eq((await answered(tab, 2))[1].status, 201);
  eq(rig.backend.orders.length, 1, 'the number of orders');
  await shut(tab);
});

// Makes a form of the test's own, guarded with these options; `status` is an element's id.
async function ownPage(form, options = {}) {
  const tab = await rig.tab('/buy.html');
  rig.backend.orders = [];
  await tab.evaluate(async ([html, { status, ...rest }]) => {
    const { guardForm } = await import('/idem.js');
    document.body.innerHTML = html;
    guardForm(document.forms[0], { ...rest, ...(status && { status: document.getElementById(status) }) });
  }, [form, options]);
  return tab;
}

test(async function a_token_that_came_with_the_page_is_used() {
  const before = rig.network.tokens;
  for (const byFetch of [false, true]) {
    const { token } = await (await fetch(`http://127.0.0.1:${rig.port}/token`)).json(); // without the network
    const tab = await ownPage(`<form method="post" action="/${byFetch ? 'fetched' : 'form'}">
      <input type="hidden" name="token" value="${token}"><button name="buy">Buy</button></form>`, { fetch: byFetch });
    await tab.click(BUTTON);
    if (byFetch) await until('it is done', async () => (await tab.innerText('[role=status]')) === 'Done.');
    else await tab.waitForSelector('h1');
    eq(rig.backend.orders, [byFetch ? 'buy=' : `token=${token}&buy=`], 'what was sent');
    await shut(tab);
  }
  eq(rig.network.tokens, before, 'tokens that were asked for');
});

test(async function a_form_that_another_listener_stops_is_not_locked() {
  const tab = await ownPage('<form method="post" action="/form"><button name="buy">Buy</button></form>', { tokenUrl: '/token' });
  await tab.evaluate(() => document.forms[0].addEventListener('submit', (event) => event.preventDefault()));
  await until('a token', () => tab.inputValue('[name=token]'));
  const before = rig.network.posts;
  for (let i = 0; i < 2; i++) {
    await tab.click(BUTTON);
    await barrier(tab);
    eq([await tab.isEnabled(BUTTON), await tab.locator('form').getAttribute('aria-busy')], [true, null]);
  }
  eq(rig.network.posts, before, 'the number of submissions');
  await shut(tab);
});

test(async function a_form_whose_answer_is_no_page_is_unlocked_in_time() {
  const tab = await ownPage('<form method="post" action="/form"><button name="buy">Buy</button></form>',
    { tokenUrl: '/token', timeout: 1500 });
  await tab.route('**/form', (route) => route.fulfill({ status: 204 }));
  await until('a token', () => tab.inputValue('[name=token]'));
  await watch(tab);
  await tab.click(BUTTON);
  await unlocked(tab);
  await shut(tab);
});

test(async function a_button_says_where_to_and_is_sent_with_the_form() {
  const tab = await ownPage(`<form method="post" action="/nowhere"><input name="item" value="book"><p id="said"></p>
    <button name="buy" value="now" formaction="/fetched">Buy</button></form>`,
    { tokenUrl: '/token', fetch: true, status: 'said' });
  await tab.click(BUTTON);
  await until('it is told, where it was asked to be', async () => (await tab.innerText('#said')) === 'Done.');
  eq(rig.backend.orders, ['item=book&buy=now']);
  await shut(tab);
});

test(async function an_answer_that_is_no_token_is_none() {
  const tab = await rig.tab('/buy.html');
  rig.backend.orders = [];
  let tokens = 0;
  await tab.route('**/token', (route) => (tokens++ < 2 ? route.fulfill({ status: 503, json: { token: 'no', expires_in: 300 } })
    : route.continue()));
  await tab.goto(rig.origin + '/form.html?fetch=1');
  await ready(tab);
  await tab.click(BUTTON);
  await answered(tab, 1);
  check(/Try again/.test(await tab.innerText('[role=status]')), 'the person is not told');
  await tab.click(BUTTON);
  eq((await answered(tab, 2))[1].status, 201);
  eq(rig.backend.orders.length, 1, 'the number of orders');
  await shut(tab);
});

test(async function a_released_form_is_a_plain_one() {
  const tab = await formPage({ fetch: 1 });
  await until('a token', () => tab.inputValue('[name=token]'));
  await tab.evaluate(() => window.guard.release());
  await tab.click(BUTTON);
  await tab.waitForURL('**/fetched');
  await tab.context().close();
});

// Signed requests, on an origin that browsers trust, because others have no WebCrypto.

const signers = () => [
  { keyId: 'shop-1', bytes: [...rig.signers.secret], format: 'raw', algorithm: { name: 'HMAC', hash: 'SHA-256' } },
  { keyId: 'page-1', format: 'pkcs8', algorithm: { name: 'Ed25519' },
    bytes: [...rig.signers.pair.privateKey.export({ format: 'der', type: 'pkcs8' })] },
];

// A page that has the key, but cannot export it.
async function signingPage({ bytes, format, algorithm, keyId }) {
  const item = 'item-' + ++items;
  const tab = await rig.tab(`${rig.secure}/buy.html?${new URLSearchParams({ item })}`);
  await ready(tab);
  await tab.evaluate(async ([raw, kind, how, id]) => {
    const key = await crypto.subtle.importKey(kind, Uint8Array.from(raw), how, false, ['sign']);
    window.how = { keyId: id, key };
  }, [bytes, format, algorithm, keyId]);
  return Object.assign(tab, { item });
}

test(async function what_a_page_signs_is_taken_once() {
  for (const signer of signers()) {
    const tab = await signingPage(signer);
    const said = await tab.evaluate(async () => {
      const { signRequest } = await import('/idem.js');
      const form = new FormData();
      form.append('file', new Blob(['a file']), 'ä.txt');
      const all = [];
      for (const [url, init] of [['/signed/x?b=2&a=1#x', { method: 'POST', body: 'ä' }], ['/signed/ä?', {}],
        ['/signed/x?' + new URLSearchParams(), { method: 'POST', body: form }], ['/signed/x', { method: 'DELETE' }]]) {
        const request = await signRequest(url, window.how, init), again = request.clone();
        all.push((await fetch(request)).status, (await (await fetch(again)).json()).type);
        // Unchanged, with its question mark.
        all.push((await fetch(await signRequest(new Request(url, init), window.how))).status);
      }
      return all;
    });
    eq(said, Array(4).fill([201, 'urn:idem:nonce-reused', 201]).flat(), signer.keyId);
    await shut(tab);
  }
});

test(async function the_classic_form_is_signed_in_a_page() {
  const tab = await signingPage(signers()[0]);
  const said = await tab.evaluate(async () => {
    const { signRequest } = await import('/idem-sign.js');
    const how = { ...window.how, form: 'classic', headers: ['Content-Type'] };
    const all = [];
    for (const url of ['/signed/classic/x?b=2&a=1&b=1', '/signed/classic/x?', '/signed/classic/ö?ü'])
      for (const input of [url, new Request(url)]) {
        const request = await signRequest(input, how, { method: 'POST', body: 'ä' }), again = request.clone();
        all.push((await fetch(request)).status, (await (await fetch(again)).json()).type);
      }
    return all;
  });
  eq(said, Array(6).fill([201, 'urn:idem:nonce-reused']).flat());
  await shut(tab);
});

const bought = (tab, options = {}) => tab.evaluate(async ([item, more]) => {
  const { idemFetch, signRequest } = await import('/idem.js');
  const how = { ...window.how, headers: ['Idempotency-Key'] };
  const inputs = new Set();
  const response = await idemFetch('/signed/orders', {
    method: 'POST', body: JSON.stringify({ item, amount: 1 }), headers: { 'Content-Type': 'application/json' },
    sign: async (request) => {
      const signed = await signRequest(request, how);
      inputs.add(signed.headers.get('Signature-Input'));
      return signed;
    },
    ...more,
  });
  const { attempts, replayed } = response.idem;
  return { status: response.status, attempts, replayed, signed: inputs.size };
}, [tab.item, options]);

test(async function a_lost_answer_to_a_signed_request_is_asked_for_again() {
  const tab = await signingPage(signers()[0]);
  rig.network.cuts = 2;
  const { status, attempts, replayed, signed } = await bought(tab);
  eq({ status, replayed, signed }, { status: 201, replayed: true, signed: attempts });
  check(attempts > 1, 'it was not asked for again');
  eq(rig.network.cuts, 0, 'answers to lose');
  eq((await rig.orders(tab.item)).length, 1, 'the number of orders');
  await shut(tab);
});

// If a kept connection is cut, Chromium itself repeats the request, with the same nonce. The gateway refuses that, and
// the page signs again.
test(async function what_a_browser_sends_twice_by_itself_is_signed_anew() {
  const tab = await signingPage(signers()[1]);
  eq((await bought(tab)).status, 201);
  await later(tab, 1200); // so that the next click is an order of its own
  const before = rig.network.posts;
  rig.network.cuts = 1;
  const { status, attempts, replayed, signed } = await bought(tab);
  eq({ status, replayed, signed }, { status: 201, replayed: true, signed: attempts });
  check(rig.network.posts - before > attempts, `${rig.network.posts - before} were sent in ${attempts} attempts`);
  eq((await rig.orders(tab.item)).length, 2, 'the number of orders');
  await shut(tab);
});

test(async function a_page_makes_a_key_of_its_own_and_finds_it_again() {
  const tab = await rig.tab(rig.secure + '/buy.html');
  const shown = await tab.evaluate(async () => {
    const pair = await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']);
    await new Promise((resolve) => {
      const open = indexedDB.open('keys');
      open.onupgradeneeded = () => open.result.createObjectStore('keys').put(pair.privateKey, 'own');
      open.onsuccess = () => resolve(open.result.close());
    });
    return [...new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey))];
  });
  rig.write('secrets', rig.signers.file('ed25519', 'x') + `own-1 ed25519 hex:${Buffer.from(shown).toString('hex')}\n`);
  rig.nginx.kill('SIGHUP');
  await tab.reload();
  await until('its key is known', () => tab.evaluate(async () => {
    const { signRequest } = await import('/idem.js');
    const key = await new Promise((resolve) => {
      const open = indexedDB.open('keys');
      open.onsuccess = () => {
        const found = open.result.transaction('keys').objectStore('keys').get('own');
        found.onsuccess = () => resolve(found.result);
      };
    });
    const refused = await crypto.subtle.exportKey('pkcs8', key).catch(({ name }) => name);
    const request = await signRequest('/signed/x', { keyId: 'own-1', key }, { method: 'POST', body: 'x' });
    return refused === 'InvalidAccessError' && (await fetch(request)).status === 201;
  }));
  await shut(tab);
});

test(async function a_signed_form_with_a_file_is_one_order_over_a_reload() {
  const tab = await signingPage(signers()[1]);
  const sent = () => tab.evaluate(async () => {
    const { idemFetch, signRequest } = await import('/idem.js');
    const form = new FormData();
    form.append('file', new File(['a file'], 'name.txt', { lastModified: 1 }));
    const response = await idemFetch('/signed/forms', { method: 'POST', body: form, linger: 60000,
      sign: (request) => signRequest(request, { ...window.how, headers: ['Idempotency-Key'] }) });
    return [response.status, response.idem.replayed];
  });
  rig.backend.orders = [];
  eq(await sent(), [201, false]);
  eq(await sent(), [201, true], 'with another boundary');
  eq(rig.backend.orders.length, 1, 'the number of orders');
  await shut(tab);
});

test(async function an_insecure_page_is_told_that_it_cannot_sign() {
  const tab = await shopPage();
  const said = await tab.evaluate(async () => {
    const { signRequest } = await import('/idem.js');
    return signRequest('/signed/x', { keyId: 'shop-1', key: new Uint8Array(32) }).catch(String);
  });
  check(/TypeError.*https/.test(said), said);
  await shut(tab);
});

await runOn(rig);
