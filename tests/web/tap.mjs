// The frame of the browser client's tests: functions named as sentences, TAP on stdout.
//
//     test(async function a_sentence() { ... })
//     await run()         with names of tests as arguments, those only

const SECONDS = 300, LIMIT = 120; // of a test, and of a condition that is waited for; only a failure reaches them
const tests = [];
let count = 0, failed = 0;

export const test = (body) => tests.push(body);

export function report(ok, name, why = '') {
  count += 1;
  failed += ok ? 0 : 1;
  for (const line of ok ? [] : why.split('\n')) console.log('# ' + line.slice(0, 500));
  console.log(`${ok ? 'ok' : 'not ok'} ${count} - ${name}`);
}

export function eq(got, want, what = 'value') {
  const [g, w] = [got, want].map((value) => JSON.stringify(value));
  if (g !== w) throw new Error(`${what} is ${g}, not ${w}`);
}

export function check(condition, what) {
  if (!condition) throw new Error(what);
}

// sleep: each caller gives the reason
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(what, condition) {
  for (const end = Date.now() + LIMIT * 1000; ;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${LIMIT} s`);
    await pause(10); // sleep: the step of a poll
  }
}

async function limited(body) {
  let timer;
  const late = new Promise((_, reject) => {
    // sleep: no test waits for this limit
    timer = setTimeout(() => reject(new Error(`not done within ${SECONDS} s`)), SECONDS * 1000);
  });
  try {
    await Promise.race([body(), late]);
  } finally {
    clearTimeout(timer);
  }
}

export async function run(finish = async () => {}) {
  const wanted = process.argv.slice(2);
  const chosen = tests.filter((body) => !wanted.length || wanted.includes(body.name));
  if (!chosen.length) report(false, 'there_is_a_test_of_that_name');
  for (const body of chosen) {
    const begin = Date.now();
    try {
      await limited(body);
      report(true, body.name);
    } catch (error) {
      report(false, body.name, error.stack ?? String(error));
    }
    if (Date.now() - begin > 3000) console.log(`# it took ${(Date.now() - begin) / 1000} s`);
  }
  await finish();
  console.log(`1..${count}`);
  process.exit(failed ? 1 : 0);
}
