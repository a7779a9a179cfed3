// web/*.d.ts, by TypeScript's compiler: as their users write it, and against what the modules export.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { eq, run, test } from './tap.mjs';

const HERE = path.dirname(new URL(import.meta.url).pathname);
const WEB = path.join(HERE, '../../web');
const TSC = path.join(process.env.IDEM_WEB_MODULES, 'node_modules/typescript/bin/tsc');

function compiled(...args) {
  const { status, stdout } = spawnSync(process.execPath, [TSC, '--noEmit', '--strict',
    '--target', 'es2022', '--module', 'esnext', '--moduleResolution', 'bundler',
    '--lib', 'es2022,dom,dom.iterable', ...args], { encoding: 'utf8', timeout: 300000 });
  if (status !== 0) throw new Error(stdout || `tsc: ${status}`);
}

test(async function a_page_in_typescript_compiles() {
  compiled(path.join(HERE, 'usage.ts'));
});

test(async function the_types_name_what_there_is() {
  for (const name of ['idem', 'idem-sign']) {
    const exported = Object.keys(await import(path.join(WEB, name + '.js'))).sort();
    const typed = [...fs.readFileSync(path.join(WEB, name + '.d.ts'), 'utf8')
      .matchAll(/^export (?:function|const) (\w+)/gm)].map(([, word]) => word).sort();
    eq(typed, exported, `the names of ${name}`);
  }
});

test(async function the_package_has_its_files() {
  const { files, exports, version } = JSON.parse(fs.readFileSync(path.join(WEB, 'package.json'), 'utf8'));
  const named = Object.values(exports).flatMap((one) => Object.values(one)).map((name) => path.basename(name));
  eq(named.sort(), [...files].sort(), 'what is exported');
  files.forEach((name) => fs.accessSync(path.join(WEB, name)));
  const project = fs.readFileSync(path.join(WEB, '../meson.build'), 'utf8');
  eq(version, /version: '([^']+)'/.exec(project)[1], 'the version');
});

await run();
