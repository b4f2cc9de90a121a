import { constants } from 'node:fs';
import { access, realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import * as path from 'node:path';

const ENDING = process.platform === 'win32' ? '.exe' : '';

/**
 * A program: as set, which takes an absolute path, else the first of `names` on the PATH or where `pip install --user` and
 * pipx put it. Never in one of the `open` folders by itself, also where the PATH names one: opening somebody's repository must
 * not run what lies in it.
 */
export async function locate(setting: string, names: string[], open: string[]): Promise<string | undefined> {
  if (setting) {
    const expanded = setting.startsWith('~') ? path.join(homedir(), setting.slice(1)) : setting;
    return path.isAbsolute(expanded) && (await runnable(expanded)) ? expanded : undefined;
  }
  const known = [...(process.env.PATH ?? '').split(path.delimiter), path.join(homedir(), '.local', 'bin')];
  const home = await real(homedir()); // who opens that, or the whole disk, has not opened what somebody else made
  const roots = (await Promise.all(open.map(real))).filter((root) => !inside(root, home));
  for (const name of names) {
    for (const folder of known.filter((entry) => path.isAbsolute(entry))) {
      const candidate = path.join(folder, name + ENDING);
      const place = await real(folder);
      if (!roots.some((root) => inside(root, place)) && (await runnable(candidate))) {
        return candidate;
      }
    }
  }
  return undefined;
}

function inside(root: string, folder: string): boolean {
  const way = path.relative(root, folder);
  return way === '' || (way.split(path.sep)[0] !== '..' && !path.isAbsolute(way));
}

const real = (file: string): Promise<string> => realpath(file).catch(() => path.resolve(file));

async function runnable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}
