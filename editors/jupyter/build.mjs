// Builds the prebuilt extension that JupyterLab loads: one file, and its package.json. JupyterLab's own builder does the same with
// 394 packages; what it makes of our few modules is this container, by webpack's rules for module federation.
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

import { build } from 'esbuild';

const out = 'labextension';
const { name, version, description, license } = JSON.parse(readFileSync('package.json', 'utf8'));
// What JupyterLab itself has loaded: a token is only known to it when it is its own.
// And what a second CodeMirror would say means nothing to the first.
const shared = ['@codemirror/state', '@codemirror/view', '@jupyterlab/completer', '@jupyterlab/notebook', '@jupyterlab/settingregistry'];

const { outputFiles } = await build({
  entryPoints: ['src/index.ts'],
  bundle: true,
  minify: true,
  write: false,
  format: 'cjs',
  target: 'es2022',
  legalComments: 'none',
  external: shared,
});
const container = `(() => {
  const shared = {};
  let scope;
  // Other extensions may bring versions of their own: JupyterLab's is the one that is loaded.
  const pick = async (name) => {
    const versions = Object.values(scope[name]);
    return (await (versions.find(({ loaded }) => loaded) ?? versions[0]).get())();
  };
  const bundle = (module, require) => {
    ${outputFiles[0].text.trim()}
  };
  (window._JUPYTERLAB ??= {})[${JSON.stringify(name)}] = {
    init: (given) => { scope = given; },
    get: async () => {
      for (const name of ${JSON.stringify(shared)}) {
        shared[name] = await pick(name);
      }
      const module = { exports: {} };
      bundle(module, (name) => shared[name]);
      return () => module.exports;
    },
  };
})();
`;
rmSync(out, { recursive: true, force: true });
mkdirSync(`${out}/static`, { recursive: true });
writeFileSync(`${out}/static/remoteEntry.js`, container);
cpSync('schema', `${out}/schemas/${name}`, { recursive: true });
const jupyterlab = { extension: true, schemaDir: 'schemas', _build: { load: 'static/remoteEntry.js', extension: './extension' } };
writeFileSync(`${out}/package.json`, `${JSON.stringify({ name, version, description, license, jupyterlab }, null, 2)}\n`);
console.log(`${out}: ${container.length} bytes`);
